package real_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/chaos/real"
)

// TestRebootsAreJudged: tasks without secrets and tasks with them each have to run within the limit of their driver, at the
// 99th percentile.
func TestRebootsAreJudged(t *testing.T) {
	took := func(slow int) []time.Duration { // of a hundred tasks of raw_exec, where 2 s are allowed
		return slices.Concat(slices.Repeat([]time.Duration{2 * time.Second}, 100-slow), slices.Repeat([]time.Duration{3 * time.Second}, slow))
	}
	for name, test := range map[string]struct {
		without, with []time.Duration
		says          []string // empty: it is within the limits
	}{
		"no secrets":               {without: took(1)},
		"both in time":             {without: took(1), with: took(1)},
		"slow":                     {without: took(2), says: []string{"tasks of raw_exec run again, 99th percentile: 3 s"}},
		"slow with secrets":        {without: took(0), with: took(2), says: []string{"tasks of raw_exec with secrets run again, 99th percentile: 3 s", "2 s is allowed"}},
		"slow without and with it": {without: took(2), with: took(2), says: []string{"tasks of raw_exec run", "tasks of raw_exec with secrets run"}},
	} {
		err := real.RebootResult{Driver: "raw_exec", Tasks: test.without, Secrets: test.with}.Judge()
		if errors.Is(err, real.ErrViolated) != (len(test.says) > 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range test.says {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, not %q", name, err, part)
			}
		}
	}
}
