// Package rollout watches deployments: the leader's component that asks for an evaluation
// when what a deployment placed has become healthy, promotes canaries by themselves,
// and fails a deployment whose allocations are not healthy or whose deadline is over,
// taking the job back where it asks for that.
//
// hub.Open runs Lead on leadership. It has one goroutine that waits for deployments
// to begin, and one for each that is active, with one standing query each: the
// deployment's own row, which is written when one of its allocations changes in a way
// that concerns it. So a change wakes one goroutine, however many deployments there
// are. The query is renewed only after it fired.
//
// It persists nothing: all that it knows is in the state, so that a new leader goes on
// where the last one was. What it decides is pure (Next); what it does is one entry
// each. It places nothing and stops nothing: that is the scheduler's, on the evaluation
// that comes with the entry. Allocations on edges that are away are neither healthy nor
// not, and no deadline runs for them, nor for those that wait for a window of updates.
package rollout

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/pace"
)

const (
	// DefaultGather is how long a change waits for others before it is looked at.
	DefaultGather = 100 * time.Millisecond
	retryAfter    = time.Second // after a step that was not committed
	// pauseFactor is how many times as long as a look took the watcher rests after it: some
	// looks go through all of a job (windows of updates, the end of a system job's rollout).
	pauseFactor  = 20
	applyTimeout = 10 * time.Second
)

// Config of a Watcher. State and Apply are required.
type Config struct {
	State  *state.Store
	Apply  state.Applier
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
	if cfg.State == nil || cfg.Apply == nil {
		return nil, errors.New("make the watcher of deployments: state and applier are required")
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

// Stats is how many deployments are watched, and how often one was looked at.
type Stats struct {
	Watching int64
	Looks    uint64
}

// Stats counts since the watcher was made.
func (w *Watcher) Stats() Stats { return Stats{w.watching.Load(), w.looks.Load()} }

// Lead watches until ctx ends.
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

// watchDeployment watches one deployment until it is over.
func (w *Watcher) watchDeployment(ctx context.Context, id fleet.DeploymentID) {
	w.watching.Add(1)
	defer w.watching.Add(-1)
	log := w.cfg.Log.With("deployment_id", id)
	seen, progress := w.lastEvaluatedIndex(id), NewProgress()
	for ctx.Err() == nil {
		w.looks.Add(1)
		begun := time.Now()
		view := w.cfg.State.Watch()
		d, ok := view.Deployment(id)
		if !ok || !d.Active() {
			return
		}
		progress = progress.countChanges(view, id)
		p := snapshotOfDeployment(w.cfg.State.View(), d, w.cfg.Now())
		p.Progress, p.Seen, p.NewEval = progress, seen, func() fleet.EvalID { return fleet.EvalID(w.cfg.NewID()) }
		step := Next(p)
		if step.Command != nil {
			if w.commitStep(ctx, log, step) {
				seen = max(seen, step.Seen)
			} else {
				pace.Rest(ctx, retryAfter)
			}
			continue
		}
		took := time.Since(begun)
		w.waitForChange(ctx, view, step.Until)
		pace.Rest(ctx, max(w.cfg.Gather, pauseFactor*took))
	}
}

// snapshotOfDeployment is what is known of a deployment besides its Progress. It is read, not watched.
func snapshotOfDeployment(view *state.View, d *fleet.Deployment, now time.Time) DeploymentSnapshot {
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
	p.Alloc = view.Alloc
	p.Versions = func() []*fleet.Job { return view.JobVersions(d.Namespace, d.JobID) }
	p.Whole = func() []*fleet.Alloc {
		var all []*fleet.Alloc
		for a := range view.AllocsByJob(d.Namespace, d.JobID) {
			all = append(all, a)
		}
		return all
	}
	return p
}

// lastEvaluatedIndex is the newest entry that an evaluation of the deployment's job has
// looked at, or will.
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

// commitStep commits a step; false: it is to be tried again.
func (w *Watcher) commitStep(ctx context.Context, log *slog.Logger, step Step) bool {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := w.cfg.Apply.Apply(ctx, step.Command)
	if err := res.Failure(err); err != nil {
		log.Warn("deployment does not get on", "step", step.Why, "err", err)
		return false
	}
	log.Info("deployment gets on", "step", step.Why, "index", res.Index)
	return true
}

// waitForChange waits until something changes, or until a deadline.
func (w *Watcher) waitForChange(ctx context.Context, view *state.View, until time.Time) {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(until.Sub(w.cfg.Now()), time.Millisecond))
		defer cancel()
	}
	if err := view.Changed(ctx); err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn("deployment is not watched", "err", err)
	}
}
