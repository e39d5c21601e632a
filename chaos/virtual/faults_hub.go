package virtual

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// hubInjectors are what happens to hubs.
var hubInjectors = map[schedule.Kind]faultInjector{
	schedule.HubKill:     {onHubs(killHub), []check.Effect{check.Halts}},
	schedule.LeaderKill:  {killLeader, []check.Effect{check.Halts}},
	schedule.HubPause:    {onHubs(pauseHub), []check.Effect{check.Halts}},
	schedule.HubDiskFull: {onHubs(fillHub), []check.Effect{check.Chokes, check.Halts}},
	schedule.Restore:     {restore, []check.Effect{check.Rewinds, check.Halts}},
}

const (
	// stepPatience is how long a kill waits for its step.
	stepPatience = 20 * time.Second
)

// killHub ends a hub's process.
func (r *run) killHub(_ context.Context, h *Hub) error {
	r.observeProcess(h.Name, false, check.ProcessKill, "")
	return h.Crash()
}

// startHub starts a hub, unless it runs or the run is over.
func (r *run) startHub(ctx context.Context, h *Hub) error {
	if h.Running() {
		return nil
	}
	if err := h.Crash(); err != nil { // what is left of a process that gave up
		return err
	}
	r.observeProcess(h.Name, false, check.ProcessStart, "")
	return h.Start(ctx)
}

func killHub(ctx context.Context, r *run, h *Hub, f schedule.Fault) (activeFault, error) {
	if f.Params.Step != "" {
		h.killAtStep(ctx, f.Params.Step)
	}
	if err := r.killHub(ctx, h); err != nil {
		return activeFault{}, err
	}
	return r.restartAfterFault(ctx, f, func(ctx context.Context) error { return r.startHub(ctx, h) })
}

// killAtStep waits until the hub comes to a step of its disk protocol, and lets nothing
// more reach its disk from there on.
func (h *Hub) killAtStep(ctx context.Context, label string) {
	h.mu.Lock()
	l := h.life
	h.mu.Unlock()
	if l == nil {
		return
	}
	sprung := make(chan struct{})
	h.Disk.trap.Store(&trap{label: label, spring: func() error {
		l.dead.Store(true)
		close(sprung)
		return errKilled
	}})
	defer h.Disk.trap.Store(nil)
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	select {
	case <-sprung:
	case <-ctx.Done():
	}
}

func killLeader(ctx context.Context, r *run, f schedule.Fault) (activeFault, error) {
	h := r.c.Leader()
	if h == nil {
		return instantFault(0), nil
	}
	return killHub(ctx, r, h, f)
}

func pauseHub(_ context.Context, _ *run, h *Hub, _ schedule.Fault) (activeFault, error) {
	f := h.Host.Pause()
	return activeFault{
		heal: func(context.Context) error { h.Host.Resume(); return nil },
		hits: func() uint64 { return uint64(f.Hits()) },
	}, nil
}

func fillHub(_ context.Context, r *run, h *Hub, _ schedule.Fault) (activeFault, error) {
	before := h.Disk.Hits()
	h.Disk.Fill(true)
	return activeFault{
		heal: func(ctx context.Context) error {
			h.Disk.Fill(false)
			pause(ctx, time.Second) // until a process that gave up has ended
			return r.startHub(ctx, h)
		},
		hits: func() uint64 { return uint64(h.Disk.Hits() - before) },
	}, nil
}

// restore puts all hubs back to a copy of their data that is as old as the fault says. The
// copy was made by keepCopies.
func restore(ctx context.Context, r *run, f schedule.Fault) (activeFault, error) {
	var errs []error
	for _, h := range r.c.Hubs {
		errs = append(errs, r.killHub(ctx, h))
	}
	if err := errors.Join(errs...); err != nil {
		return activeFault{}, err
	}
	r.rewindWantedJobs(f)
	back := 0
	for _, h := range r.c.Hubs {
		if err := replaceDir(r.copyDir(f, h), h.Dir); err != nil {
			return activeFault{}, err
		}
		back++
	}
	for _, h := range r.c.Hubs {
		if err := r.startHub(ctx, h); err != nil {
			return activeFault{}, err
		}
	}
	return instantFault(back), nil
}

// keepCopy copies the hubs' data for a restore that comes later.
func (r *run) keepCopy(f schedule.Fault) error {
	time.Sleep(quietOffset)
	for _, h := range r.c.Hubs {
		if err := replaceDir(h.Dir, r.copyDir(f, h)); err != nil {
			return fmt.Errorf("copy the data of %s: %w", h.Name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copied[f.At] = maps.Clone(r.wanted)
	return nil
}

// rewindWantedJobs makes wanted what the copy knows: the rest is forgotten, and nobody registers
// it again.
func (r *run) rewindWantedJobs(f schedule.Fault) {
	r.mu.Lock()
	known := maps.Clone(r.copied[f.At])
	r.wanted = known
	r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(known)) {
		job := known[id]
		if job == nil {
			job = &fleet.Job{ID: id, Stop: true}
		}
		r.judgeAndRecord(check.Observation{Job: job})
	}
}

func (r *run) copyDir(f schedule.Fault, h *Hub) string {
	return filepath.Join(r.c.cfg.Dir, fmt.Sprintf("copy-%s-%s", f.At, h.Name))
}

// replaceDir makes to a copy of from.
func replaceDir(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

// restartAfterFault is the wound of a process that is down: it is started again at once where the
// fault has no duration.
func (r *run) restartAfterFault(ctx context.Context, f schedule.Fault, start func(ctx context.Context) error) (activeFault, error) {
	if f.For > 0 {
		return activeFault{heal: start, hits: func() uint64 { return 1 }}, nil
	}
	pause(ctx, time.Second)
	if err := start(ctx); err != nil {
		return activeFault{}, err
	}
	return instantFault(1), nil
}
