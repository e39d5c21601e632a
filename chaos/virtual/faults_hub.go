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

// stepPatience is how long a kill waits for its step.
const stepPatience = 20 * time.Second

// LeadingHub is the hub that leads.
func (r *run) LeadingHub(context.Context) string {
	if h := r.c.Leader(); h != nil {
		return h.Name
	}
	return ""
}

// KillHub ends a hub's process.
func (r *run) KillHub(ctx context.Context, name, step string) error {
	h := r.c.Hub(name)
	if step != "" {
		h.killAtStep(ctx, step)
	}
	r.observeProcess(name, false, check.ProcessKill)
	return h.Crash()
}

// StartHub starts a hub, unless it runs.
func (r *run) StartHub(ctx context.Context, name string) error {
	h := r.c.Hub(name)
	if h.Running() {
		return nil
	}
	if err := h.Crash(); err != nil { // what is left of a process that gave up
		return err
	}
	r.observeProcess(h.Name, false, check.ProcessStart)
	return h.Start(ctx)
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

// PauseHub has a hub stand still.
func (r *run) PauseHub(_ context.Context, name string, _ schedule.Fault) (engine.Active, error) {
	return changedNetwork(r.c.Hub(name).Host.Pause()), nil
}

// RestoreHubs puts all hubs back to their copies.
func (r *run) RestoreHubs(ctx context.Context, f schedule.Fault) (engine.Active, error) {
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

// CopyHubs copies the hubs' data.
func (r *run) CopyHubs(_ context.Context, f schedule.Fault) error {
	time.Sleep(quietOffset)
	for _, h := range r.c.Hubs {
		if err := replaceDir(h.Dir, r.copyDir(f, h)); err != nil {
			return fmt.Errorf("copy the data of %s: %w", h.Name, err)
		}
	}
	return nil
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
