package progress

import (
	"testing"
	"time"

	"skerry/api"
	"skerry/fleet"
)

// TestOutlook checks the sentence that says how a deployment will go on.
func TestOutlook(t *testing.T) {
	deadline, version := time.Date(2026, 5, 1, 2, 20, 0, 0, time.Local), uint64(3)
	begun := fleet.DeploymentState{ProgressDeadline: 10 * time.Minute, RequireProgressBy: deadline}
	for _, tc := range []struct {
		status  string
		group   fleet.DeploymentState
		outlook *fleet.DeploymentOutlook
		want    string
		hint    string
	}{
		{"running", begun, &fleet.DeploymentOutlook{Deadline: &deadline, RevertsTo: &version},
			"will fail at 2026-05-01 02:20:00 and revert to version 3 unless another allocation becomes healthy before", ""},
		{"running", begun, &fleet.DeploymentOutlook{Deadline: &deadline, Description: fleet.DescProgressDeadline},
			"will fail at 2026-05-01 02:20:00 unless another allocation becomes healthy before", ""},
		{"running", begun, &fleet.DeploymentOutlook{Deadline: &deadline, Description: fleet.DescNoRollback(fleet.DescProgressDeadline)},
			"will fail at 2026-05-01 02:20:00 and not revert (no stable job version to auto revert to) unless another allocation becomes healthy before", ""},
		{"running", begun, &fleet.DeploymentOutlook{Deferred: true},
			"is past its progress deadline, which does not run: all that is left is on nodes that are away, or waits for a window of updates", ""},
		{"running", fleet.DeploymentState{DesiredCanaries: 1, ProgressDeadline: time.Minute, RequireProgressBy: deadline}, &fleet.DeploymentOutlook{},
			"waits for its promotion: no deadline runs", "skerry deployment promote abcdef01"},
		{"running", fleet.DeploymentState{}, &fleet.DeploymentOutlook{RevertsTo: &version},
			"has no progress deadline: it will fail and revert to version 3 as soon as an allocation is unhealthy", ""},
		{"running", fleet.DeploymentState{ProgressDeadline: time.Minute}, &fleet.DeploymentOutlook{},
			"has a progress deadline that begins with its first allocation", ""},
		{"running", begun, &fleet.DeploymentOutlook{}, "", ""}, // all of it is done
		{"paused", begun, nil, "is paused: no deadline runs", "skerry deployment resume abcdef01"},
		{"failed", begun, nil, "", ""},
	} {
		p := api.Progress{
			Deployment: &fleet.Deployment{ID: "abcdef01-2", Status: tc.status, TaskGroups: map[string]fleet.DeploymentState{"web": tc.group}},
			Groups:     map[string]map[string]api.SiteProgress{"web": {"": {Healthy: 1}}}, Outlook: tc.outlook,
		}
		if got := OutlookSentence(p); got != tc.want {
			t.Errorf("%s %+v: it %s, want %s", tc.status, tc.group, got, tc.want)
		}
		if got := Hint(p); got != tc.hint {
			t.Errorf("%s %+v: hint %q, want %q", tc.status, tc.group, got, tc.hint)
		}
	}
}
