// Package drainer drains nodes on the leader. It marks their allocations for migration, in each group
// as many at a time as its migrate block permits, and the rest at a drain's deadline. It ends a drain
// when nothing is left.
//
// hub.Open runs Lead on leadership; it is one goroutine, which waits for the state and for time. The
// scheduler stops and replaces marked allocations, on an evaluation of the same entry. The package
// persists nothing: everything it needs is in the replicated state, so that a new leader continues.
//
// Its decisions are pure (Next, Group.Step, Node.Left), and each step is one entry: a leader that dies
// leaves all of a step or nothing of it.
package drainer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/pace"
)

// Pauses and bounds of the drainer.
const (
	gatherFor    = 100 * time.Millisecond // between two reads of the state
	retryAfter   = time.Second            // after a step that was not committed
	applyTimeout = 10 * time.Second
)

// Config of a Drainer. State and Apply are required.
type Config struct {
	State *state.Store
	Apply state.Applier
	Now   func() time.Time // nil: time.Now
	Log   *slog.Logger
}

// Drainer empties nodes.
type Drainer struct {
	cfg Config
}

// New checks the configuration.
func New(cfg Config) (*Drainer, error) {
	if cfg.State == nil || cfg.Apply == nil {
		return nil, errors.New("make the drainer: state and applier are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Drainer{cfg: cfg}, nil
}

// Lead commits the steps of all drains until ctx ends.
func (d *Drainer) Lead(ctx context.Context) error {
	for ctx.Err() == nil {
		view := d.cfg.State.Watch()
		step, again := Next(view, d.cfg.Now())
		if len(step.Migrate)+len(step.Done) > 0 {
			pause := gatherFor
			if !d.commitDrainStep(ctx, step) {
				pause = retryAfter
			}
			pace.Rest(ctx, pause)
			continue
		}
		wait, cancel := ctx, context.CancelFunc(func() {})
		if !again.IsZero() {
			wait, cancel = context.WithTimeout(ctx, again.Sub(d.cfg.Now()))
		}
		changed := view.Changed(wait) == nil
		cancel()
		if changed {
			pace.Rest(ctx, gatherFor) // changes that come together are read together
		}
	}
	return nil
}

// commitDrainStep commits a step and logs the outcome. false: not committed.
func (d *Drainer) commitDrainStep(ctx context.Context, step state.DrainStep) bool {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	step.EvalSeed = fleet.NewUUID(nil)
	res, err := d.cfg.Apply.Apply(ctx, step)
	if err = res.Failure(err); err != nil {
		d.cfg.Log.Warn("drain step not committed", "error", err)
		return false
	}
	d.cfg.Log.Info("drain step committed", "migrate", len(step.Migrate), "done", len(step.Done))
	return true
}
