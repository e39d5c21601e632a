package scheduler_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/scheduler"
)

// A dry run tells apart what is placed, what finds no node, and what waits until the
// room that is made for it is free.
func TestDryRunTellsWhatWaits(t *testing.T) {
	big := func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU = 9000 }
	env := func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"v": "2"} }
	low := func(j *fleet.Job) { j.ID, j.Priority = "low", 20 }
	nowhere := func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{LTarget: "${attr.gpu}", Operand: fleet.OpIsSet}}
	}
	for _, tc := range []struct {
		name                 string
		there                *fleet.Job
		try                  *fleet.Job
		place, replace       int
		made, noNode, awaits int
		reason, never        string
	}{
		{"all placed", nil, job(2), 2, 0, 2, 0, 0, "place web.web[1]", "wait"},
		{"half of it", nil, job(2, big), 2, 0, 1, 1, 0, "wait web: no node for 1 of them", "makes room"},
		{"none of it", nil, job(2, nowhere), 2, 0, 0, 2, 0, "wait web: no node for 2 of them", "makes room"},
		{"in the room of what it replaces", job(1, big), job(1, big, env), 0, 1, 0, 0, 1, "wait web: 1 of them, until the allocations that make room have stopped", "no node"},
		{"one more beside that", job(1, big), job(2, big, env), 1, 1, 0, 1, 1, "wait web: no node for 1 of them", "2 of them"},
		{"in the room of what is evicted", job(1, big, low), job(1, big), 1, 0, 0, 0, 1, "wait web: 1 of them, until the allocations that make room have stopped", "no node"},
		{"a system job that suits none", nil, job(1, asSystemJob, nowhere), 0, 0, 0, 0, 0, "place nothing of web: no node suits it", "wait"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.PreemptionConfig.ServiceSchedulerEnabled = true })
			c.addReadyNodes(1)
			if tc.there != nil {
				if e := c.registerAndSchedule(tc.there); e.QueuedAllocations["web"] != 0 {
					t.Fatalf("it is not there: %+v", e.FailedTGAllocs["web"])
				}
			}
			out, err := scheduler.DryRun(c.store.View(), tc.try, c.now)
			if err != nil {
				t.Fatal(err)
			}
			g := out.Decisions.Groups["web"]
			if g.Place != tc.place || g.Destructive != tc.replace || len(out.Placements) != tc.made ||
				out.NoNode["web"] != tc.noNode || out.Promised["web"] != tc.awaits {
				t.Errorf("%d to place, %d to replace: %d placed, %d without a node, %d wait for room",
					g.Place, g.Destructive, len(out.Placements), out.NoNode["web"], out.Promised["web"])
			}
			reasons := strings.Join(out.Reasons, "\n")
			if !strings.Contains(reasons, tc.reason) || strings.Contains(reasons, tc.never) {
				t.Errorf("want %q and not %q:\n%s", tc.reason, tc.never, reasons)
			}
			m := out.Failed["web"]
			if failed := strings.Contains(tc.reason, "no node"); (m != nil) != failed || failed && m.CoalescedFailures != max(tc.noNode-1, 0) {
				t.Errorf("failed: %+v", m)
			}
		})
	}
}
