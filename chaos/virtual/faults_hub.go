package virtual

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
)

// stepPatience is the maximum time that a kill waits for its disk step.
const stepPatience = 20 * time.Second

// LeadingHub returns the name of the leader; "": none leads.
func (r *run) LeadingHub(context.Context) string {
	if h := r.c.Leader(); h != nil {
		return h.Name
	}
	return ""
}

// KillHub kills a hub's daemon. If step is not "", it waits for that disk step for up to
// stepPatience, and then kills in any case.
func (r *run) KillHub(ctx context.Context, name, step string) error {
	h := r.c.Hub(name)
	if step != "" {
		h.killAtStep(ctx, step)
	}
	r.observeProcess(name, false, check.ProcessKill)
	return h.Crash()
}

// StartHub starts a hub's daemon, unless it runs, and does not wait until it is ready.
func (r *run) StartHub(ctx context.Context, name string) error {
	h := r.c.Hub(name)
	if h.Running() {
		return nil
	}
	if err := h.Crash(); err != nil { // clears the state of a daemon that ended by itself
		return err
	}
	r.observeProcess(h.Name, false, check.ProcessStart)
	return h.Start(ctx)
}

// killAtStep waits up to stepPatience until the hub comes to the disk step with a label, and makes this one and all later
// steps fail. If it does not come, nothing fails. In both cases the caller then has to call Crash.
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

// PauseHub holds all packets from and to a hub back until healed, as if its process were stopped.
func (r *run) PauseHub(_ context.Context, name string, _ schedule.Fault) (engine.Active, error) {
	return changedNetwork(r.c.Hub(name).Host.Pause()), nil
}

// RestoreHubs replaces the data of all hubs, which must be down, by the copies that CopyHubs made for
// the fault, and starts them.
func (r *run) RestoreHubs(ctx context.Context, f schedule.Fault) (engine.Active, error) {
	r.observeAudits()
	for _, h := range r.c.Hubs {
		if err := replaceDir(r.copyDir(f, h), h.Dir); err != nil {
			return engine.Active{}, err
		}
	}
	for _, h := range r.c.Hubs {
		if err := r.StartHub(ctx, h.Name); err != nil {
			return engine.Active{}, err
		}
	}
	return engine.Done(uint64(len(r.c.Hubs)), ""), nil
}

// CopyHubs copies the data directories of all hubs, for a later RestoreHubs of the same fault.
func (r *run) CopyHubs(_ context.Context, f schedule.Fault) error {
	time.Sleep(quietOffset)
	for _, h := range r.c.Hubs {
		if err := replaceDir(h.Dir, r.copyDir(f, h)); err != nil {
			return fmt.Errorf("copy the data of %s: %w", h.Name, err)
		}
	}
	return nil
}

// copyDir returns the path of a hub's copy for a Restore fault.
func (r *run) copyDir(f schedule.Fault, h *Hub) string {
	return filepath.Join(r.c.cfg.Dir, fmt.Sprintf("copy-%s-%s", f.At, h.Name))
}

// replaceDir deletes the directory to and copies the directory from there.
func replaceDir(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}
