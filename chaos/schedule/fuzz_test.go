package schedule_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"skerry/chaos/schedule"
)

// FuzzParse checks that whatever is read is valid, and is printed as what is read
// as the same again.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "../scenarios/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(src))
		}
	}
	f.Add(schedule.Draw(1, schedule.Shape{}).String())
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schedule.Parse("fuzz.yaml", []byte(text))
		if err != nil {
			return
		}
		if err := s.Validate().Err(); err != nil {
			t.Fatalf("what was read is not valid: %v", err)
		}
		printed := s.String()
		again, err := schedule.Parse("fuzz.yaml", []byte(printed))
		if err != nil {
			t.Fatalf("%v\nin\n%s", err, printed)
		}
		if !reflect.DeepEqual(s, again) || again.String() != printed {
			t.Fatalf("%s\nis read as\n%s", printed, again)
		}
	})
}

func FuzzParseCut(f *testing.F) {
	f.Add("3@2h:45m")
	f.Add("edge-3,ship@90s")
	f.Add("all@1d:2d")
	f.Fuzz(func(t *testing.T, text string) {
		cut, err := schedule.ParseFault(schedule.LinkCut, text)
		if err != nil {
			return
		}
		if cut.Kind != schedule.LinkCut || len(cut.Targets) == 0 || cut.At < 0 || cut.For < 0 || cut.At > 400*24*time.Hour {
			t.Fatalf("%q is read as %+v", text, cut)
		}
	})
}
