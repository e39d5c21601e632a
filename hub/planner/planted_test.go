//go:build planted

package planner_test

import (
	"testing"

	"skerry/planted"
)

func TestPlantedOverCommit(t *testing.T) {
	tooMuch := func() bool {
		c := newCluster(t)
		n, j := c.node("n1", 1000), c.job("shop")
		c.lead()
		first, second := c.alloc(j, n, 700), c.alloc(j, n, 700)
		c.submit(c.placing(j, first))
		c.submit(c.placing(j, second))
		return c.exists(first) && c.exists(second)
	}
	if tooMuch() {
		t.Fatal("without the bug the node took both")
	}
	defer planted.Plant(planted.OverCommit)()
	if !tooMuch() {
		t.Fatal("with the bug the node did not take both")
	}
}
