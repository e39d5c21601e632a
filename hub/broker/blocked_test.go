package broker_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/broker"
	"skerry/hub/state"
)

// waiting makes an evaluation that waits for capacity, as of now.
func (c *cluster) waiting(job fleet.JobID, id string, eligible map[string]bool) fleet.Evaluation {
	e := eval("default", job, id)
	e.Status, e.TriggeredBy = fleet.EvalBlocked, fleet.TriggerQueuedAllocs
	e.ClassEligibility, e.SnapshotIndex = eligible, c.index
	return e
}

// E31: capacity of an eligible or unseen class unblocks, of an ineligible one not.
func TestUnblockByClass(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		good, bad := c.node("good", "dc1"), c.node("bad", "dc2")
		seen := map[string]bool{good: true, bad: false}
		c.add(c.waiting("shop", "e1", seen))
		c.wantStats(broker.Stats{Blocked: 1})
		c.more("bad")
		c.nothing()
		c.more("good")
		d := c.wantNext("e1")
		if d.Eval.Status != fleet.EvalBlocked || d.WaitIndex != c.index {
			t.Fatalf("delivered %s, wait for %d of %d", d.Eval.Status, d.WaitIndex, c.index)
		}
		c.finish(d)

		c.add(c.waiting("shop", "e2", seen))
		c.node("new", "dc3")
		c.finish(c.wantNext("e2"))
		c.wantStats(broker.Stats{})
	})
}

// E32: where classes do not tell, any capacity may do.
func TestUnblockEscaped(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		bad := c.node("bad", "dc2")
		e := c.waiting("shop", "e1", map[string]bool{bad: false})
		e.EscapedClass = true
		c.add(e)
		c.wantStats(broker.Stats{Blocked: 1, Escaped: 1})
		c.more("bad")
		c.wantNext("e1")
	})
}

// E34: capacity that came between the scheduler's picture and blocking counts;
// what the scheduler had seen does not.
func TestMissedUnblock(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		good, bad := c.node("good", "dc1"), c.node("bad", "dc2")
		seen := map[string]bool{good: true, bad: false}
		before := c.waiting("shop", "e1", seen)
		c.more("bad")
		c.add(before)
		c.wantStats(broker.Stats{Blocked: 1})
		other := c.waiting("till", "e2", seen)
		c.more("good")
		c.add(other)
		c.finish(c.wantNext("e1"))
		c.finish(c.wantNext("e2"))

		unseen := c.waiting("shop", "e3", seen)
		c.node("new", "dc3")
		c.add(unseen)
		c.finish(c.wantNext("e3"))
		// The same checks hold for a leader that was not there at the time.
		missed := c.waiting("shop", "e4", seen)
		c.stop()
		c.add(missed)
		c.more("good")
		c.add(c.waiting("till", "e5", seen))
		c.lead()
		c.wantNext("e4")
		c.nothing()
	})
}

// E35: one that lost all races goes on with any capacity, and without any after a
// while.
func TestUnblockMaxPlanAttempts(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		bad := c.node("bad", "dc2")
		e := c.waiting("shop", "e1", map[string]bool{bad: false})
		e.TriggeredBy = fleet.TriggerMaxPlanAttempts
		c.add(e)
		c.more("bad")
		c.finish(c.wantNext("e1"))
		f := c.waiting("shop", "e2", map[string]bool{bad: false})
		f.TriggeredBy = fleet.TriggerMaxPlanAttempts
		c.add(f)
		sleep(4 * time.Second)
		c.nothing()
		sleep(time.Second)
		c.wantNext("e2")
	})
}

// E37, B8: still no room: it waits again after its ack, neither lost nor twice.
func TestReblock(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		good := c.node("good", "dc1")
		c.add(c.waiting("shop", "e1", map[string]bool{good: true}))
		for range 5 {
			c.more("good")
			d := c.wantNext("e1")
			c.more("good") // seen by the worker
			again := *d.Eval
			again.SnapshotIndex = c.index
			c.add(again)
			c.ack(d)
			c.wantStats(broker.Stats{Blocked: 1})
			c.nothing()
		}
		// Capacity that the worker did not see unblocks at once.
		c.more("good")
		d := c.wantNext("e1")
		again := *d.Eval
		again.SnapshotIndex = c.index
		c.more("good")
		c.add(again)
		c.ack(d)
		c.wantNext("e1")
	})
}

// E26: a job waits once: the newest evaluation stays, older ones are canceled.
func TestBlockedOncePerJob(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		good := c.node("good", "dc1")
		seen := map[string]bool{good: true}
		c.add(c.waiting("shop", "e1", seen), c.waiting("till", "t1", seen), c.waiting("shop", "e2", seen))
		c.wantStatus(fleet.EvalCanceled, "e1")
		c.wantStats(broker.Stats{Blocked: 2})
		// A complete evaluation that placed all ends it (the state does).
		c.add(eval("default", "shop", "e3"))
		c.finish(c.wantNext("e3"))
		c.wantStatus(fleet.EvalCanceled, "e2")
		c.wantStats(broker.Stats{Blocked: 1})
	})
}

// A job that waits is still looked at for other reasons, one at a time.
func TestBlockedAndPending(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		good := c.node("good", "dc1")
		c.add(c.waiting("shop", "e1", map[string]bool{good: true}), eval("default", "shop", "e2"))
		d := c.wantNext("e2")
		c.more("good")
		c.nothing() // unblocked, and behind e2
		c.wantStats(broker.Stats{Outstanding: 1, Pending: 1})
		e := *d.Eval
		e.Status = fleet.EvalComplete
		e.FailedTGAllocs = map[string]*fleet.AllocMetric{"web": {}}
		c.must(state.Evals{Evals: []fleet.Evaluation{e}})
		c.ack(d)
		c.wantNext("e1")
	})
}

// Without an index to go by, it blocks as of its own entry and not for ever anew.
func TestBlockedWithoutSnapshotIndex(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		good := c.node("good", "dc1")
		e := c.waiting("shop", "e1", map[string]bool{good: true})
		e.SnapshotIndex = 0
		c.add(e)
		c.wantStats(broker.Stats{Blocked: 1})
		c.more("good")
		c.wantNext("e1")
	})
}

// E38: a device that was added to a node, and nothing else of it, unblocks.
func TestUnblockByDevice(t *testing.T) {
	run(t, broker.Config{}, func(c *cluster) {
		class := c.node("n1", "dc1")
		e := c.waiting("shop", "e1", map[string]bool{class: false})
		e.EscapedClass = true // as the scheduler has it where devices are asked for
		c.add(e)
		c.wantStats(broker.Stats{Blocked: 1, Escaped: 1})
		n, _ := c.View().Node(fleet.NodeID(fleet.DeriveUUID("node", "n1")))
		said := *n
		said.Devices = []fleet.Device{{Kind: "gpu", Vendor: "acme", Type: "gpu", Name: "fast", ID: "g1"}}
		c.must(state.NodeRegister{Node: said, Now: 1})
		c.finish(c.wantNext("e1"))
	})
}
