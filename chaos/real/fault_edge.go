package real

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
)

func journalOf(e *cluster.Edge) string { return filepath.Join(e.Dir, "journal.db") }

// StartEdge starts an agent that a fault has ended.
func (p platform) StartEdge(_ context.Context, name string) error {
	defer p.s.expectUp(name)
	return p.s.startMachine(p.s.fleet.Edge(name))
}

// BootEdge starts the agent of a machine in a new boot, after a fault has ended the machine.
func (p platform) BootEdge(ctx context.Context, name string) error {
	defer p.s.expectUp(name)
	e := p.s.fleet.Edge(name)
	if e.Running() { // another fault has started the agent
		return e.StartDaemon(ctx)
	}
	err := e.Boot()
	p.s.observeProcess(e, check.ProcessStart)
	return err
}

// KillEdge kills an agent at once: real processes do not show the steps of their disk protocol.
func (p platform) KillEdge(_ context.Context, name, _ string) (bool, error) {
	return p.endMachine(name, check.ProcessKill, func(e *cluster.Edge) error { e.Kill(); return nil })
}

// StopEdge stops an agent gracefully; its tasks live on.
func (p platform) StopEdge(_ context.Context, name string) error {
	_, err := p.endMachine(name, check.ProcessKill, func(e *cluster.Edge) error { return e.Stop() })
	return err
}

// CutPower kills the processes of a machine; if it has its own disk, data that was not synced is lost.
func (p platform) CutPower(_ context.Context, name, _ string) (bool, error) {
	return p.endMachine(name, check.ProcessPowerCut, (*cluster.Edge).PowerCut)
}

// ShutDown stops an agent gracefully, and then kills its tasks.
func (p platform) ShutDown(_ context.Context, name string) error {
	_, err := p.endMachine(name, check.ProcessReboot, (*cluster.Edge).Shutdown)
	return err
}

// endMachine calls end for an edge, and records that its process ended in the way that `what` names.
func (p platform) endMachine(name, what string, end func(*cluster.Edge) error) (bool, error) {
	p.s.expectDown(name)
	e := p.s.fleet.Edge(name)
	err := end(e)
	p.s.observeProcess(e, what)
	return err == nil, err
}

// PauseEdge stops the process of an agent (SIGSTOP); healing continues it.
func (p platform) PauseEdge(ctx context.Context, name string, _ schedule.Fault) (engine.Active, error) {
	return pauseMember(ctx, &p.s.fleet.Edge(name).Member)
}

// DamageEdge kills an edge's agent, or cuts its power for a torn page, and damages its journal.
func (p platform) DamageEdge(ctx context.Context, name string, f schedule.Fault) (uint64, error) {
	e := p.s.fleet.Edge(name)
	p.s.keepJournalRows(e)
	end, damage := p.KillEdge, func() error { return flipBits(journalOf(e), f.Params.Bits) }
	if f.Kind == schedule.TornPage {
		end, damage = p.CutPower, func() error { return tearPage(journalOf(e)) }
	}
	if _, err := end(ctx, name, ""); err != nil {
		return 0, err
	}
	return 1, e.WithPower(damage) // a power cut may go on, of another fault
}

// firstBack is the time in which the first machine has to reconnect before its clone starts. A
// machine without a session could not be distinguished from its clone.
const firstBack = 15 * time.Second

// CloneEdge starts a second machine with a copy of an edge's data. Healing removes it. The evidence
// is that the cluster fenced the clone. No clone starts if the first machine does not reconnect.
func (p platform) CloneEdge(ctx context.Context, name string, _ schedule.Fault) (engine.Active, error) {
	first := p.s.fleet.Edge(name)
	// The second machine has no container daemon: it must not use the first one's.
	none := filepath.Join(p.s.Dir, "no.sock")
	second, err := p.s.fleet.NewEdge(p.s.cloneName(), append(slices.Clone(first.Flags), "--docker-socket", none, "--podman-socket", none)...)
	if err != nil {
		return engine.Active{}, err
	}
	fenced := ""
	a := engine.Active{
		Heal: func(ctx context.Context) error {
			soon, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			if st, err := second.Local().Status(soon); err == nil {
				fenced = st.Link.Fenced
			}
			return second.Scrap()
		},
		Evidence: func() (uint64, string) {
			if fenced == "" {
				return 0, "the clone was not fenced in its time"
			}
			return 1, "the clone of " + name + " was fenced: " + fenced
		},
	}
	if _, err := p.KillEdge(ctx, name, ""); err != nil {
		return a, err
	}
	// The second machine's directory exists: its disk may be mounted there.
	err = first.WithPower(func() error { return replaceData(first.Dir, second.Dir) })
	if err = errors.Join(err, p.StartEdge(ctx, name)); err != nil {
		return a, err
	}
	if back := cluster.Eventually(ctx, firstBack, "the first machine is back", func(ctx context.Context) string { return linkProblem(ctx, first) }); back != nil {
		return a, ctx.Err() // no clone is started, and there will be no evidence
	}
	return a, second.Start()
}

// linkProblem describes why an edge is not connected, ready and fully acknowledged; "": it is.
func linkProblem(ctx context.Context, e *cluster.Edge) string {
	st, err := e.Local().Status(ctx)
	if err != nil {
		return err.Error()
	}
	if st.Link.State != "connected" || st.Link.Status != "ready" || st.Journal.Unacknowledged > 0 {
		return "its link is " + st.Link.State
	}
	return ""
}

// OnSite returns a client of the local API of an edge.
func (p platform) OnSite(name string) engine.OnSite { return p.s.fleet.Edge(name).Local() }

// DataDir returns the path of an edge's data directory.
func (p platform) DataDir(name string) string { return p.s.fleet.Edge(name).Dir }
