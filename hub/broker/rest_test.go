package broker_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/broker"
)

// back is an evaluation that a node's return asks for.
func back(id string) fleet.Evaluation {
	e := eval("default", "shop", id)
	e.TriggeredBy = fleet.TriggerReconnect
	return e
}

// What nodes ask for that come back one after the other is looked at together, the
// later the longer each look takes.
func TestReconnectsRestBetweenLooks(t *testing.T) {
	for _, tc := range []struct{ took, rest time.Duration }{
		{time.Millisecond, 8 * time.Millisecond}, {100 * time.Millisecond, 800 * time.Millisecond}, {time.Minute / 2, 2 * time.Second},
	} {
		run(t, broker.Config{}, func(c *cluster) {
			c.add(back("e1"))
			first := c.wantNext("e1")
			c.add(back("e2"))
			sleep(tc.took)
			c.finish(first)
			c.wantStats(broker.Stats{Pending: 1})
			sleep(tc.rest/2 - time.Millisecond)
			c.add(back("e3"))
			c.wantStats(broker.Stats{Pending: 2})
			sleep(tc.rest/2 + time.Millisecond)
			c.wantStats(broker.Stats{Ready: 1})
			c.wantStatus(fleet.EvalCanceled, "e2")
			c.finish(c.wantNext("e3"))
			c.wantStats(broker.Stats{})
			c.add(back("e4")) // nothing has been looked at just now that it could wait for
			c.wantNext("e4")
		})
	}
}

// What somebody asked for ends a rest, and begins none.
func TestOthersDoNotRest(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		c.add(back("e1"))
		first := c.wantNext("e1")
		sleep(100 * time.Millisecond)
		c.add(back("e2"))
		c.finish(first)
		c.add(eval("default", "shop", "asked"))
		second := c.wantNext("asked")
		c.wantStatus(fleet.EvalCanceled, "e2")
		sleep(100 * time.Millisecond)
		c.add(eval("default", "shop", "again"), back("e3"))
		c.finish(second)
		c.wantNext("e3")
		c.wantStatus(fleet.EvalCanceled, "again")
	})
}
