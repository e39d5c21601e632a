package remoteapi

import (
	"strings"
	"testing"
)

// FuzzErrorText: no answer makes it panic, and the text is one bounded line without what is hidden.
func FuzzErrorText(f *testing.F) {
	for _, s := range []string{`{"errors":["no"]}`, "Permission denied", "<html>", `{"errors":["\u0000\n"]}`} {
		f.Add("text/plain", []byte(s))
	}
	f.Fuzz(func(t *testing.T, kind string, b []byte) {
		if text := errorText(kind, b, "", "no"); len(text) > 3*maxErrorText || strings.ContainsAny(text, "\n\r\t") || strings.Contains(text, "no") {
			t.Fatalf("%q", text)
		}
	})
}
