// Package drainer empties nodes that are being drained: the leader's component that
// flags their allocations to go elsewhere, a group at a time as its migrate block
// allows, stops what is left at a drain's deadline, and says when a drain is done.
//
// hub.Open runs Lead on leadership; it is one goroutine, which blocks on the state
// and on time. Which allocation stops and what takes its place the scheduler decides
// (reconcile), on an evaluation that comes with the flag in one entry. It persists
// nothing: all that it knows is in the state, so that a new leader goes on where the
// last one was.
//
// What it decides is pure (Next, Group.Step, Node.Left), and each step is one entry:
// a leader that dies leaves either all of a step or nothing of it.
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

// What paces the drainer.
const (
	gatherFor    = 100 * time.Millisecond // between two looks at the state
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

// Lead drains until ctx ends.
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
			pace.Rest(ctx, gatherFor) // what changes at once is looked at once
		}
	}
	return nil
}

func (d *Drainer) commitDrainStep(ctx context.Context, step state.DrainStep) bool {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	step.EvalSeed = fleet.NewUUID(nil)
	res, err := d.cfg.Apply.Apply(ctx, step)
	if err = res.Failure(err); err != nil {
		d.cfg.Log.Warn("drain does not get on", "error", err)
		return false
	}
	d.cfg.Log.Info("nodes drained", "migrate", len(step.Migrate), "done", len(step.Done))
	return true
}
