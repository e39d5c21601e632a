// Package collector is the garbage collector of the replicated state. On the leader it removes
// evaluations, allocations, deployments, jobs and nodes that have ended and that nothing needs, and it ends prefetches
// that nobody waits for.
//
// hub.Open runs Lead on leadership; it is one goroutine, which waits for time and for commits. Force
// collects at once, on any hub. Choose, which is pure, chooses the objects, and the entry is checked
// again when it is applied. A leader that dies in between leaves the rest to the next one. The package
// persists nothing.
package collector

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"skerry/hub/state"
)

// Thresholds are how long objects are kept after their end.
type Thresholds struct {
	Evals       time.Duration // and allocations
	BatchEvals  time.Duration // and allocations of batch jobs
	Jobs        time.Duration
	Nodes       time.Duration
	Deployments time.Duration
}

// Defaults returns Nomad's thresholds.
func Defaults() Thresholds {
	return Thresholds{Evals: time.Hour, BatchEvals: 24 * time.Hour, Jobs: 4 * time.Hour, Nodes: 24 * time.Hour, Deployments: time.Hour}
}

const (
	// defaultEvery is how often the leader collects.
	defaultEvery = 5 * time.Minute
	// prefetchesKept is how long nodes keep what they fetched beforehand, after the newest request.
	prefetchesKept = 30 * 24 * time.Hour
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

// Lead collects every Config.Every until ctx ends. A failure is logged, and the next round tries again.
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

// Force collects every object that has ended, whatever its age. It works on any hub.
func (c *Collector) Force(ctx context.Context) error {
	return c.collectGarbage(ctx, c.cfg.Anywhere, Thresholds{})
}

// collectGarbage chooses objects by the thresholds and commits their removal, entry by entry, until
// one fails.
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
	for ended := range slices.Chunk(choice.Prefetches, maxEntryRemovals) {
		if err := commitRemoval(ctx, apply, state.PrefetchEnd{Prefetches: ended, Now: c.cfg.Now().UnixNano()}); err != nil {
			return err
		}
	}
	if err := c.collectTokens(ctx, apply, choice); err != nil {
		return err
	}
	c.cfg.Log.Info("garbage collected", "allocations", len(choice.Allocs), "evaluations", len(choice.Evals),
		"jobs", len(choice.Jobs), "nodes", len(choice.Nodes), "deployments", len(choice.Deployments), "prefetches", len(choice.Prefetches),
		"acl_tokens", len(choice.ACLTokens))
	return nil
}

// collectTokens commits the removal of tokens and site codes that have ended.
func (c *Collector) collectTokens(ctx context.Context, apply state.Applier, choice Choice) error {
	for ended := range slices.Chunk(choice.ACLTokens, maxEntryRemovals) {
		if err := commitRemoval(ctx, apply, state.ACLExpire{Tokens: ended, Now: c.cfg.Now().UTC()}); err != nil {
			return err
		}
	}
	for ended := range slices.Chunk(choice.OneTime, maxEntryRemovals) {
		if err := commitRemoval(ctx, apply, state.ACLExpire{OneTime: ended, Now: c.cfg.Now().UTC()}); err != nil {
			return err
		}
	}
	for ended := range slices.Chunk(choice.SiteCodes, maxEntryRemovals) {
		if err := commitRemoval(ctx, apply, state.SiteCodeExpire{IDs: ended, Now: c.cfg.Now().UTC()}); err != nil {
			return err
		}
	}
	return nil
}

func commitRemoval(ctx context.Context, apply state.Applier, cmd state.Command) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := apply.Apply(ctx, cmd)
	return res.Failure(err)
}
