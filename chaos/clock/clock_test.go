package clock_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry/chaos/clock"
)

func TestClockMoves(t *testing.T) {
	f := clock.File(filepath.Join(t.TempDir(), "clock"))
	for _, by := range []time.Duration{0, -time.Hour, 400 * 24 * time.Hour, -56 * 365 * 24 * time.Hour} {
		if by != 0 { // without a file it is the machine's own
			if err := f.Set(by); err != nil {
				t.Fatal(err)
			}
		}
		if off := f.Now().Sub(time.Now().Add(by)).Abs(); off > time.Second {
			t.Errorf("moved by %s the clock is off by %s", by, off)
		}
	}
}

func FuzzClock(f *testing.F) {
	f.Add([]byte("0\n"))
	f.Add([]byte("-3600000000000\n"))
	f.Add([]byte("1e9"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file := clock.File(filepath.Join(t.TempDir(), "clock"))
		if err := os.WriteFile(string(file), text, 0o600); err != nil {
			t.Fatal(err)
		}
		by, err := file.Offset()
		if err != nil {
			return
		}
		if err := file.Set(by); err != nil {
			t.Fatal(err)
		}
		if again, err := file.Offset(); err != nil || again != by {
			t.Errorf("%q is %s, and written again %s, %v", text, by, again, err)
		}
	})
}
