package broker_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/broker"
	"skerry/hub/state"
)

// newBlockedEval makes an evaluation that waits for capacity, as of now.
func (c *cluster) newBlockedEval(job fleet.JobID, id string, eligible map[string]bool) fleet.Evaluation {
	e := eval("default", job, id)
	e.Status, e.TriggeredBy = fleet.EvalBlocked, fleet.TriggerQueuedAllocs
	e.ClassEligibility, e.SnapshotIndex = eligible, c.index
	return e
}

// E31: capacity of an eligible or unseen class unblocks, of an ineligible one not.
func TestUnblockByClass(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		good, bad := c.openFirstSession("good", "dc1"), c.openFirstSession("bad", "dc2")
		seen := map[string]bool{good: true, bad: false}
		c.addEvals(c.newBlockedEval("shop", "e1", seen))
		c.wantStats(broker.Stats{Blocked: 1})
		c.addNodeCapacity("bad")
		c.wantNothingReady()
		c.addNodeCapacity("good")
		d := c.wantNext("e1")
		if d.Eval.Status != fleet.EvalBlocked || d.WaitIndex != c.index {
			t.Fatalf("delivered %s, wait for %d of %d", d.Eval.Status, d.WaitIndex, c.index)
		}
		c.completeAndAck(d)

		c.addEvals(c.newBlockedEval("shop", "e2", seen))
		c.openFirstSession("new", "dc3")
		c.completeAndAck(c.wantNext("e2"))
		c.wantStats(broker.Stats{})
	})
}

// E32: where classes do not tell, any capacity may do.
func TestUnblockEscaped(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		bad := c.openFirstSession("bad", "dc2")
		e := c.newBlockedEval("shop", "e1", map[string]bool{bad: false})
		e.EscapedClass = true
		c.addEvals(e)
		c.wantStats(broker.Stats{Blocked: 1, Escaped: 1})
		c.addNodeCapacity("bad")
		c.wantNext("e1")
	})
}

// E34: capacity that came between the scheduler's picture and blocking counts;
// what the scheduler had seen does not.
func TestMissedUnblock(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		good, bad := c.openFirstSession("good", "dc1"), c.openFirstSession("bad", "dc2")
		seen := map[string]bool{good: true, bad: false}
		before := c.newBlockedEval("shop", "e1", seen)
		c.addNodeCapacity("bad")
		c.addEvals(before)
		c.wantStats(broker.Stats{Blocked: 1})
		other := c.newBlockedEval("till", "e2", seen)
		c.addNodeCapacity("good")
		c.addEvals(other)
		c.completeAndAck(c.wantNext("e1"))
		c.completeAndAck(c.wantNext("e2"))

		unseen := c.newBlockedEval("shop", "e3", seen)
		c.openFirstSession("new", "dc3")
		c.addEvals(unseen)
		c.completeAndAck(c.wantNext("e3"))
		// The same checks hold for a leader that was not there at the time.
		missed := c.newBlockedEval("shop", "e4", seen)
		c.stop()
		c.addEvals(missed)
		c.addNodeCapacity("good")
		c.addEvals(c.newBlockedEval("till", "e5", seen))
		c.startBroker()
		c.wantNext("e4")
		c.wantNothingReady()
	})
}

// E35: one that lost all races goes on with any capacity, and without any after a
// while.
func TestUnblockMaxPlanAttempts(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		bad := c.openFirstSession("bad", "dc2")
		e := c.newBlockedEval("shop", "e1", map[string]bool{bad: false})
		e.TriggeredBy = fleet.TriggerMaxPlanAttempts
		c.addEvals(e)
		c.addNodeCapacity("bad")
		c.completeAndAck(c.wantNext("e1"))
		f := c.newBlockedEval("shop", "e2", map[string]bool{bad: false})
		f.TriggeredBy = fleet.TriggerMaxPlanAttempts
		c.addEvals(f)
		sleep(4 * time.Second)
		c.wantNothingReady()
		sleep(time.Second)
		c.wantNext("e2")
	})
}

// E37, B8: still no room: it waits again after its ack, neither lost nor twice.
func TestReblock(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		good := c.openFirstSession("good", "dc1")
		c.addEvals(c.newBlockedEval("shop", "e1", map[string]bool{good: true}))
		for range 5 {
			c.addNodeCapacity("good")
			d := c.wantNext("e1")
			c.addNodeCapacity("good") // seen by the worker
			again := *d.Eval
			again.SnapshotIndex = c.index
			c.addEvals(again)
			c.mustAck(d)
			c.wantStats(broker.Stats{Blocked: 1})
			c.wantNothingReady()
		}
		// Capacity that the worker did not see unblocks at once.
		c.addNodeCapacity("good")
		d := c.wantNext("e1")
		again := *d.Eval
		again.SnapshotIndex = c.index
		c.addNodeCapacity("good")
		c.addEvals(again)
		c.mustAck(d)
		c.wantNext("e1")
	})
}

// E26: a job waits once: the newest evaluation stays, older ones are canceled.
func TestBlockedOncePerJob(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		good := c.openFirstSession("good", "dc1")
		seen := map[string]bool{good: true}
		c.addEvals(c.newBlockedEval("shop", "e1", seen), c.newBlockedEval("till", "t1", seen), c.newBlockedEval("shop", "e2", seen))
		c.wantStatus(fleet.EvalCanceled, "e1")
		c.wantStats(broker.Stats{Blocked: 2})
		// A complete evaluation that placed all ends it (the state does).
		c.addEvals(eval("default", "shop", "e3"))
		c.completeAndAck(c.wantNext("e3"))
		c.wantStatus(fleet.EvalCanceled, "e2")
		c.wantStats(broker.Stats{Blocked: 1})
	})
}

// A job that waits is still looked at for other reasons, one at a time.
func TestBlockedAndPending(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		good := c.openFirstSession("good", "dc1")
		c.addEvals(c.newBlockedEval("shop", "e1", map[string]bool{good: true}), eval("default", "shop", "e2"))
		d := c.wantNext("e2")
		c.addNodeCapacity("good")
		c.wantNothingReady() // unblocked, and behind e2
		c.wantStats(broker.Stats{Outstanding: 1, Pending: 1})
		e := *d.Eval
		e.Status = fleet.EvalComplete
		e.FailedTGAllocs = map[string]*fleet.AllocMetric{"web": {}}
		c.mustCommitEntry(state.Evals{Evals: []fleet.Evaluation{e}})
		c.mustAck(d)
		c.wantNext("e1")
	})
}

// Without an index to go by, it blocks as of its own entry and not for ever anew.
func TestBlockedWithoutSnapshotIndex(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		good := c.openFirstSession("good", "dc1")
		e := c.newBlockedEval("shop", "e1", map[string]bool{good: true})
		e.SnapshotIndex = 0
		c.addEvals(e)
		c.wantStats(broker.Stats{Blocked: 1})
		c.addNodeCapacity("good")
		c.wantNext("e1")
	})
}

// E38: a device that was added to a node, and nothing else of it, unblocks.
func TestUnblockByDevice(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		class := c.openFirstSession("n1", "dc1")
		e := c.newBlockedEval("shop", "e1", map[string]bool{class: false})
		e.EscapedClass = true // as the scheduler has it where devices are asked for
		c.addEvals(e)
		c.wantStats(broker.Stats{Blocked: 1, Escaped: 1})
		n, _ := c.View().Node(fleet.NodeID(fleet.DeriveUUID("node", "n1")))
		said := *n
		said.Devices = []fleet.Device{{Kind: "gpu", Vendor: "acme", Type: "gpu", Name: "fast", ID: "g1"}}
		c.mustCommitEntry(state.NodeRegister{Node: said, Now: 1})
		c.completeAndAck(c.wantNext("e1"))
	})
}
