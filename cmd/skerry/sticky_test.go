package main

import (
	"fmt"
	"net/http"
	"testing"
)

// TestStickyDiskForReal registers two versions of a job with a sticky disk. The task of the second finds the files
// of the first, which has ended before.
func TestStickyDiskForReal(t *testing.T) {
	t.Parallel()
	hubAddress := mustDev(t)
	register := func(version string) {
		t.Helper()
		script := `trap 'echo end >> "$NOMAD_ALLOC_DIR/data/log"; exit' TERM; echo ` + version + ` >> "$NOMAD_ALLOC_DIR/data/log"; echo ` + version +
			` >> local/log; cat "$NOMAD_ALLOC_DIR/data/log" local/log; while true; do sleep 0.1; done`
		mustAnswer(t, http.MethodPut, hubAddress+"/v1/jobs", fmt.Sprintf(`{"Job": {"ID": "shop", "Type": "service", "Datacenters": ["*"], "TaskGroups": [{"Name": "web",
			"EphemeralDisk": {"Sticky": true}, "Tasks": [{"Name": "run", "Driver": "raw_exec", "Config": {"command": "/bin/sh", "args": ["-c", %q]},
			"KillSignal": "SIGTERM", "KillTimeout": 30000000000, "Resources": {"CPU": 50, "MemoryMB": 50}}]}]}}`, script), nil)
	}
	output := func(jobVersion int, want string) func() string {
		return func() string {
			var allocs []struct {
				ID         string
				JobVersion int
			}
			mustAnswer(t, http.MethodGet, hubAddress+"/v1/job/shop/allocations", "", &allocs)
			for _, a := range allocs {
				if a.JobVersion != jobVersion {
					continue
				}
				got, err := getText(t, hubAddress+"/v1/client/fs/logs/"+a.ID+"?task=run&type=stdout&plain=true")
				if got == want {
					return ""
				}
				return fmt.Sprintf("%q, %v", got, err)
			}
			return fmt.Sprintf("%+v", allocs)
		}
	}
	register("one")
	eventually(t, "the first version has written its files", output(0, "one\none\n"))
	register("two")
	eventually(t, "the second version has found them", output(1, "one\nend\ntwo\none\ntwo\n"))
}
