package scheduler_test

import (
	"slices"
	"testing"

	"skerry/fleet"
)

// The room of what was evicted is kept for what it was evicted for, also when it is free
// by now and a worker looks at a less important job first; and what is left of it is not
// forgotten.
func TestRoomThatIsMadeIsKept(t *testing.T) {
	begin := func(t *testing.T) (c *cluster, asks, waits fleet.EvalID) {
		c = newCluster(t)
		c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.PreemptionConfig.ServiceSchedulerEnabled = true })
		c.addReadyNodes(1, func(n *fleet.Node) { n.Resources = fleet.Resources{CPU: 1000, MemoryMB: 2048, DiskMB: 10000} })
		c.registerAndSchedule(job(1, existingJob{id: "there", priority: 30, cpu: 900, mem: 100}.applyToJob))
		evicted := slices.Collect(c.store.View().Allocs("*", ""))[0]
		c.reportAllocStatus(evicted, fleet.ClientRunning)
		asks = c.registerAndSchedule(job(1, existingJob{id: "asks", priority: 90, cpu: 600, mem: 100}.applyToJob)).BlockedEval
		waits = c.registerAndSchedule(job(1, existingJob{id: "small", priority: 85, cpu: 400, mem: 100}.applyToJob)).BlockedEval
		if e := c.mustEval(asks); len(e.AwaitedNodes) != 1 || e.AwaitedNodes[0] != evicted.NodeID {
			t.Fatalf("room is being made at %v", e.AwaitedNodes)
		}
		c.reportAllocStatus(evicted, fleet.ClientComplete)
		e := c.scheduleEval(waits) // the first
		if e.Status != fleet.EvalBlocked || e.FailedTGAllocs["web"].DimensionExhausted[reservedForHigherPriority] != 1 {
			t.Fatalf("the less important one is %s: %+v", e.Status, e.FailedTGAllocs["web"])
		}
		return c, asks, waits
	}
	wakes := func(c *cluster, id fleet.EvalID) bool {
		return hasNewCapacity(c.store.View(), c.mustEval(id))
	}
	t.Run("then it is taken, and the rest is free", func(t *testing.T) {
		c, asks, waits := begin(t)
		if e := c.scheduleEval(asks); e.Status != fleet.EvalComplete || len(e.AwaitedNodes) != 0 {
			t.Fatalf("%+v", e)
		}
		if !wakes(c, waits) {
			t.Fatal("the less important one is not told that there is room left")
		}
		if e := c.scheduleEval(waits); e.Status != fleet.EvalComplete {
			t.Errorf("the less important one is %s: %+v", e.Status, e.FailedTGAllocs["web"])
		}
	})
	t.Run("then nobody wants it", func(t *testing.T) {
		c, _, waits := begin(t)
		c.stopJobAndSchedule("asks")
		if !wakes(c, waits) {
			t.Fatal("the less important one is not told that there is room")
		}
		if e := c.scheduleEval(waits); e.Status != fleet.EvalComplete {
			t.Errorf("the less important one is %s: %+v", e.Status, e.FailedTGAllocs["web"])
		}
	})
	t.Run("from as important ones it is not kept", func(t *testing.T) {
		c, _, _ := begin(t)
		if e := c.registerAndSchedule(job(1, existingJob{id: "peer", priority: 90, cpu: 400, mem: 100}.applyToJob)); e.QueuedAllocations["web"] != 0 {
			t.Errorf("%+v", e.FailedTGAllocs["web"])
		}
	})
}

// What a rollout stops to make room for the newer version leaves its room to no less
// important job.
func TestRoomOfAReplacementIsKept(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1, func(n *fleet.Node) { n.Resources = fleet.Resources{CPU: 1000, MemoryMB: 2048, DiskMB: 10000} })
	c.registerAndSchedule(job(1, existingJob{id: "web", priority: 50, cpu: 600, mem: 100}.applyToJob))
	old := c.nonTerminalAllocs()[0]
	c.reportAllocStatus(old, fleet.ClientRunning)
	waits := c.registerAndSchedule(job(1, existingJob{id: "small", priority: 40, cpu: 500, mem: 100}.applyToJob)).BlockedEval
	next := c.registerAndSchedule(job(1, existingJob{id: "web", priority: 50, cpu: 700, mem: 100}.applyToJob))
	if got, _ := c.store.View().Alloc(old.ID); got.DesiredStatus != fleet.DesiredStop {
		t.Fatalf("it is to %s", got.DesiredStatus)
	}
	c.reportAllocStatus(old, fleet.ClientComplete)
	if e := c.scheduleEval(waits); e.Status != fleet.EvalBlocked {
		t.Errorf("the less important one is %s", e.Status)
	}
	if e := c.scheduleEval(next.BlockedEval); e.Status != fleet.EvalComplete || len(c.nonTerminalAllocs()) != 1 {
		t.Errorf("%+v", e)
	}
}

// A port that an older version of the job holds is no failure: the evaluation counts the
// placements that wait until that version has stopped, also when it is evaluated again before.
func TestRoomThatStopsIsNoFailure(t *testing.T) {
	static := func(count int, version string, change ...func(*fleet.Job)) *fleet.Job {
		return job(count, append(change, func(j *fleet.Job) {
			j.TaskGroups[0].Networks = []fleet.NetworkResource{{ReservedPorts: []fleet.Port{{Label: "web", Value: 80}}}}
			task(j).Env = map[string]string{"version": version}
		})...)
	}
	for name, tc := range map[string]struct {
		change          func(*fleet.Job)
		count           int // of the newer version
		waits, failures int
	}{
		"a service":           {func(*fleet.Job) {}, 2, 2, 0},
		"one more than nodes": {func(*fleet.Job) {}, 3, 2, 1},
		"a system job":        {func(j *fleet.Job) { j.Type, j.TaskGroups[0].ReschedulePolicy = fleet.JobTypeSystem, nil }, 1, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.addReadyNodes(2)
			c.registerAndSchedule(static(min(tc.count, 2), "1", tc.change))
			old := c.nonTerminalAllocs()
			for _, a := range old {
				c.reportAllocStatus(a, fleet.ClientRunning)
			}
			check := func(e *fleet.Evaluation) {
				t.Helper()
				failed := 0
				if m := e.FailedTGAllocs["web"]; m != nil {
					failed = m.CoalescedFailures + 1
				}
				if e.AwaitsRoom["web"] != tc.waits || failed != tc.failures || e.QueuedAllocations["web"] != tc.waits+tc.failures {
					t.Errorf("%s: %d wait, %d failed, queued %v", e.Status, e.AwaitsRoom["web"], failed, e.QueuedAllocations)
				}
				if why := "waits until the allocations that make room have stopped"; e.Status == fleet.EvalBlocked && (e.StatusDescription == why) != (tc.failures == 0) {
					t.Errorf("it %s", e.StatusDescription)
				}
			}
			e := c.registerAndSchedule(static(tc.count, "2", tc.change))
			check(e)
			check(c.mustEval(e.BlockedEval))
			again := c.registerAndSchedule(static(tc.count, "2", tc.change))
			check(again)
			if again.BlockedEval != e.BlockedEval {
				t.Errorf("two evaluations wait")
			}
			check(c.scheduleEval(e.BlockedEval))
			for _, a := range old {
				c.reportAllocStatus(a, fleet.ClientComplete)
			}
			if e := c.scheduleEval(e.BlockedEval); len(c.nonTerminalAllocs()) != 2 || len(e.AwaitsRoom) != 0 {
				t.Errorf("%d placed, %v wait", len(c.nonTerminalAllocs()), e.AwaitsRoom)
			}
			if e := c.registerAndSchedule(static(1, "1", func(j *fleet.Job) { j.ID = "other" })); len(e.AwaitsRoom) != 0 || len(e.FailedTGAllocs) != 1 {
				t.Errorf("of another job %v wait, %v failed", e.AwaitsRoom, e.FailedTGAllocs)
			}
		})
	}
}
