package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/broker"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

// cluster is a log of one hub with a broker on it, in virtual time.
type cluster struct {
	*testing.T
	*statetest.Log
	broker *broker.Broker

	index   fleet.Index // of the last entry
	batches []int
	stop    func()
}

var errNoQuorum = errors.New("no quorum")

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, Log: statetest.NewLog()}
	c.Applied = c.checkEntry
	return c
}

func (c *cluster) checkEntry(index fleet.Index, cmd state.Command) {
	c.index = index
	if e, ok := cmd.(state.Evals); ok {
		c.batches = append(c.batches, len(e.Evals))
	}
	if err := c.View().Check(); err != nil {
		c.Errorf("after entry %d: %v", index, err)
	}
}

// withCluster gives a test a cluster whose broker runs.
func withCluster(t *testing.T, cfg broker.Config, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		cfg.State, cfg.Applier = c.Store, c
		b, err := broker.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.broker = b
		c.startBroker()
		defer func() { c.stop() }()
		test(c)
	})
}

func (c *cluster) startBroker() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.broker.Run(ctx) }()
	c.stop = func() {
		cancel()
		if err := <-done; err != nil {
			c.Errorf("run: %v", err)
		}
	}
	synctest.Wait()
}

func (c *cluster) mustCommitEntry(cmd state.Command) state.Result {
	c.Helper()
	res := c.MustApply(c.T, cmd)
	synctest.Wait()
	return res
}

// storeJobOnly stores a job without an evaluation.
func (c *cluster) storeJobOnly(ns string, id fleet.JobID) {
	c.Helper()
	c.mustCommitEntry(state.JobRegister{Job: &fleet.Job{
		Namespace: ns, ID: id, Type: fleet.JobTypeService, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 1}},
	}})
}

func eval(ns string, job fleet.JobID, id string) fleet.Evaluation {
	return fleet.Evaluation{
		ID: fleet.EvalID(id), Namespace: ns, JobID: job, Type: fleet.JobTypeService, Priority: 50,
		Status: fleet.EvalPending, TriggeredBy: fleet.TriggerJobRegister,
	}
}

// addEvals stores evaluations, each in an entry of its own.
func (c *cluster) addEvals(evals ...fleet.Evaluation) {
	c.Helper()
	for _, e := range evals {
		c.mustCommitEntry(state.Evals{Evals: []fleet.Evaluation{e}, Now: time.Now().UnixNano()})
	}
}

// mustDequeue dequeues what is there, or fails.
func (c *cluster) mustDequeue(types ...string) fleet.Delivery {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Millisecond)
	defer cancel()
	d, err := c.broker.Dequeue(ctx, types)
	if err != nil {
		c.Fatalf("dequeue: %v; %+v", err, c.broker.Stats())
	}
	return d
}

func (c *cluster) wantNext(id string) fleet.Delivery {
	c.Helper()
	d := c.mustDequeue()
	if d.Eval.ID != fleet.EvalID(id) {
		c.Fatalf("dequeued %s, want %s", d.Eval.ID, id)
	}
	return d
}

// wantNothingReady checks that no evaluation is ready.
func (c *cluster) wantNothingReady() {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Millisecond)
	defer cancel()
	if d, err := c.broker.Dequeue(ctx, nil); err == nil {
		c.Fatalf("dequeued %s, want none", d.Eval.ID)
	} else if fleet.CodeOf(err) != fleet.CodeTimeout {
		c.Fatalf("dequeue: %v", err)
	}
}

// completeAndAck does what a worker does at the end: the state says so, then the broker
// is told.
func (c *cluster) completeAndAck(d fleet.Delivery) {
	c.Helper()
	e := *d.Eval
	e.Status = fleet.EvalComplete
	c.mustCommitEntry(state.Evals{Evals: []fleet.Evaluation{e}})
	c.mustAck(d)
}

func (c *cluster) mustAck(d fleet.Delivery) {
	c.Helper()
	if err := c.broker.Ack(d.Eval.ID, d.Token); err != nil {
		c.Fatalf("ack %s: %v", d.Eval.ID, err)
	}
	synctest.Wait()
}

func (c *cluster) mustNack(d fleet.Delivery) {
	c.Helper()
	if err := c.broker.Nack(d.Eval.ID, d.Token); err != nil {
		c.Fatalf("nack %s: %v", d.Eval.ID, err)
	}
}

func (c *cluster) wantStats(want broker.Stats) {
	c.Helper()
	synctest.Wait()
	if got := c.broker.Stats(); got != want {
		c.Fatalf("broker holds %+v, want %+v", got, want)
	}
}

func (c *cluster) wantStatus(status string, ids ...string) {
	c.Helper()
	for _, id := range ids {
		e, ok := c.View().Eval(fleet.EvalID(id))
		if !ok || e.Status != status {
			c.Fatalf("evaluation %s is %+v, want %s", id, e, status)
		}
	}
}

// countByStatus lists how many evaluations have each status.
func (c *cluster) countByStatus(status string) int {
	return len(slices.Collect(func(yield func(*fleet.Evaluation) bool) {
		for e := range c.View().Evals("*", "") {
			if e.Status == status && !yield(e) {
				return
			}
		}
	}))
}

// openFirstSession opens a node's first session, which gives capacity of its class.
func (c *cluster) openFirstSession(name, datacenter string) string {
	c.Helper()
	id := fleet.NodeID(fleet.DeriveUUID("node", name))
	c.mustCommitEntry(state.SessionOpen{NodeID: id, Session: 1, Node: &fleet.Node{ID: id, Name: name, Datacenter: datacenter,
		Resources: fleet.Resources{CPU: 1000, MemoryMB: 1000}}, Now: 1})
	n, _ := c.View().Node(id)
	return n.ComputedClass
}

// addNodeCapacity gives a node's class new capacity.
func (c *cluster) addNodeCapacity(name string) {
	c.Helper()
	id := fleet.NodeID(fleet.DeriveUUID("node", name))
	n, _ := c.View().Node(id)
	said := *n
	said.Resources.CPU++
	c.mustCommitEntry(state.NodeRegister{Node: said, Now: 1})
}

func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ids(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s%02d", prefix, i+1))
	}
	return out
}
