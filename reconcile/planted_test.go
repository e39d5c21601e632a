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
	} {
		t.Run(string(c.bug), func(t *testing.T) {
			s := &script{w: newWorld()}
			if got := s.run(t, c.scenario); strings.Count(got, c.line) != c.sound {
				t.Fatalf("without the bug:\n%s", got)
			}
			defer planted.Plant(c.bug)()
			if got := s.run(t, c.scenario); strings.Count(got, c.line) <= c.sound {
				t.Fatalf("with the bug:\n%s", got)
			}
		})
	}
}
