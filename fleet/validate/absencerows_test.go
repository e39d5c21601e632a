package validate_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/validate"
)

// TestDisconnectBlocks registers what a job may and may not say of its absence (A91,
// A92).
func TestDisconnectBlocks(t *testing.T) {
	const service, batch, system, sysbatch = fleet.JobTypeService, fleet.JobTypeBatch, fleet.JobTypeSystem, fleet.JobTypeSysBatch
	hour, nothing, negative := time.Hour, time.Duration(0), -time.Second
	for _, tc := range []struct {
		row     string
		jobType string
		block   fleet.Disconnect
		refused string // part of the problem; "": fine
	}{
		{"A91", service, fleet.Disconnect{StopOnClientAfter: &hour}, ""},
		{"A91", batch, fleet.Disconnect{StopOnClientAfter: &hour}, ""},
		{"A91", service, fleet.Disconnect{StopOnClientAfter: &negative}, "may not be negative"},
		{"A91", system, fleet.Disconnect{StopOnClientAfter: &hour}, "jobs of type system do not allow stop_on_client_after"},
		{"A91", sysbatch, fleet.Disconnect{StopOnClientAfter: &hour}, "jobs of type sysbatch do not allow stop_on_client_after"},
		{"A91", service, fleet.Disconnect{StopOnClientAfter: &hour, LostAfter: &hour}, "exclude each other"},
		{"A92", service, fleet.Disconnect{LostAfter: &negative}, "may not be negative"},
		{"A92", service, fleet.Disconnect{Reconcile: "newest"}, `unknown way to reconcile "newest"`},
		{"A92", service, fleet.Disconnect{LostAfter: &nothing}, ""},
		{"A92", service, fleet.Disconnect{}, ""},
		{"A92", service, fleet.Disconnect{LostAfter: &hour, Reconcile: fleet.ReconcileLongestRunning}, ""},
		{"A92", batch, fleet.Disconnect{LostAfter: &hour}, ""},
		{"A92", system, fleet.Disconnect{LostAfter: &hour}, ""},
	} {
		t.Run(fmt.Sprintf("%s %s %+v", tc.row, tc.jobType, tc.block), func(t *testing.T) {
			j := job()
			j.Type, j.TaskGroups = tc.jobType, j.TaskGroups[:1]
			g := &j.TaskGroups[0]
			g.ReschedulePolicy, g.RestartPolicy, g.Update, g.Migrate, g.Disconnect = nil, nil, nil, nil, &tc.block
			if fleet.RunsEverywhere(tc.jobType) {
				g.Count = 1
			}
			validate.FillDefaults(j)
			problems := validate.Job(j)
			if tc.refused == "" {
				if len(problems) > 0 {
					t.Errorf("refused: %v", problems.Lines())
				}
				return
			}
			if len(problems) != 1 || !strings.Contains(problems[0].Message, tc.refused) || !strings.HasPrefix(problems[0].Path, "TaskGroups[0].Disconnect.") {
				t.Errorf("%v, want one problem with the block: %s", problems.Lines(), tc.refused)
			}
		})
	}
}

// TestFormerWordsForAbsence reads what groups said of their node's absence before there was a
// disconnect block: the same as that.
func TestFormerWordsForAbsence(t *testing.T) {
	hour, no := time.Hour, false
	for _, tc := range []struct {
		group string
		want  *fleet.Disconnect
	}{
		{`{"MaxClientDisconnect": "1h"}`, &fleet.Disconnect{LostAfter: &hour}},
		{`{"StopAfterClientDisconnect": "1h"}`, &fleet.Disconnect{StopOnClientAfter: &hour}},
		{`{"MaxClientDisconnect": "1h", "PreventRescheduleOnLost": true}`, &fleet.Disconnect{LostAfter: &hour, Replace: &no}},
		{`{"PreventRescheduleOnLost": true}`, &fleet.Disconnect{Replace: &no}},
		{`{"PreventRescheduleOnLost": false}`, nil},
		{`{"MaxClientDisconnect": "1h", "Disconnect": {"StopOnClientAfter": "1h"}}`, &fleet.Disconnect{StopOnClientAfter: &hour}},
	} {
		j, problems := validate.DecodeJob([]byte(`{"TaskGroups": [` + tc.group + `]}`))
		if len(problems) > 0 || !reflect.DeepEqual(j.TaskGroups[0].Disconnect, tc.want) {
			t.Errorf("%s: %+v, %v; want %+v", tc.group, j.TaskGroups[0].Disconnect, problems.Lines(), tc.want)
		}
	}
}
