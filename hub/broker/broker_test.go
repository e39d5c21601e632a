package broker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/broker"
	"skerry/hub/state"
)

func TestNew(t *testing.T) {
	c := newCluster(t)
	for name, cfg := range map[string]broker.Config{
		"no state":       {Applier: c},
		"no log":         {State: c.Store},
		"negative delay": {State: c.Store, Applier: c, NackTimeout: -1},
		"negative limit": {State: c.Store, Applier: c, DeliveryLimit: -1},
	} {
		if _, err := broker.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// E13: nothing is handed out while this hub does not lead; leading again starts
// from the state.
func TestNotLeading(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		late := eval("default", "till", "late")
		late.WaitUntil = time.Now().Add(time.Hour)
		c.addEvals(eval("default", "shop", "e1"), late)
		d := c.wantNext("e1")
		waits := make(chan error, 1)
		go func() {
			_, err := c.broker.Dequeue(context.Background(), nil)
			waits <- err
		}()
		synctest.Wait()
		if err := c.broker.Run(c.Context()); err == nil {
			t.Fatal("it ran twice")
		}
		c.stop()
		if err := <-waits; fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Fatalf("a worker that waited: %v", err)
		}
		if _, err := c.broker.Dequeue(c.Context(), nil); fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Fatalf("dequeue: %v", err)
		}
		if err := c.broker.Ack(d.Eval.ID, d.Token); fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Fatalf("ack: %v", err)
		}
		if s := c.broker.Stats(); s != (broker.Stats{}) {
			t.Fatalf("it holds %+v", s)
		}
		sleep(2 * time.Hour)
		c.startBroker()
		c.wantStats(broker.Stats{Ready: 2})
		if again := c.wantNext("e1"); again.Token == d.Token {
			t.Fatal("a delivery of an older leadership holds")
		}
		c.wantNext("late")
	})
}

// Higher priority first, then the older; only the types that were asked for.
func TestOrder(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		urgent, batch := eval("default", "c", "urgent"), eval("default", "d", "batch")
		urgent.Priority = 90
		batch.Type, batch.Priority = fleet.JobTypeBatch, 70
		c.addEvals(eval("default", "a", "first"), eval("default", "b", "second"), urgent, batch)
		if d := c.mustDequeue(fleet.JobTypeBatch); d.Eval.ID != "batch" {
			t.Fatalf("dequeued %s", d.Eval.ID)
		}
		c.wantNext("urgent")
		c.wantNext("first")
		d := c.wantNext("second")
		if d.WaitIndex < d.Eval.ModifyIndex {
			t.Fatalf("wait for %d, the evaluation changed at %d", d.WaitIndex, d.Eval.ModifyIndex)
		}
		c.wantNothingReady()
	})
}

// A worker that waits is handed what comes, the one that waits longest first.
func TestDequeueWaits(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		got := make(chan string, 2)
		for _, name := range []string{"one", "two"} {
			go func() {
				d, err := c.broker.Dequeue(context.Background(), []string{fleet.JobTypeService})
				if err != nil {
					t.Errorf("dequeue: %v", err)
					return
				}
				got <- name + " " + string(d.Eval.ID)
			}()
			synctest.Wait()
		}
		c.addEvals(eval("default", "a", "e1"), eval("default", "b", "e2"))
		if first, second := <-got, <-got; first != "one e1" || second != "two e2" {
			t.Fatalf("%s, then %s", first, second)
		}
	})
}

// E14: whatever changes of an evaluation, it is delivered once.
func TestDeliveredOnce(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		e := eval("default", "shop", "e1")
		c.addEvals(e, e)
		c.wantStats(broker.Stats{Ready: 1})
		d := c.wantNext("e1")
		e.StatusDescription = "still of interest"
		c.addEvals(e)
		c.wantStats(broker.Stats{Outstanding: 1})
		c.wantNothingReady()
		c.mustAck(d) // it changed since it was delivered, and is pending: once more
		again := c.wantNext("e1")
		if again.Eval.StatusDescription != e.StatusDescription {
			t.Fatal("an older picture was delivered")
		}
		c.completeAndAck(again)
		c.wantStats(broker.Stats{})
	})
}

// E16, E41, I20: one outstanding evaluation a job and namespace; of those behind it the
// newest is next, and the others are canceled.
func TestOneForEachJob(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		c.addEvals(eval("ns1", "shop", "a1"), eval("ns1", "shop", "a2"), eval("ns1", "shop", "a3"), eval("ns1", "shop", "a4"),
			eval("ns2", "shop", "b1"), eval("ns2", "shop", "b2"), eval("ns2", "shop", "b3"))
		c.wantStats(broker.Stats{Ready: 2, Pending: 5})
		a1, b1 := c.wantNext("a1"), c.wantNext("b1")
		c.wantNothingReady()
		c.completeAndAck(a1)
		c.wantStatus(fleet.EvalCanceled, "a2", "a3")
		c.wantStats(broker.Stats{Ready: 1, Outstanding: 1, Pending: 2})
		c.completeAndAck(b1)
		c.completeAndAck(c.wantNext("a4"))
		c.completeAndAck(c.wantNext("b3"))
		c.wantStatus(fleet.EvalCanceled, "a2", "a3", "b2")
		c.wantStatus(fleet.EvalComplete, "a1", "a4", "b1", "b3")
		c.wantStats(broker.Stats{})
	})
}

// E17, E19: the newest by its last change stays; the others are canceled a bounded
// batch at a time.
func TestSupersededInBatches(t *testing.T) {
	withCluster(t, broker.Config{CancelBatch: 10}, func(c *cluster) {
		var evals []fleet.Evaluation
		for _, id := range ids("e", 22) {
			evals = append(evals, eval("default", "shop", id))
		}
		c.addEvals(evals...)
		touched := evals[5]
		touched.StatusDescription = "newest"
		c.addEvals(touched)
		d := c.wantNext("e01")
		c.batches = nil
		c.completeAndAck(d)
		if c.countByStatus(fleet.EvalCanceled) != 20 {
			t.Fatalf("%d canceled", c.countByStatus(fleet.EvalCanceled))
		}
		if len(c.batches) != 3 || c.batches[1] != 10 || c.batches[2] != 10 {
			t.Fatalf("written in batches of %v", c.batches[1:])
		}
		c.wantNext("e06")
	})
}

// The log may be unable to take a cancellation for a while.
func TestReapRetries(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		c.addEvals(eval("default", "shop", "e1"), eval("default", "shop", "e2"), eval("default", "shop", "e3"))
		d := c.wantNext("e1")
		e := *d.Eval
		e.Status = fleet.EvalComplete
		c.mustCommitEntry(state.Evals{Evals: []fleet.Evaluation{e}})
		c.SetRefusal(errNoQuorum)
		c.mustAck(d)
		sleep(5 * time.Second)
		c.wantStats(broker.Stats{Ready: 1, Cancelable: 1})
		c.SetRefusal(nil)
		sleep(5 * time.Second)
		c.wantStatus(fleet.EvalCanceled, "e2")
		c.wantStats(broker.Stats{Ready: 1})
	})
}

// E20: only who has it may say what became of it.
func TestTokens(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		c.addEvals(eval("default", "shop", "e1"))
		d := c.wantNext("e1")
		for name, err := range map[string]error{
			"ack of a wrong token":   c.broker.Ack("e1", "x"),
			"nack of a wrong token":  c.broker.Nack("e1", "x"),
			"pause of a wrong token": c.broker.Pause("e1", "x"),
			"ack of another":         c.broker.Ack("e2", d.Token),
		} {
			if fleet.CodeOf(err) != fleet.CodeConflict {
				t.Errorf("%s: %v", name, err)
			}
		}
		c.completeAndAck(d)
		if err := c.broker.Nack("e1", d.Token); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("nack after ack: %v", err)
		}
	})
}

// Given back, it comes again after 1 s, then after 20 s; the third time it fails
// and is tried again in 1 to 6 minutes (E25).
func TestNackAndDeliveryLimit(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		c.storeJobOnly("default", "shop")
		c.addEvals(eval("default", "shop", "e1"), eval("default", "shop", "e2"))
		for _, delay := range []time.Duration{time.Second, 20 * time.Second} {
			c.mustNack(c.wantNext("e1"))
			c.wantStats(broker.Stats{Delayed: 1, Pending: 1})
			sleep(delay - 10*time.Millisecond)
			c.wantNothingReady()
			sleep(10 * time.Millisecond)
		}
		failed := time.Now()
		c.mustNack(c.wantNext("e1"))
		synctest.Wait()
		c.wantStatus(fleet.EvalFailed, "e1")
		e, _ := c.View().Eval("e1")
		next, ok := c.View().Eval(e.NextEval)
		if !ok || next.TriggeredBy != fleet.TriggerFailedFollowUp || next.PreviousEval != "e1" {
			t.Fatalf("follow-up: %+v", next)
		}
		if wait := next.WaitUntil.Sub(failed); wait < time.Minute || wait > 6*time.Minute {
			t.Fatalf("follow-up after %s", wait)
		}
		c.completeAndAck(c.wantNext("e2"))
		c.wantStats(broker.Stats{Delayed: 1})
		sleep(6 * time.Minute)
		c.wantNext(string(next.ID))
	})
}

// E25: where the job is gone there is nothing to try again.
func TestDeliveryLimitWithoutJob(t *testing.T) {
	withCluster(t, broker.Config{DeliveryLimit: 1}, func(c *cluster) {
		c.addEvals(eval("default", "gone", "e1"))
		c.mustNack(c.wantNext("e1"))
		synctest.Wait()
		c.wantStatus(fleet.EvalFailed, "e1")
		if n := c.countByStatus(fleet.EvalPending); n != 0 {
			t.Fatalf("%d follow-ups", n)
		}
		c.wantStats(broker.Stats{})
	})
}

// E22: a worker that says nothing loses it after 60 s, and its token with it;
// while its plan is with the planner the time stands still.
func TestNackTimeout(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		c.addEvals(eval("default", "shop", "e1"))
		d := c.wantNext("e1")
		sleep(50 * time.Second)
		if err := c.broker.Pause("e1", d.Token); err != nil {
			t.Fatal(err)
		}
		sleep(10 * time.Minute)
		if err := c.broker.Resume("e1", d.Token); err != nil {
			t.Fatal(err)
		}
		sleep(59 * time.Second)
		c.wantStats(broker.Stats{Outstanding: 1})
		sleep(time.Second)
		c.wantStats(broker.Stats{Delayed: 1})
		sleep(time.Second)
		again := c.wantNext("e1")
		if err := c.broker.Ack("e1", d.Token); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Fatalf("the old token: %v", err)
		}
		c.completeAndAck(again)
	})
}

// E23: what waits for a time is not delivered before it.
func TestWaitUntil(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		a, b := eval("default", "a", "in-an-hour"), eval("default", "b", "in-a-minute")
		a.WaitUntil, b.WaitUntil = time.Now().Add(time.Hour), time.Now().Add(time.Minute)
		c.addEvals(a, b)
		c.wantNothingReady()
		c.wantStats(broker.Stats{Delayed: 2})
		sleep(time.Minute - 5*time.Millisecond)
		c.wantNothingReady()
		sleep(5 * time.Millisecond)
		c.completeAndAck(c.wantNext("in-a-minute"))
		a.Status = fleet.EvalCanceled // somebody came back, nobody waits for it
		c.addEvals(a)
		c.wantStats(broker.Stats{})
		sleep(2 * time.Hour)
		c.wantNothingReady()
	})
}

// A worker that acknowledges without having dealt with it is not believed.
func TestAckWithoutResult(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		c.addEvals(eval("default", "shop", "e1"))
		c.mustAck(c.wantNext("e1"))
		c.wantStats(broker.Stats{Delayed: 1})
		sleep(time.Second)
		c.completeAndAck(c.wantNext("e1"))
		c.wantStats(broker.Stats{})
	})
}

// What ends while it is with a worker, or on its way back, is not delivered again.
func TestEndedElsewhere(t *testing.T) {
	withCluster(t, broker.Config{}, func(c *cluster) {
		e := eval("default", "shop", "e1")
		c.addEvals(e, eval("default", "shop", "e2"))
		d := c.wantNext("e1")
		e.Status = fleet.EvalCanceled
		c.addEvals(e)
		c.mustNack(d)
		c.wantStats(broker.Stats{Ready: 1})
		second := c.wantNext("e2")
		c.mustNack(second)
		f := *second.Eval
		f.Status = fleet.EvalCanceled
		c.addEvals(f)
		sleep(time.Minute)
		c.wantNothingReady()
		c.wantStats(broker.Stats{})
	})
}
