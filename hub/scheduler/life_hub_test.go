package scheduler_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/drainer"
	"skerry/hub/planner"
	"skerry/hub/rollout"
	"skerry/hub/scheduler"
	"skerry/hub/state"
	"skerry/syncproto"
)

// modelHub is a hub without a network: the state, the scheduler and the planner as
// they are, with what the broker, the watcher of deployments and the drainer do
// done in turn until nothing is left that is due; and edges that keep journals.
type modelHub struct {
	store *state.Store
	sched *scheduler.Scheduler
	plans *planner.Planner
	stop  func()

	now              time.Time
	index            fleet.Index
	ids              int
	applyError       error // what no command may answer
	reverseEvalOrder bool  // the least important evaluation is dealt with first

	nodes []*modelNode
	seen  map[fleet.DeploymentID]fleet.Index // by the watcher
}

// modelNode is an edge: what it says while nobody hears it waits in rows.
type modelNode struct {
	desc           *fleet.Node
	epoch          fleet.Epoch
	session        uint64
	sent           fleet.Seq
	rows           [][]byte // not sent yet
	chain          []byte
	disconnected   bool // without a session, or before its history
	healthReported map[verdict]bool
	neverStarts    map[fleet.AllocID]bool // was told to stop before it had begun, and given up
}

// verdict is on an allocation's health in a deployment.
type verdict struct {
	alloc      fleet.AllocID
	deployment fleet.DeploymentID
}

func newModelHub() *modelHub {
	h := &modelHub{
		store: state.New(), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), seen: map[fleet.DeploymentID]fleet.Index{},
	}
	var err error
	if h.plans, err = planner.New(planner.Config{State: h.store, Applier: h, Barrier: func(context.Context) error { return nil }, Now: h.currentTime}); err != nil {
		panic(err)
	}
	h.sched, err = scheduler.New(scheduler.Config{
		State: h.store, Broker: h, Planner: h, Workers: 1, NewID: h.newID, Now: h.currentTime, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.plans.Run(ctx) }()
	h.stop = func() { cancel(); <-ended }
	return h
}

func (h *modelHub) currentTime() time.Time { return h.now }

func (h *modelHub) newID() string {
	h.ids++
	return fmt.Sprintf("%08x-0000-4000-8000-000000000000", h.ids)
}

// Apply is the log. A command may be refused; that it cannot be applied is a bug.
func (h *modelHub) Apply(_ context.Context, c state.Command) (state.Result, error) {
	h.index++
	res := h.store.Apply(h.index, c)
	if res.Err != nil && res.Err.Code == fleet.CodeInternal {
		h.applyError = fmt.Errorf("apply %T: %w", c, res.Err)
	}
	return res, nil
}

func (h *modelHub) applyCommand(c state.Command) state.Result {
	res, _ := h.Apply(context.Background(), c)
	return res
}

func (h *modelHub) Submit(ctx context.Context, p fleet.Plan) (fleet.PlanResult, error) {
	for {
		res, err := h.plans.Submit(ctx, p)
		if fleet.CodeOf(err) == fleet.CodeNotLeader {
			runtime.Gosched() // it has not begun yet
			continue
		}
		if err == nil && len(res.Rejected) > 0 {
			h.applyError = fmt.Errorf("nobody raced the plan of evaluation %s, and nodes were refused: %v", p.EvalID, res.Rejected)
		}
		return res, err
	}
}

func (h *modelHub) Dequeue(ctx context.Context, _ []string) (fleet.Delivery, error) {
	<-ctx.Done()
	return fleet.Delivery{}, ctx.Err()
}

func (h *modelHub) Ack(context.Context, fleet.EvalID, string) error { return nil }

func (h *modelHub) Nack(_ context.Context, id fleet.EvalID, _ string) error {
	return fmt.Errorf("evaluation %s was given back", id)
}

// maxStepsPerEvent is how much one event may lead to before it counts as endless.
const maxStepsPerEvent = 400

// runUntilIdle lets the hub work until nothing is left that is due.
func (h *modelHub) runUntilIdle() error {
	for range maxStepsPerEvent {
		again, err := h.runOneStep()
		if err = errors.Join(err, h.applyError); err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("evaluations do not end: %d steps after one event", maxStepsPerEvent)
}

// runOneStep does one thing that is due.
func (h *modelHub) runOneStep() (more bool, err error) {
	v := h.store.View()
	if e := h.nextDueEval(v); e != nil {
		return true, h.sched.Deliver(context.Background(), fleet.Delivery{Eval: e, Token: "t"})
	}
	for d := range v.Deployments("*", "") {
		if step := h.nextWatcherStep(v, d); step.Command != nil {
			h.seen[d.ID] = max(h.seen[d.ID], step.Seen)
			if res := h.applyCommand(step.Command); res.Err != nil {
				err = fmt.Errorf("the watcher's %s is refused: %w", step.Why, res.Err)
			}
			return true, err
		}
	}
	step, _ := drainer.Next(v, h.now)
	if len(step.Migrate)+len(step.Done) == 0 {
		return false, nil
	}
	step.EvalSeed = h.newID()
	h.applyCommand(step)
	return true, nil
}

// nextDueEval is the evaluation that the broker would hand out next, of those whose time has
// come and of the blocked ones for which capacity appeared; in a race the one that it
// would hand out last, because another worker is through with it first.
func (h *modelHub) nextDueEval(v *state.View) *fleet.Evaluation {
	var first *fleet.Evaluation
	for e := range v.Evals("*", "") {
		ready := e.Status == fleet.EvalPending && !e.WaitUntil.After(h.now) || e.Status == fleet.EvalBlocked && hasNewCapacity(v, e)
		if ready && (first == nil || isBeforeInQueue(e, first) != h.reverseEvalOrder) {
			first = e
		}
	}
	return first
}

// isBeforeInQueue is the broker's order.
func isBeforeInQueue(a, b *fleet.Evaluation) bool {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID)) < 0
}

// hasNewCapacity reports whether capacity appeared that a blocked evaluation may use.
func hasNewCapacity(v *state.View, e *fleet.Evaluation) bool {
	for class := range v.CapacitySince(e.SnapshotIndex) {
		if fits, seen := e.ClassEligibility[class]; !seen || fits || e.EscapedClass {
			return true
		}
	}
	return false
}

// nextWatcherStep is what the watcher does about a deployment.
func (h *modelHub) nextWatcherStep(v *state.View, d *fleet.Deployment) rollout.Step {
	if !d.Active() {
		return rollout.Step{}
	}
	p := rollout.SnapshotOf(v, d, scheduler.SuitsFunc, h.now)
	p.Seen, p.NewEval = max(h.seen[d.ID], d.CreateIndex), func() fleet.EvalID { return fleet.EvalID(h.newID()) }
	p.Progress = rollout.NewProgress(slices.Collect(v.AllocsByDeployment(d.ID))...)
	return rollout.Next(p)
}

func allocsOf(v *state.View, id fleet.JobID) []*fleet.Alloc {
	var all []*fleet.Alloc
	for a := range v.AllocsByJob(fleet.DefaultNamespace, id) {
		all = append(all, a)
	}
	return all
}

// openNodeSession begins a session of a node; what it has to tell comes with tell.
func (h *modelHub) openNodeSession(n *modelNode) {
	n.session++
	res := h.applyCommand(state.SessionOpen{
		NodeID: n.desc.ID, Session: n.session, Instance: "i", BootID: "b", Hub: "h",
		Head: n.sent + fleet.Seq(len(n.rows)), Node: n.desc, EvalSeed: h.newID(), Now: h.now.UnixNano(),
	})
	n.epoch = res.Session.Epoch
}

// recordNeverStarted lets the edges in sight learn what the hub gave up that they have not begun: they
// will not, whatever becomes of the link. (An edge journals the receipt of what it is to
// run. Where it has told all and nothing of that, it has not got it.)
func (h *modelHub) recordNeverStarted() {
	v := h.store.View()
	for _, n := range h.nodes {
		if n.disconnected {
			continue
		}
		for a := range v.AllocsByNode(n.desc.ID) {
			if a.ClientStatus == fleet.ClientLost && a.ReportedStatus == "" {
				n.neverStarts[a.ID] = true
			}
		}
	}
}

// disconnectNode lets a node miss its deadline, or the one after it.
func (h *modelHub) disconnectNode(n *modelNode) {
	n.disconnected = true
	h.applyCommand(state.NodeStatus{
		Nodes: []state.NodeMissed{{NodeID: n.desc.ID, Epoch: n.epoch, Reason: "silent"}}, EvalSeed: h.newID(), Now: h.now.UnixNano(),
	})
}

// journalTransition lets an edge journal something; the hub hears it where there is a session.
func (h *modelHub) journalTransition(n *modelNode, tr fleet.Transition) {
	tr.Seq = n.sent + fleet.Seq(len(n.rows)) + 1
	row, err := syncproto.EncodeRow(tr)
	if err != nil {
		panic(err)
	}
	n.rows = append(n.rows, row)
	if !n.disconnected {
		h.sendJournaledRows(n)
	}
}

// sendJournaledRows sends what an edge has journaled.
func (h *modelHub) sendJournaledRows(n *modelNode) {
	if len(n.rows) == 0 {
		return
	}
	res := h.applyCommand(state.AllocUpdates{EvalSeed: h.newID(), Now: h.now.UnixNano(), Batches: []state.NodeRows{{
		NodeID: n.desc.ID, Epoch: n.epoch, First: n.sent + 1, Prev: n.chain, Rows: n.rows,
	}}})
	if got := res.Updates[0]; got.Code != "" {
		h.applyError = fmt.Errorf("updates of %s are refused: %s %s", n.desc.Name, got.Code, got.Message)
	}
	for _, row := range n.rows {
		n.chain = syncproto.ChainHash(n.chain, row)
	}
	n.sent += fleet.Seq(len(n.rows))
	n.rows = nil
}
