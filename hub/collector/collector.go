// Package collector keeps the cluster's state from growing for ever: the leader's
// component that removes evaluations, allocations, jobs and nodes that nobody needs any
// more.
//
// hub.Open runs Lead on leadership; it is one goroutine, which blocks on time and on
// the log. Everything may be collected at once by whoever asks any hub for it
// (Force). What goes is chosen by Choose, which is pure, and is checked again when
// the entry is applied; a leader that dies in the middle leaves the rest to the next
// one. It persists nothing.
package collector

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"skerry/hub/state"
)

// Thresholds are how long things are kept after they are over.
type Thresholds struct {
	Evals       time.Duration // and allocations
	BatchEvals  time.Duration // and allocations of batch jobs
	Jobs        time.Duration
	Nodes       time.Duration
	Deployments time.Duration
}

// Defaults are Nomad's.
func Defaults() Thresholds {
	return Thresholds{Evals: time.Hour, BatchEvals: 24 * time.Hour, Jobs: 4 * time.Hour, Nodes: 24 * time.Hour, Deployments: time.Hour}
}

const (
	// defaultEvery is how often the leader collects.
	defaultEvery = 5 * time.Minute
	// maxEntryRemovals bounds what one entry removes.
	maxEntryRemovals = 2000
	applyTimeout     = 10 * time.Second
)

// Config of a Collector. State and Apply are required.
type Config struct {
	State *state.Store
	Apply state.Applier // as the leader
	// Anywhere commits from any hub, for Force; nil: Apply.
	Anywhere   state.Applier
	Every      time.Duration // 0: 5 min
	Thresholds *Thresholds   // nil: Defaults
	Now        func() time.Time
	Log        *slog.Logger
}

// Collector collects garbage.
type Collector struct {
	cfg Config
}

// New checks the configuration.
func New(cfg Config) (*Collector, error) {
	if cfg.State == nil || cfg.Apply == nil {
		return nil, errors.New("make the collector: state and applier are required")
	}
	if cfg.Anywhere == nil {
		cfg.Anywhere = cfg.Apply
	}
	if cfg.Every == 0 {
		cfg.Every = defaultEvery
	}
	if cfg.Thresholds == nil {
		d := Defaults()
		cfg.Thresholds = &d
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Collector{cfg: cfg}, nil
}

// Lead collects now and then until ctx ends.
func (c *Collector) Lead(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.collectGarbage(ctx, c.cfg.Apply, *c.cfg.Thresholds); err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn("garbage not collected", "error", err)
		}
	}
}

// Force collects everything that is over, however new it is.
func (c *Collector) Force(ctx context.Context) error {
	return c.collectGarbage(ctx, c.cfg.Anywhere, Thresholds{})
}

func (c *Collector) collectGarbage(ctx context.Context, apply state.Applier, t Thresholds) error {
	choice := Choose(c.cfg.State.View(), c.cfg.Now(), t)
	if choice.Empty() {
		return nil
	}
	for _, cmd := range choice.Commands(maxEntryRemovals) {
		cmd.Now = c.cfg.Now().UnixNano()
		if err := commitRemoval(ctx, apply, cmd); err != nil {
			return err
		}
	}
	c.cfg.Log.Info("garbage collected", "allocations", len(choice.Allocs), "evaluations", len(choice.Evals),
		"jobs", len(choice.Jobs), "nodes", len(choice.Nodes), "deployments", len(choice.Deployments))
	return nil
}

func commitRemoval(ctx context.Context, apply state.Applier, cmd state.Collect) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := apply.Apply(ctx, cmd)
	return res.Failure(err)
}
