//go:build planted

package scheduler_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/planted"
)

// TestPlantedBugsMisbehave has a version come that one on the way to the newest is placed
// of: what was away while two came gets the first of them.
func TestPlantedBugsMisbehave(t *testing.T) {
	got := func() uint64 {
		c := newCluster(t)
		c.addReadyNodes(1)
		version := func(env string) *fleet.Job {
			return job(1, asSystemJob, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": env} })
		}
		c.registerAndSchedule(version("0"))
		a := c.nonTerminalAllocs()[0]
		c.reportAllocStatus(a, fleet.ClientRunning)
		c.missNodeHeartbeat(a.NodeID)
		c.schedulePendingEvals()
		c.registerAndSchedule(version("1"))
		c.registerAndSchedule(version("2"))
		c.openNodeSession(node(0))
		c.reportAllocStatus(a, fleet.ClientRunning)
		c.schedulePendingEvals()
		for _, now := range c.webJobAllocs() {
			if now.PreviousAllocation == a.ID {
				return now.JobVersion
			}
		}
		t.Fatalf("nothing came of %+v", c.webJobAllocs())
		return 0
	}
	if v := got(); v != 2 {
		t.Fatalf("without the bug it is version %d that comes after 0", v)
	}
	defer planted.Plant(planted.OneByOne)()
	if v := got(); v != 1 {
		t.Fatalf("with the bug it is version %d that comes after 0", v)
	}
}

// TestPlantedBugsEndLives has bugs of which lives have to make something: each ends one of
// the first few hundred, and is called by what it does.
func TestPlantedBugsEndLives(t *testing.T) {
	for _, tc := range []struct {
		bug   planted.Bug
		finds string
	}{
		{planted.ReplaceTwice, "are to run"},
		{planted.NeverReady, "is unknown"},
		{planted.TakeDownAll, "max_parallel is"},
		{planted.OneCanaryMore, "canaries"},
		{planted.SitesForgotten, "max_unavailable_per_site is"},
		{planted.NeverComplete, "its deployment is running"},
		{planted.DeadlineOfDrainOff, "is being drained"},
	} {
		t.Run(string(tc.bug), func(t *testing.T) {
			defer planted.Plant(tc.bug)()
			for seed := uint64(1); seed <= 400; seed++ {
				if _, err := runTrace(generateTrace(seed), nil); err != nil {
					if !strings.Contains(err.Error(), tc.finds) {
						t.Errorf("life %d ends of something else: %v", seed, err)
					}
					return
				}
			}
			t.Error("400 lives have not come to harm")
		})
	}
}
