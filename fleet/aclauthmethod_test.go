package fleet_test

import (
	"encoding/json"
	"testing"
	"time"

	"skerry/fleet"
)

func TestTextDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{`"8h"`: 8 * time.Hour, `""`: 0, `5000000000`: 5 * time.Second, `"-1s"`: -time.Second, `null`: 0} {
		var d fleet.TextDuration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %s, %v", text, d, err)
		}
	}
	for _, text := range []string{`"8 hours"`, `true`, `1.5`, `{}`, `1e30`} {
		var d fleet.TextDuration
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s is read as %s", text, d)
		}
	}
}

// FuzzTextDuration: what is read is written so that it is read again.
func FuzzTextDuration(f *testing.F) {
	for _, text := range []string{`"8h"`, `""`, `5`, `"1ns"`, `null`, `"x"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var d, again fleet.TextDuration
		if json.Unmarshal(text, &d) != nil {
			return
		}
		written, err := json.Marshal(d)
		if err == nil {
			err = json.Unmarshal(written, &again)
		}
		if err != nil || again != d {
			t.Errorf("%q: %s, written as %s, read as %s: %v", text, d, written, again, err)
		}
	})
}
