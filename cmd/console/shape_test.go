package console_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"skerry/cmd/console"
	"skerry/fleet"
)

func TestShaper(t *testing.T) {
	for _, tc := range []struct {
		template, in, want string
		bad                bool
	}{
		{"{{range .}}{{.ID}} {{end}}", `[{"ID":"a"},{"ID":"b"}]`, "a b \n", false},
		{"{{.Index}}", `{"Index":12345678901234567890}`, "12345678901234567890\n", false},
		{"{{json .Meta}}", `{"Meta":{"k":"v"}}`, `{"k":"v"}` + "\n", false},
		{"{{.Nope}}", `{"ID":"a"}`, "", true},
		{"{{.ID}}", `not JSON`, "", true},
	} {
		var out bytes.Buffer
		s, err := console.NewShaper(&out, tc.template)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(s, tc.in)
		err = s.Close()
		if (err != nil) != tc.bad || !tc.bad && out.String() != tc.want {
			t.Errorf("%s of %s: %q, %v", tc.template, tc.in, out.String(), err)
		}
	}
	if _, err := console.NewShaper(&bytes.Buffer{}, "{{"); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), "template") {
		t.Errorf("a template that does not parse: %v", err)
	}
}
