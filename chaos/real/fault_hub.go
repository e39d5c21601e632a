package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
)

// leaderPatience is the maximum time of a search for the leader; after that there is none.
const leaderPatience = 5 * time.Second

// LeadingHub returns the name of the running leader; "": none was found.
func (p platform) LeadingHub(ctx context.Context) string {
	soon, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	leader, err := p.s.findRunningLeader(soon)
	if err != nil {
		return ""
	}
	return leader.Name
}

// KillHub kills a hub at once. If it has its own disk, data that was not synced is lost.
func (p platform) KillHub(_ context.Context, name, _ string) error {
	p.s.expectDown(name)
	h, how := p.s.fleet.Machine(name), check.ProcessKill
	if h.Common().Disk != nil {
		how = check.ProcessPowerCut
	}
	err := h.PowerCut()
	p.s.observeProcess(h, how)
	return err
}

// StartHub starts a hub that a fault has ended, and does not wait until it is ready.
func (p platform) StartHub(_ context.Context, name string) error {
	defer p.s.expectUp(name)
	return p.s.startMachine(p.s.fleet.Machine(name))
}

// PauseHub stops the process of a hub (SIGSTOP); healing continues it.
func (p platform) PauseHub(ctx context.Context, name string, _ schedule.Fault) (engine.Active, error) {
	return pauseMember(ctx, p.s.fleet.Machine(name).Common())
}

// pauseMember stops a process with SIGSTOP and waits until all of its threads are stopped. Healing
// continues it. The evidence is the time for which it was stopped. It does nothing to a process that another fault has
// ended.
func pauseMember(ctx context.Context, who *cluster.Member) (engine.Active, error) {
	name := who.Name
	var since time.Time
	var stood time.Duration
	a := engine.Active{
		Heal: func(context.Context) error {
			if still, err := who.Stopped(); err == nil && still && !since.IsZero() {
				stood = time.Since(since)
			}
			if err := who.Resume(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return fmt.Errorf("resume %s: %w", name, err)
			}
			return nil
		},
		Evidence: func() (uint64, string) {
			if stood == 0 {
				return 0, ""
			}
			return 1, fmt.Sprintf("%s: stood still for %s", name, stood.Round(time.Millisecond))
		},
	}
	pid := who.Pid()
	switch err := who.Pause(); {
	case errors.Is(err, os.ErrProcessDone):
		return a, nil
	case err != nil:
		return a, fmt.Errorf("pause %s: %w", name, err)
	}
	err := cluster.Eventually(ctx, 5*time.Second, name+" stands still", func(context.Context) string {
		if still, err := who.Stopped(); who.Pid() == pid && (err != nil || !still) {
			return fmt.Sprintf("some of its threads run (%v)", err)
		}
		return ""
	})
	since = time.Now()
	return a, err
}

// CopyHubs copies the data of all hubs for a later RestoreHubs of the same fault. It pauses all hubs
// meanwhile, so that the copies are of one moment.
func (p platform) CopyHubs(ctx context.Context, f schedule.Fault) error {
	var paused []engine.Active
	var err error
	for _, h := range p.s.fleet.Hubs {
		a, failed := pauseMember(ctx, &h.Member)
		paused, err = append(paused, a), errors.Join(err, failed)
	}
	for _, h := range p.s.fleet.Hubs {
		if err == nil {
			err = h.WithPower(func() error { return replaceData(h.Dir, p.copyOf(f, h)) })
		}
	}
	return errors.Join(err, engine.Combine(paused).Heal(ctx))
}

// copyOf returns the path of a hub's copy for a Restore fault.
func (p platform) copyOf(f schedule.Fault, h *cluster.Hub) string {
	return filepath.Join(p.s.Dir, engine.CopiesDir, f.At.String(), h.Name)
}

// RestoreHubs replaces the data of all hubs, which must be down, by their copies. Healing starts the
// hubs. The evidence is that an edge reports that the cluster went back.
func (p platform) RestoreHubs(_ context.Context, f schedule.Fault) (engine.Active, error) {
	a := engine.Active{Heal: p.startRestoredHubs, Evidence: p.restoreEvidence}
	for _, h := range p.s.fleet.Hubs {
		if err := h.WithPower(func() error {
			err := replaceData(p.copyOf(f, h), h.Dir)
			if err == nil && h.Disk != nil {
				err = h.Disk.Sync() // a restored copy has to be durable before the hub starts with it
			}
			return err
		}); err != nil {
			return a, err
		}
	}
	p.s.mu.Lock()
	p.s.rewound = true
	p.s.mu.Unlock()
	return a, nil
}

// startRestoredHubs starts all hubs and waits until they are ready. The entries that they apply are
// judged only after recordFaultEnd.
func (p platform) startRestoredHubs(ctx context.Context) error {
	p.s.watch.pauseAppliedEntries() // until the fault's end is known
	for _, h := range p.s.fleet.Hubs {
		if err := p.StartHub(ctx, h.Name); err != nil {
			return err
		}
	}
	for _, h := range p.s.fleet.Hubs {
		if err := h.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restoreEvidence returns 1 and an edge's report if an edge reports that the cluster went back.
func (p platform) restoreEvidence() (uint64, string) {
	for _, e := range p.s.fleet.Edges {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		st, err := e.Local().Status(ctx)
		cancel()
		if err == nil && st.Link.WentBack != "" {
			return 1, fmt.Sprintf("%s says: %s", e.Name, st.Link.WentBack)
		}
	}
	return 0, "no edge says that the cluster went back"
}
