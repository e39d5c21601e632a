package validate_test

import (
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/fleet/validate"
)

func TestLocalControl(t *testing.T) {
	for _, tc := range []struct {
		control fleet.LocalControl
		wrong   []string
	}{
		{fleet.LocalControl{}, nil},
		{fleet.LocalControl{Allow: fleet.LocalActions, Until: fleet.HoldUntilNextVersion}, nil},
		{fleet.LocalControl{Allow: []string{"stop"}, Until: fleet.HoldUntilReleased}, nil},
		{fleet.LocalControl{Allow: []string{"stop", "reboot", "stop"}}, []string{"Allow[1]", "Allow[2]"}},
		{fleet.LocalControl{Until: "tomorrow"}, []string{"Until"}},
	} {
		job := fleet.Job{ID: "j", TaskGroups: []fleet.TaskGroup{{
			Name: "g", LocalControl: &tc.control, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}},
		}}}
		validate.FillDefaults(&job)
		var want, got []string
		for _, at := range tc.wrong {
			want = append(want, "TaskGroups[0].LocalControl."+at)
		}
		for _, p := range validate.Job(&job) {
			got = append(got, p.Path)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%+v: problems at %q, want %q", tc.control, got, want)
		}
	}
}
