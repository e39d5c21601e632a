package intercept_test

import (
	"testing"

	"skerry/chaos/intercept"
)

func TestPattern(t *testing.T) {
	for path, want := range map[string]string{
		"journal.db-wal":              "journal.db-wal",
		"tasks/.task.json.3141592653": "tasks/.task.json.NUMBER",
		"allocs/a0000000-0000-4000-8000-000000000001/alloc/logs/web.stdout.0":          "allocs/UUID/alloc/logs/web.stdout.0",
		"store/blobs/2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae": "store/blobs/HASH",
	} {
		if got := intercept.Pattern(path); got != want {
			t.Errorf("%s is of the pattern %s, want %s", path, got, want)
		}
	}
}
