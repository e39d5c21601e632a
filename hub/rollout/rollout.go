// Package rollout watches deployments on the leader. It makes an evaluation when allocations of a
// deployment have become healthy, promotes canaries with auto_promote, and fails a deployment whose
// allocations failed or whose progress deadline is over, with a rollback if auto_revert is set.
//
// hub.Open runs Lead on leadership. One goroutine waits for new deployments, and one for each active
// deployment watches its row, which is written when one of its allocations changes in a way that
// concerns it. So a change wakes one goroutine, however many deployments there are.
//
// It persists nothing: everything it needs is in the replicated state, so that a new leader continues.
// Its decisions are pure (Next), and each is one entry. It places and stops nothing: the scheduler
// does, on the evaluation of that entry. No deadline runs for allocations on nodes that are away, nor
// for those outside their update window.
package rollout

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/pace"
	"skerry/reconcile"
)

const (
	// DefaultGather is how long a change waits for further changes before a check.
	DefaultGather = 100 * time.Millisecond
	retryAfter    = time.Second // after a step that was not committed
	// pauseFactor is the pause after a check, as a multiple of the time that the check took: some
	// checks read all allocations of a job (update windows, the end of a system job's rollout).
	pauseFactor  = 20
	applyTimeout = 10 * time.Second

	// An evaluation reads all allocations of its job. While more and more of a large job becomes healthy, the watcher pauses
	// after each evaluation for a multiple of its duration, but not longer than longestPause.
	evalPauseFactor = 5
	longestPause    = time.Second
)

// SuitsFunc returns a function that says why a node does not suit a group of a job; "": it does. nil: each node suits.
type SuitsFunc func(view *state.View, job *fleet.Job) (suits func(n *fleet.Node, group string) (reason string, passing bool), err error)

// Config of a Watcher. State, Apply and Suits are required.
type Config struct {
	State  *state.Store
	Apply  state.Applier
	Suits  SuitsFunc        // of the scheduler
	Now    func() time.Time // nil: time.Now
	NewID  func() string    // of evaluations; nil: random
	Gather time.Duration    // 0: DefaultGather; below 0: none
	Log    *slog.Logger
}

// Watcher watches the deployments of a cluster.
type Watcher struct {
	cfg      Config
	watching atomic.Int64
	looks    atomic.Uint64
}

// New checks the configuration.
func New(cfg Config) (*Watcher, error) {
	if cfg.State == nil || cfg.Apply == nil || cfg.Suits == nil {
		return nil, errors.New("make the watcher of deployments: state, applier and suits are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return fleet.NewUUID(nil) }
	}
	if cfg.Gather == 0 {
		cfg.Gather = DefaultGather
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Watcher{cfg: cfg}, nil
}

// Stats has the number of watched deployments, and of checks since the watcher was made.
type Stats struct {
	Watching int64
	Looks    uint64
}

// Stats returns the counters of now.
func (w *Watcher) Stats() Stats { return Stats{w.watching.Load(), w.looks.Load()} }

// Lead watches all deployments until ctx ends, and waits for the goroutines of each one.
func (w *Watcher) Lead(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	var since fleet.Index
	for ctx.Err() == nil {
		view := w.cfg.State.Watch()
		for d := range view.DeploymentsSince(since) {
			since = max(since, d.CreateIndex)
			if d.Active() {
				watching.Go(func() { w.watchDeployment(ctx, d.ID) })
			}
		}
		if err := view.Changed(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// watchDeployment commits the steps of one deployment until the deployment or ctx ends.
func (w *Watcher) watchDeployment(ctx context.Context, id fleet.DeploymentID) {
	w.watching.Add(1)
	defer w.watching.Add(-1)
	log := w.cfg.Log.With("deployment_id", id)
	seen, progress := w.lastEvaluatedIndex(id), NewProgress()
	var eval fleet.EvalID // the last one for health, until its end is known
	var nextEval time.Time
	for ctx.Err() == nil {
		w.looks.Add(1)
		begun := time.Now()
		view := w.cfg.State.Watch()
		d, ok := view.Deployment(id)
		if !ok || !d.Active() {
			return
		}
		if eval != "" {
			if e, ok := view.Eval(eval); !ok || e.Terminal() {
				eval, nextEval = "", endOfPause(e, w.cfg.Now())
			}
		}
		progress = progress.countChanges(view, id)
		p := SnapshotOf(w.cfg.State.View(), d, w.cfg.Suits, w.cfg.Now())
		p.Progress, p.Seen, p.NewEval = progress, seen, func() fleet.EvalID { return fleet.EvalID(w.cfg.NewID()) }
		p.Evaluating, p.NextEval = eval != "", nextEval
		step := Next(p)
		if step.Command != nil {
			if w.commitStep(ctx, log, step) {
				seen, eval = max(seen, step.Seen), cmp.Or(step.Eval, eval)
			} else {
				pace.Rest(ctx, retryAfter)
			}
			continue
		}
		took := time.Since(begun)
		if w.waitForChange(ctx, view, step.Until) {
			pace.Rest(ctx, max(w.cfg.Gather, pauseFactor*took))
		}
	}
}

// endOfPause returns when the watcher may make the next evaluation for health after e, which has ended; nil: its row is removed.
func endOfPause(e *fleet.Evaluation, now time.Time) time.Time {
	if e == nil {
		return now
	}
	took, since := time.Duration(e.ModifyTime-e.CreateTime), now.Sub(time.Unix(0, e.ModifyTime))
	pause := min(max(0, evalPauseFactor*took), longestPause)
	return now.Add(pause - max(0, since))
}

// SnapshotOf returns a deployment's snapshot of a view, without Progress, Seen, Evaluating, NextEval and NewEval.
func SnapshotOf(view *state.View, d *fleet.Deployment, suits SuitsFunc, now time.Time) DeploymentSnapshot {
	p := DeploymentSnapshot{Deployment: d, Now: now}
	p.Job, _ = view.Job(d.Namespace, d.JobID)
	p.Waits = func(group string) bool {
		for e := range view.EvalsByJob(d.Namespace, d.JobID) {
			if m := e.FailedTGAllocs[group]; !e.Terminal() && m != nil && (m.NodesEvaluated == 0 || m.NodesAway > 0) {
				return true
			}
		}
		return false
	}
	p.Window = windowStates(view, p.Now)
	p.Site = func(id fleet.NodeID) string {
		n, _ := view.Node(id)
		return n.SiteName()
	}
	p.Away = func(id fleet.NodeID) bool {
		n, ok := view.Node(id)
		return ok && n.Status != fleet.NodeReady
	}
	ofJob := sync.OnceValues(func() (func(*fleet.Node, string) (string, bool), error) { return suits(view, p.Job) })
	p.Awaited = func(a *fleet.Alloc) bool {
		fits, err := ofJob()
		return err == nil && isAwaited(view, p.Job, a, fits, now) // with an invalid constraint no evaluation places anything
	}
	p.Alloc = view.Alloc
	p.Versions = func() []*fleet.Job { return view.JobVersions(d.Namespace, d.JobID) }
	p.Whole = sync.OnceValue(func() []*fleet.Alloc { return slices.Collect(view.AllocsByJob(d.Namespace, d.JobID)) })
	return p
}

// isAwaited reports whether a system job waits for the absent node of a stopped allocation.
func isAwaited(view *state.View, job *fleet.Job, a *fleet.Alloc, suits func(*fleet.Node, string) (string, bool), now time.Time) bool {
	n, ok := view.Node(a.NodeID)
	if !ok {
		return false
	}
	for other := range view.AllocsByNode(n.ID) {
		if other.JobID == a.JobID && other.Namespace == a.Namespace && other.TaskGroup == a.TaskGroup && other.CreateIndex > a.CreateIndex {
			return false // that one decides
		}
	}
	pool, _ := view.Pool(cmp.Or(n.NodePool, fleet.DefaultPool))
	return reconcile.AwaitsNode(job, n, pool, a, suits, now)
}

// lastEvaluatedIndex is the index of the newest state that an evaluation of the deployment's job has
// used, or that a pending one will use at least. 0: the deployment is unknown.
func (w *Watcher) lastEvaluatedIndex(id fleet.DeploymentID) fleet.Index {
	view := w.cfg.State.View()
	d, ok := view.Deployment(id)
	if !ok {
		return 0
	}
	seen := d.CreateIndex
	for e := range view.EvalsByJob(d.Namespace, d.JobID) {
		switch {
		case e.Status == fleet.EvalPending && e.WaitUntil.IsZero():
			seen = max(seen, e.ModifyIndex)
		case e.Terminal():
			seen = max(seen, e.SnapshotIndex)
		}
	}
	return seen
}

// commitStep commits a step's command, and logs the outcome. false: not committed.
func (w *Watcher) commitStep(ctx context.Context, log *slog.Logger, step Step) bool {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := w.cfg.Apply.Apply(ctx, step.Command)
	if err := res.Failure(err); err != nil {
		log.Warn("deployment step not committed", "step", step.Why, "error", err)
		return false
	}
	log.Info("deployment step committed", "step", step.Why, "index", res.Index)
	return true
}

// waitForChange waits until something that the view read changes (true), until a time (zero: none), or until
// ctx ends.
func (w *Watcher) waitForChange(ctx context.Context, view *state.View, until time.Time) bool {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(until.Sub(w.cfg.Now()), time.Millisecond))
		defer cancel()
	}
	err := view.Changed(ctx)
	if err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn("deployment not watched", "error", err)
	}
	return err == nil
}
