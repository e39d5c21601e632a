// Package diskspace keeps free space on the disk of an edge's data directory. Above a threshold it collects ended
// allocations whose end the hubs have confirmed, and then stored contents that no allocation needs. If too little is
// free even then, no new allocation starts until there is space again. Allocations that have begun are never affected.
//
// edge.Open makes a Keeper. Run is its only goroutine; the other methods may be called from any. It persists nothing:
// it measures again after a start.
package diskspace

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// checkInterval is the time between two measurements.
const checkInterval = 10 * time.Second

// Config of a Keeper. All fields are required.
type Config struct {
	Limits  Limits
	Measure func() (Usage, error) // with an error, the usage is zero
	// CollectOldest removes the allocation that ended first among those that may be removed. false: there is none.
	CollectOldest func(ctx context.Context) (bool, error)
	// Evict removes at least so many bytes of stored contents that no allocation needs, or all such contents.
	Evict func(bytes int64) error
	// Record journals, in a row, that new allocations wait, or no longer wait.
	Record func(ctx context.Context, message string) error
	Log    *slog.Logger
}

// Keeper keeps free space on a disk.
type Keeper struct {
	cfg Config

	recorded string // the reason of the last journaled row; owned by Run
	failure  string // the last logged error; owned by Run

	mu      sync.Mutex
	full    string        // why no new allocation starts
	changed chan struct{} // closed when full changes, then replaced
}

// New makes a Keeper and measures the disk. It collects nothing.
func New(cfg Config) (*Keeper, error) {
	if cfg.Measure == nil || cfg.CollectOldest == nil || cfg.Evict == nil || cfg.Record == nil || cfg.Log == nil {
		return nil, errors.New("watch the space of the disk: all fields but the limits are required")
	}
	k := &Keeper{cfg: cfg, changed: make(chan struct{})}
	if u, err := cfg.Measure(); err == nil {
		k.full = cfg.Limits.whyFull(u, false)
	}
	return k, nil
}

// WhyFull returns why no new allocation may start; "": it may.
func (k *Keeper) WhyFull() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.full
}

// Changed returns a channel that is closed when WhyFull next changes.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// Run keeps free space until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		k.checkSpace(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// checkSpace measures the disk, collects above the thresholds, and decides whether new allocations may start. An
// error is logged when it differs from the last one.
func (k *Keeper) checkSpace(ctx context.Context) {
	u, err := k.collectExcess(ctx)
	if ctx.Err() != nil {
		return
	}
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if failure != k.failure && err != nil {
		k.cfg.Log.Warn("space of the disk is not collected", "error", err)
	}
	k.failure = failure
	if u == (Usage{}) {
		return // not known
	}
	k.setFull(k.cfg.Limits.whyFull(u, k.WhyFull() != ""), u)
	k.recordChange(ctx)
}

// collectExcess measures the disk, and collects while that helps. It returns the last measurement.
func (k *Keeper) collectExcess(ctx context.Context) (Usage, error) {
	l, full := k.cfg.Limits, k.WhyFull() != ""
	u, err := k.cfg.Measure()
	bytes, inodes := l.excessSpace(u, full)
	var failed error // of the last collection
	for removed := true; err == nil && removed && bytes+inodes > 0; bytes, inodes = l.excessSpace(u, full) {
		if removed, failed = k.cfg.CollectOldest(ctx); removed {
			u, err = k.cfg.Measure()
		}
	}
	if err == nil && bytes > 0 {
		failed = errors.Join(failed, k.cfg.Evict(bytes))
		u, err = k.cfg.Measure()
	}
	return u, errors.Join(err, failed)
}

// setFull sets why no new allocation may start, and logs a change.
func (k *Keeper) setFull(why string, u Usage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if why == k.full {
		return
	}
	if k.full = why; why != "" {
		k.cfg.Log.Warn("new allocations wait: the disk is almost full", "reason", why, "free_kib", u.Free>>10, "free_inodes", u.FreeInodes)
	} else {
		k.cfg.Log.Info("new allocations start again: the disk has free space", "free_kib", u.Free>>10, "free_inodes", u.FreeInodes)
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// recordChange journals a change of WhyFull. If that fails, the next check tries again.
func (k *Keeper) recordChange(ctx context.Context) {
	why := k.WhyFull()
	if why == k.recorded {
		return
	}
	message := "new allocations start again: the disk has free space"
	if why != "" {
		message = "new allocations wait: " + why
	}
	if err := k.cfg.Record(ctx, message); err != nil {
		k.cfg.Log.Debug("change of the disk's space not recorded: trying again", "error", err)
		return
	}
	k.recorded = why
}
