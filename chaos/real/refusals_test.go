package real_test

import (
	"bytes"
	"log/slog"
	"testing"

	"skerry/chaos/real"
)

// FuzzRefusal writes a line as the gateway's logger does, and reads it back.
func FuzzRefusal(f *testing.F) {
	f.Add("d83baccb", "fork", "the journal is not the one whose rows the cluster has applied for node d83baccb")
	f.Add("", "stale_epoch", "a \"newer\" session\n took = its place")
	f.Add("a=b c", "x", "")
	f.Fuzz(func(t *testing.T, node, code, reason string) {
		var line bytes.Buffer
		slog.New(slog.NewTextHandler(&line, nil)).Warn("session refused", "self", "hub-1", "node", node, "code", code, "error", reason)
		seen, ok := real.ParseRefusal(line.String())
		if !ok {
			t.Fatalf("%q is taken for no refusal", line.String())
		}
		if utf8(node, code, reason) && (seen.From != node || string(seen.Code) != code || seen.Reason != reason) {
			t.Errorf("%q was read as %+v", line.String(), seen)
		}
		real.ParseRefusal(node + code + reason) // anything may stand in a file
	})
}

func utf8(texts ...string) bool {
	for _, s := range texts {
		if s != string([]rune(s)) {
			return false
		}
	}
	return true
}

func TestOtherLinesAreNoRefusals(t *testing.T) {
	for _, line := range []string{"", "panic: no", `level=INFO msg="session open" node=1 code=fork`, `msg="session refu`, "session refused"} {
		if seen, ok := real.ParseRefusal(line); ok {
			t.Errorf("%q was read as %+v", line, seen)
		}
	}
}
