package main

import (
	"testing"

	"skerry/fleet"
	"skerry/hub/api"
)

// TestWhatHasEndedIsComplete is the last line of job run and job dispatch: what has ended as
// it should does not run.
func TestWhatHasEndedIsComplete(t *testing.T) {
	alloc := func(status string) api.AllocStub {
		return api.AllocStub{DesiredStatus: fleet.DesiredRun, ClientStatus: status}
	}
	for _, tc := range []struct {
		kind   string
		allocs []api.AllocStub
		want   string
	}{
		{fleet.JobTypeBatch, []api.AllocStub{alloc(fleet.ClientComplete), alloc(fleet.ClientComplete)}, `Job "j" is complete, version 3.`},
		{fleet.JobTypeSysBatch, []api.AllocStub{alloc(fleet.ClientComplete)}, `Job "j" is complete, version 3.`},
		{fleet.JobTypeBatch, []api.AllocStub{alloc(fleet.ClientComplete), alloc(fleet.ClientRunning)}, `Job "j" runs, version 3.`},
		{fleet.JobTypeService, []api.AllocStub{alloc(fleet.ClientRunning)}, `Job "j" runs, version 3.`},
	} {
		f := &followed{job: &fleet.Job{ID: "j", Type: tc.kind, Version: 3}, allocs: tc.allocs}
		if got := f.summary(); got != tc.want {
			t.Errorf("%s: %s", tc.kind, got)
		}
	}
}
