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
