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
