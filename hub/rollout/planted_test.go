//go:build planted

package rollout_test

import (
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/planted"
)

// Each planted bug has the watcher do what it must not.
func TestPlantedBugsMisbehave(t *testing.T) {
	for _, c := range []struct {
		bug planted.Bug
		do  func(c *cluster) (harm bool)
	}{
		{planted.PromoteUnasked, func(c *cluster) bool {
			d := c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) { s.DesiredCanaries = 1 })
			c.markHealthy(d, c.placeAlloc(d, true))
			c.waitForWatcher()
			return c.mustDeployment(d).TaskGroups["web"].Promoted
		}},
		{planted.AbsentIsFailed, func(c *cluster) bool {
			const other = fleet.NodeID("00000000-0000-4000-8000-000000000002")
			c.mustCommit(state.NodeRegister{Node: fleet.Node{ID: other, Name: "m", Datacenter: "dc1", NodePool: "default"}, Now: c.nowNano()})
			c.mustCommit(state.SessionOpen{NodeID: other, Session: 1, Instance: "i", BootID: "b", Hub: "h", EvalSeed: "s", Now: c.nowNano()})
			d := c.registerWithDeployment("shop", "1", deadline(time.Minute))
			c.disconnectNode(c.placeAlloc(d, false))
			time.Sleep(time.Hour)
			synctest.Wait()
			return c.mustDeployment(d).Status == fleet.DeploymentFailed
		}},
	} {
		t.Run(string(c.bug), func(t *testing.T) {
			play := func() (harm bool) {
				synctest.Test(t, func(t *testing.T) {
					cl := newCluster(t)
					cl.startWatcher()
					harm = c.do(cl)
				})
				return harm
			}
			if play() {
				t.Fatal("harm is done without the bug")
			}
			defer planted.Plant(c.bug)()
			if !play() {
				t.Fatal("no harm is done with the bug")
			}
		})
	}
}
