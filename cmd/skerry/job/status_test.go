package job

import (
	"strings"
	"testing"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
)

// TestRetiredIsShownWithAll lists a job's allocations: --all alone shows retired ones.
func TestRetiredIsShownWithAll(t *testing.T) {
	failed := api.AllocStub{Name: "j.g[0]", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientFailed}
	retired := failed
	retired.Name, retired.Retired = "j.g[1]", true
	for _, all := range []bool{false, true} {
		var b strings.Builder
		writeAllocs(&console.Output{Writer: &b}, []api.AllocStub{failed, retired}, all)
		if got := b.String(); !strings.Contains(got, "j.g[0]") || strings.Contains(got, "j.g[1]") != all {
			t.Errorf("all %v: %s", all, got)
		}
	}
}

// TestFinishedJobsAreComplete lists jobs: a batch job all of whose allocations have completed is complete, and any other that
// does not run is dead.
func TestFinishedJobsAreComplete(t *testing.T) {
	counts := func(g fleet.TaskGroupSummary) *fleet.JobSummary {
		return &fleet.JobSummary{Summary: map[string]fleet.TaskGroupSummary{"g": g}}
	}
	for name, tc := range map[string]struct {
		job  api.JobStub
		want string
	}{
		"batch":    {api.JobStub{Type: fleet.JobTypeBatch, JobSummary: counts(fleet.TaskGroupSummary{Complete: 2})}, "complete"},
		"sysbatch": {api.JobStub{Type: fleet.JobTypeSysBatch, JobSummary: counts(fleet.TaskGroupSummary{Complete: 1})}, "complete"},
		"stopped":  {api.JobStub{Type: fleet.JobTypeBatch, Stop: true, JobSummary: counts(fleet.TaskGroupSummary{Complete: 2})}, "dead (stopped)"},
		"failed":   {api.JobStub{Type: fleet.JobTypeBatch, JobSummary: counts(fleet.TaskGroupSummary{Complete: 1, Failed: 1})}, "dead"},
		"nothing":  {api.JobStub{Type: fleet.JobTypeBatch, JobSummary: counts(fleet.TaskGroupSummary{})}, "dead"},
		"unknown":  {api.JobStub{Type: fleet.JobTypeBatch}, "dead"},
		"service":  {api.JobStub{Type: fleet.JobTypeService, JobSummary: counts(fleet.TaskGroupSummary{Complete: 2})}, "dead"},
	} {
		tc.job.Status = fleet.JobStatusDead
		if got := stubStatus(tc.job); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestLaunchesAreShown says of each allocation that a node launches what its last launch was.
func TestLaunchesAreShown(t *testing.T) {
	var b strings.Builder
	writeLaunches(&console.Output{Writer: &b}, []api.AllocStub{
		{ID: "0a", NodeName: "till-1", ClientStatus: fleet.ClientRunning, ClientDescription: "launched for 2026-07-01T22:00:00Z"},
		{ID: "0b", NodeName: "till-2", ClientStatus: fleet.ClientComplete, ClientDescription: "replaced"},
	})
	if got := b.String(); !strings.Contains(got, "on till-1: launched for 2026-07-01T22:00:00Z") || strings.Contains(got, "replaced") {
		t.Errorf("it says\n%s", got)
	}
}
