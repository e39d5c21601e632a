//go:build planted

package planner_test

import (
	"testing"

	"skerry/planted"
)

func TestPlantedOverCommit(t *testing.T) {
	tooMuch := func() bool {
		c := newCluster(t)
		n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
		c.startPlanner()
		first, second := c.newPendingAlloc(j, n, 700), c.newPendingAlloc(j, n, 700)
		c.mustSubmitPlan(c.planOfPlacements(j, first))
		c.mustSubmitPlan(c.planOfPlacements(j, second))
		return c.allocExists(first) && c.allocExists(second)
	}
	if tooMuch() {
		t.Fatal("without the bug the node took both")
	}
	defer planted.Plant(planted.OverCommit)()
	if !tooMuch() {
		t.Fatal("with the bug the node did not take both")
	}
}
