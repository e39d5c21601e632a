//go:build planted

package reconcile_test

import (
	"strings"
	"testing"

	"skerry/planted"
)

// Each planted bug does what it is there for: a line of a scenario's output comes
// more often than it should.
func TestPlantedBugsMisbehave(t *testing.T) {
	for _, c := range []struct {
		bug      planted.Bug
		scenario string
		line     string
		sound    int // how often it should come
	}{
		{planted.ReplaceTwice, `
case replaced while out of sight
job count=1 lost_after=5m replace=true reschedule=unlimited/10m/0s
node n0 ready
node n1 disconnected
alloc a0 0 n1 unknown
decide
advance 1m
decide`, "place job.web[0] after a0", 1},
		{planted.SettleTwice, `
case back
job count=1
node n1 ready
alloc a0 0 n1 running states=unknown@-1m
decide
decide`, "reconnect job.web[0] a0", 1},
		{planted.TombstoneForgotten, `
case purged
job count=1
node n1 ready
alloc a0 0 n1 running
purge
decide
show`, "a0   job.web[0] n1 v0 run/running", 0},
		{planted.TakeDownAll, `
case a new version
job count=4 max_parallel=2
node n0 ready
alloc a0..3 0 n0 running
job env=1
decide`, "stop job.web[", 2},
		{planted.SitesForgotten, `
case a new version at two sites
job count=4 max_parallel=4 per_site=1
node n0 ready dc=north
node n1 ready dc=south
alloc a0..1 0 n0 running
alloc a2..3 2 n1 running
job env=1
decide`, "stop job.web[", 2},
		{planted.OneCanaryMore, `
case a new version with a canary
job count=3 max_parallel=2 canary=1
node n0 ready
alloc a0..2 0 n0 running
job env=1
decide`, "canary of version 1", 1},
		{planted.AbsentIsHealthy, `
case one is away
job count=2 max_parallel=2 wait_for=all
node n0 ready
node n1 disconnected
alloc a0 0 n0 running
alloc a1 1 n1 unknown
job env=1
decide
healthy p01
decide`, "is successful", 0},
	} {
		t.Run(string(c.bug), func(t *testing.T) {
			s := &script{cluster: newSimCluster()}
			if got := s.runScriptLines(t, c.scenario); strings.Count(got, c.line) != c.sound {
				t.Fatalf("without the bug:\n%s", got)
			}
			defer planted.Plant(c.bug)()
			if got := s.runScriptLines(t, c.scenario); strings.Count(got, c.line) <= c.sound {
				t.Fatalf("with the bug:\n%s", got)
			}
		})
	}
}

// A deployment that has got where it should is over, or with the bug is not.
func TestPlantedNeverCompletes(t *testing.T) {
	const scenario = `
case a new version
job count=1 max_parallel=1
node n0 ready
alloc a0 0 n0 running
job env=1
decide
healthy p01
decide`
	over := func() bool {
		return strings.Contains((&script{cluster: newSimCluster()}).runScriptLines(t, scenario), "is successful")
	}
	if !over() {
		t.Fatal("without the bug the deployment goes on")
	}
	defer planted.Plant(planted.NeverComplete)()
	if over() {
		t.Fatal("with the bug the deployment ends")
	}
}
