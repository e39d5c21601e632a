package alloc

import (
	"io"
	"strings"
	"testing"
)

func TestLastLines(t *testing.T) {
	long := strings.Repeat("x", 5*tailGuess) + "\n"
	for name, c := range map[string]struct {
		text  string
		flags tailFlags
		want  string
	}{
		"all":                 {"a\nb\n", tailFlags{}, ""},
		"bytes":               {"a\nb\n", tailFlags{bytes: 3}, "\nb\n"},
		"lines":               {"a\nb\nc\n", tailFlags{lines: 2}, "b\nc\n"},
		"unfinished":          {"a\nb\nc", tailFlags{lines: 2}, "b\nc"},
		"fewer than asked":    {"a\nb\n", tailFlags{lines: 7}, "a\nb\n"},
		"long lines":          {long + long + long, tailFlags{lines: 2}, long + long},
		"ten":                 {strings.Repeat("l\n", 30), tailFlags{tail: true}, strings.Repeat("l\n", 10)},
		"more than is looked": {strings.Repeat("l\n", 30), tailFlags{lines: 1 << 40}, strings.Repeat("l\n", 30)},
		"nothing":             {"", tailFlags{lines: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.flags.startOffset(func(before int64) (io.ReadCloser, error) {
				if before > tailBound {
					t.Fatalf("%d bytes are read", before)
				}
				return io.NopCloser(strings.NewReader(c.text[max(len(c.text)-int(before), 0):])), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got < 0 {
				if c.want != "" {
					t.Fatalf("it begins at the start, want %q", c.want)
				}
				return
			}
			if end := c.text[max(len(c.text)-int(got), 0):]; end != c.want {
				t.Errorf("got %q, want %q", end, c.want)
			}
		})
	}
	for _, f := range []tailFlags{{lines: -1}, {bytes: -1}} {
		if _, err := f.startOffset(nil); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}
