package validate_test

import (
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/validate"
)

func TestStopOnClientAfterIsNotShorterThanThreeBeats(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		want  string // "": fine
	}{
		{-time.Second, "may not be negative"},
		{0, "must be at least 3s, not 0s"},
		{2999 * time.Millisecond, "must be at least 3s, not 2.999s"},
		{3 * time.Second, ""},
		{time.Hour, ""},
	} {
		job := fleet.Job{ID: "j", TaskGroups: []fleet.TaskGroup{{
			Name: "g", Disconnect: &fleet.Disconnect{StopOnClientAfter: &tt.after}, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}},
		}}}
		validate.FillDefaults(&job)
		ps := validate.Job(&job)
		switch {
		case tt.want == "" && len(ps) == 0:
		case tt.want != "" && len(ps) == 1 && strings.Contains(ps[0].Message, tt.want) && ps[0].Path == "TaskGroups[0].Disconnect.StopOnClientAfter":
		default:
			t.Errorf("%s: %v, want %q", tt.after, ps, tt.want)
		}
	}
}
