package terminal

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEscapesOfACommand(t *testing.T) {
	for typed, want := range map[string]struct {
		sent             string
		interruptedError bool
	}{
		"ls\n~.more":    {"ls\n", true},
		"~.":            {"", true},
		"~~x\n":         {"~x\n", false},
		"a~.\n":         {"a~.\n", false},
		"\r~x~.\n":      {"\r~x~.\n", false},
		"cd ~\n~?":      {"cd ~\n~?", false},
		"a\n\n~\n~.":    {"a\n\n~\n", true},
		"~~.":           {"~.", false},
		"nothing of it": {"nothing of it", false},
	} {
		for _, slow := range []bool{false, true} {
			var from io.Reader = strings.NewReader(typed)
			if slow {
				from = iotest.OneByteReader(from)
			}
			left := false
			b, err := io.ReadAll(&escapeReader{from: from, char: '~', onLeave: func() { left = true }})
			if sent := string(b); err != nil || left != want.interruptedError || !left && sent != want.sent || !strings.HasPrefix(sent, want.sent) {
				t.Errorf("%q (slow %t): sent %q, left %t, %v; want %q, %t", typed, slow, sent, left, err, want.sent, want.interruptedError)
			}
		}
	}
}
