package scheduler_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/scheduler"
	"skerry/hub/state"
	"skerry/syncproto"
)

// cluster is a state with all that a scheduler needs of a hub: commands are
// applied at once, plans are checked for room, evaluations are handed out one by
// one.
type cluster struct {
	tb    testing.TB
	store *state.Store
	now   time.Time

	mu        sync.Mutex
	index     fleet.Index
	ids       int
	sub       func(fleet.Plan) (fleet.PlanResult, bool) // answers instead of the planner where it returns true
	submitErr error
	plans     []fleet.Plan
	entries   []state.Command // what the scheduler committed
	epoch     map[fleet.NodeID]fleet.Epoch
	seq       map[fleet.NodeID]fleet.Seq
	chain     map[fleet.NodeID][]byte

	deliver chan fleet.Delivery
	dealt   chan string // "ack" or "nack"
}

func newCluster(tb testing.TB) *cluster {
	c := &cluster{
		tb: tb, store: state.New(), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		epoch: map[fleet.NodeID]fleet.Epoch{}, seq: map[fleet.NodeID]fleet.Seq{}, chain: map[fleet.NodeID][]byte{},
		deliver: make(chan fleet.Delivery), dealt: make(chan string, 1),
	}
	s, err := scheduler.New(scheduler.Config{
		State: c.store, Broker: c, Planner: c, Workers: 1,
		NewID: c.newID, Now: func() time.Time { return c.now },
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

func (c *cluster) newID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids++
	return fleet.DeriveUUID("test", fmt.Sprint(c.ids))
}

// mustApplyCommand commits a command, which must be taken.
func (c *cluster) mustApplyCommand(cmd state.Command) state.Result {
	res := c.proposeCommand(cmd)
	if res.Err != nil {
		c.tb.Fatalf("apply %T: %v", cmd, res.Err)
	}
	return res
}

// proposeCommand commits a command, which may be refused.
func (c *cluster) proposeCommand(cmd state.Command) state.Result {
	c.mu.Lock()
	c.index++
	index := c.index
	c.mu.Unlock()
	return c.store.Apply(index, cmd)
}

func (c *cluster) Dequeue(ctx context.Context, types []string) (fleet.Delivery, error) {
	if !slices.Equal(types, []string{"service", "batch", "system", "sysbatch"}) {
		return fleet.Delivery{}, fmt.Errorf("types %v", types)
	}
	select {
	case d := <-c.deliver:
		return d, nil
	case <-ctx.Done():
		return fleet.Delivery{}, ctx.Err()
	}
}

func (c *cluster) Ack(context.Context, fleet.EvalID, string) error  { c.dealt <- "ack"; return nil }
func (c *cluster) Nack(context.Context, fleet.EvalID, string) error { c.dealt <- "nack"; return nil }

// Submit commits what has room, as the planner does.
func (c *cluster) Submit(_ context.Context, p fleet.Plan) (fleet.PlanResult, error) {
	if hasEvalsOnly(p) {
		return fleet.PlanResult{}, c.storeEvals(p)
	}
	c.mu.Lock()
	c.plans = append(c.plans, p)
	sub, err := c.sub, c.submitErr
	c.mu.Unlock()
	if err != nil {
		return fleet.PlanResult{}, err
	}
	if sub != nil {
		if res, ok := sub(p); ok {
			return res, nil
		}
	}
	v := c.store.View()
	res := fleet.PlanResult{NodeUpdate: p.NodeUpdate, NodeAllocation: map[fleet.NodeID][]fleet.Alloc{}, Rejected: map[fleet.NodeID]string{}}
	for id, list := range p.NodeAllocation {
		n, ok := v.Node(id)
		need := v.Used(id)
		for _, a := range list {
			if _, known := v.Alloc(a.ID); !known {
				need = need.Add(a.AllocatedResources)
			}
		}
		if !ok || need.Exceeds(n.Free()) != "" {
			res.Rejected[id] = "full"
			continue
		}
		res.NodeAllocation[id] = list
	}
	cmd := state.Plan{
		Result: res, EvalID: p.EvalID, Now: c.now.UnixNano(), Jobs: []*fleet.Job{p.Job},
		NewDeployment: p.Deployment, DeploymentUpdates: p.DeploymentUpdates,
	}
	if p.Job == nil {
		cmd.Jobs = nil
	} else {
		cmd.Namespace, cmd.JobID, cmd.JobModifyIndex = p.Job.Namespace, p.Job.ID, p.Job.JobModifyIndex
	}
	if res.Full() {
		cmd.Evals = p.Evals
	}
	if taken := c.proposeCommand(cmd); taken.Err != nil {
		return fleet.PlanResult{Refused: taken.Err.Message, RefreshIndex: taken.Index}, nil
	}
	c.recordCommand(cmd)
	res.RefreshIndex, res.AllocIndex = v.Index(), v.Index()+1
	return res, nil
}

// hasEvalsOnly reports whether a plan changes nothing but evaluations.
func hasEvalsOnly(p fleet.Plan) bool {
	p.Evals = nil
	return p.Empty()
}

func (c *cluster) storeEvals(p fleet.Plan) error {
	if p.EvalToken != "t" {
		return fleet.Errorf(fleet.CodeConflict, "token %q", p.EvalToken)
	}
	cmd := state.Evals{Evals: p.Evals, Now: c.now.UnixNano()}
	c.mustApplyCommand(cmd)
	c.recordCommand(cmd)
	return nil
}

// recordCommand remembers an entry that a worker made.
func (c *cluster) recordCommand(cmd state.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = append(c.entries, cmd)
}

// scheduleEval delivers an evaluation and returns what the state has of it then.
func (c *cluster) scheduleEval(id fleet.EvalID) *fleet.Evaluation {
	c.tb.Helper()
	e, ok := c.store.View().Eval(id)
	if !ok {
		c.tb.Fatalf("there is no evaluation %s", id)
	}
	c.mu.Lock()
	c.plans, c.entries = nil, nil
	c.mu.Unlock()
	c.deliver <- fleet.Delivery{Eval: e, Token: "t"}
	if got := <-c.dealt; got != "ack" {
		c.tb.Fatalf("evaluation %s of %s: %s", id, e.JobID, got)
	}
	e, _ = c.store.View().Eval(id)
	return e
}

// schedulePendingEvals schedules until no evaluation is pending that is not for later.
func (c *cluster) schedulePendingEvals() {
	c.tb.Helper()
	for range 20 {
		e := c.nextPendingEval()
		if e == nil {
			return
		}
		c.scheduleEval(e.ID)
	}
	c.tb.Fatal("evaluations do not end")
}

func (c *cluster) nextPendingEval() *fleet.Evaluation {
	for e := range c.store.View().Evals("*", "") {
		if e.Status == fleet.EvalPending && !e.WaitUntil.After(c.now) {
			return e
		}
	}
	return nil
}

// unblockEval makes a blocked evaluation pending, as the broker does when capacity
// appears.
func (c *cluster) unblockEval(id fleet.EvalID) {
	e, _ := c.store.View().Eval(id)
	next := *e
	next.Status = fleet.EvalPending
	c.mustApplyCommand(state.Evals{Evals: []fleet.Evaluation{next}, Now: c.now.UnixNano()})
}

// registerAndSchedule stores a job and schedules it.
func (c *cluster) registerAndSchedule(job *fleet.Job) *fleet.Evaluation {
	c.tb.Helper()
	e := &fleet.Evaluation{
		ID: fleet.EvalID(c.newID()), Namespace: job.Namespace, JobID: job.ID, Type: job.Type, Priority: job.Priority,
		TriggeredBy: fleet.TriggerJobRegister, Status: fleet.EvalPending,
	}
	c.mustApplyCommand(state.JobRegister{Job: job, Eval: e, Now: c.now.UnixNano()})
	return c.scheduleEval(e.ID)
}

// node returns a machine with the sim driver, as an edge describes itself.
func node(i int, change ...func(*fleet.Node)) *fleet.Node {
	n := &fleet.Node{
		ID: fleet.NodeID(fleet.DeriveUUID("node", fmt.Sprint(i))), Name: fmt.Sprintf("edge-%d", i),
		Datacenter: "dc1", NodePool: fleet.DefaultPool,
		Attributes: map[string]string{"kernel.name": "linux", "unique.hostname": fmt.Sprintf("edge-%d", i)},
		Meta:       map[string]string{"rack": fmt.Sprint(i % 3)},
		Resources:  fleet.Resources{CPU: 14000, MemoryMB: 8192, DiskMB: 100 << 10},
		Drivers:    map[string]fleet.DriverInfo{"sim": {Detected: true, Healthy: true}},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

// openNodeSession brings a node's new session, with nothing to replay.
func (c *cluster) openNodeSession(n *fleet.Node) {
	res := c.mustApplyCommand(state.SessionOpen{
		NodeID: n.ID, Session: uint64(c.epoch[n.ID]) + 1, Head: c.seq[n.ID], Node: n,
		EvalSeed: c.newID(), Now: c.now.UnixNano(),
	})
	c.epoch[n.ID] = res.Session.Epoch
}

func (c *cluster) addReadyNodes(n int, change ...func(*fleet.Node)) {
	for i := range n {
		c.openNodeSession(node(i, change...))
	}
}

// missNodeHeartbeat lets a node miss its deadline.
func (c *cluster) missNodeHeartbeat(id fleet.NodeID) {
	c.mustApplyCommand(state.NodeStatus{
		Nodes: []state.NodeMissed{{NodeID: id, Epoch: c.epoch[id], Reason: "silent"}}, EvalSeed: c.newID(), Now: c.now.UnixNano(),
	})
}

// reportAllocStatus applies what a node's edge says of an allocation.
func (c *cluster) reportAllocStatus(a *fleet.Alloc, status string) {
	c.reportRow(a.NodeID, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: a.ID, ClientStatus: status})
}

// reportRow applies the next row of a node's journal.
func (c *cluster) reportRow(n fleet.NodeID, t fleet.Transition) {
	c.seq[n]++
	t.Seq = c.seq[n]
	row, err := syncproto.EncodeRow(t)
	if err != nil {
		c.tb.Fatal(err)
	}
	res := c.mustApplyCommand(state.AllocUpdates{EvalSeed: c.newID(), Now: c.now.UnixNano(), Batches: []state.NodeRows{{
		NodeID: n, Epoch: c.epoch[n], First: c.seq[n], Prev: c.chain[n], Rows: [][]byte{row},
	}}})
	if code := res.Updates[0].Code; code != "" {
		c.tb.Fatalf("report %+v: %s %s", t, code, res.Updates[0].Message)
	}
	c.chain[n] = syncproto.ChainHash(c.chain[n], row)
}

// job returns a service with one task for the sim driver.
func job(count int, change ...func(*fleet.Job)) *fleet.Job {
	j := &fleet.Job{
		Region: "global", Namespace: fleet.DefaultNamespace, ID: "web", Name: "web", Type: fleet.JobTypeService, Priority: 50,
		Datacenters: []string{"*"}, NodePool: fleet.DefaultPool,
		TaskGroups: []fleet.TaskGroup{{
			Name: "web", Count: count,
			ReschedulePolicy: &fleet.ReschedulePolicy{Unlimited: true, DelayFunction: fleet.DelayConstant},
			Tasks: []fleet.Task{{
				Name: "main", Driver: "sim", Config: map[string]any{"run_for": "1h"},
				Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: 500, MemoryMB: 256, DiskMB: 150}}, KillTimeout: 5 * time.Second,
			}},
		}},
	}
	for _, f := range change {
		f(j)
	}
	return j
}

func (c *cluster) webJobAllocs() []*fleet.Alloc {
	return slices.Collect(c.store.View().AllocsByJob(fleet.DefaultNamespace, "web"))
}

// nonTerminalAllocs lists allocations that are to run and have not ended, by name.
func (c *cluster) nonTerminalAllocs() []*fleet.Alloc {
	var out []*fleet.Alloc
	for _, a := range c.webJobAllocs() {
		if !a.Terminal() {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *fleet.Alloc) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func names(allocs []*fleet.Alloc) string {
	var out []string
	for _, a := range allocs {
		out = append(out, a.Name)
	}
	return strings.Join(out, " ")
}
