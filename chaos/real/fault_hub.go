package real

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/faultnet"
	"skerry/chaos/schedule"
)

var hubKinds = []realKind{
	{kind: schedule.HubKill, effects: []check.Effect{check.Halts}, hub: newHubKill},
	{kind: schedule.LeaderKill, effects: []check.Effect{check.Halts}, hub: newHubKill},
	{kind: schedule.HubPause, effects: []check.Effect{check.Halts}, hub: func(_ *campaignRun, _ schedule.Fault, h *cluster.Hub) memberFault {
		return &paused{name: h.Name, who: h}
	}},
	{kind: schedule.MinorityCut, effects: []check.Effect{check.Severs}, hub: func(s *campaignRun, _ schedule.Fault, h *cluster.Hub) memberFault {
		return &impaired{net: s.Net, member: h.Name, with: faultnet.Dead()}
	}},
	{kind: schedule.MajorityCut, effects: []check.Effect{check.Severs}, whole: func(s *campaignRun, _ schedule.Fault) memberFault {
		t := &combinedFault{}
		for _, h := range s.fleet.Hubs[1:] {
			t.all = append(t.all, &impaired{net: s.Net, member: h.Name, with: faultnet.Dead()})
		}
		return t
	}},
	{kind: schedule.Restore, effects: []check.Effect{check.Rewinds, check.Halts}, whole: func(s *campaignRun, _ schedule.Fault) memberFault {
		return &restored{s: s}
	}},
	{kind: schedule.MassRejoin, effects: []check.Effect{check.Severs}, edge: newCut},
}

// combinedFault is trouble of several at once.
type combinedFault struct{ all []memberFault }

func (t *combinedFault) injectFault(ctx context.Context) error {
	var errs []error
	for _, one := range t.all {
		errs = append(errs, one.injectFault(ctx))
	}
	return errors.Join(errs...)
}

func (t *combinedFault) healFault(ctx context.Context) error {
	var errs []error
	for _, one := range t.all {
		errs = append(errs, one.healFault(ctx))
	}
	return errors.Join(errs...)
}

func (t *combinedFault) faultEvidence() (hits uint64, what string) {
	for _, one := range t.all {
		n, said := one.faultEvidence()
		hits += n
		if what != "" {
			what += "; "
		}
		what += said
	}
	return hits, what
}

// stoppedProcess is a member's process that is gone until it is started again.
type stoppedProcess struct {
	s    *campaignRun
	name string
	// how ends it, and again starts it.
	how, again func() error
	what       string
	done       bool
}

func (t *stoppedProcess) injectFault(context.Context) error {
	t.s.expectDown(t.name)
	if err := t.how(); err != nil {
		return err
	}
	t.done = true
	return nil
}

func (t *stoppedProcess) healFault(context.Context) error {
	defer t.s.expectUp(t.name)
	return t.again()
}

func (t *stoppedProcess) faultEvidence() (uint64, string) {
	if !t.done {
		return 0, ""
	}
	return 1, t.name + ": " + t.what
}

// newHubKill kills a hub; one with a disk of its own loses its power, so that what
// it did not sync is gone as well.
func newHubKill(s *campaignRun, _ schedule.Fault, h *cluster.Hub) memberFault {
	t := &stoppedProcess{s: s, name: h.Name, again: func() error { return s.startHub(h) }}
	if h.Disk == nil {
		t.how = func() error { h.Kill(); s.processEnded(h.Name, false, check.ProcessKill); return nil }
		t.what = "killed"
		return t
	}
	t.how = func() error {
		err := h.PowerCut()
		s.processEnded(h.Name, false, check.ProcessPowerCut)
		return err
	}
	t.what = "killed, and its disk forgot what was not synced"
	return t
}

// pausable is a member's process.
type pausable interface {
	Pause() error
	Resume() error
	Stopped() (bool, error)
}

// paused is a process that stands still.
type paused struct {
	name  string
	who   pausable
	since time.Time
	stood time.Duration
}

func (t *paused) injectFault(ctx context.Context) error {
	if err := t.who.Pause(); err != nil {
		return fmt.Errorf("pause %s: %w", t.name, err)
	}
	err := cluster.Eventually(ctx, 5*time.Second, t.name+" stands still", func(context.Context) string {
		if still, err := t.who.Stopped(); err != nil || !still {
			return fmt.Sprintf("some of its threads run (%v)", err)
		}
		return ""
	})
	t.since = time.Now()
	return err
}

func (t *paused) healFault(context.Context) error {
	if still, err := t.who.Stopped(); err == nil && still && !t.since.IsZero() {
		t.stood = time.Since(t.since)
	}
	if err := t.who.Resume(); err != nil {
		return fmt.Errorf("resume %s: %w", t.name, err)
	}
	return nil
}

func (t *paused) faultEvidence() (uint64, string) {
	if t.stood == 0 {
		return 0, ""
	}
	return 1, fmt.Sprintf("%s: stood still for %s", t.name, t.stood.Round(time.Millisecond))
}

// restored puts all hubs back to their copies of the last quiet time.
type restored struct {
	s    *campaignRun
	done bool
}

func (t *restored) injectFault(context.Context) error {
	if !t.s.saved {
		return nil
	}
	hubs := t.s.fleet.Hubs
	for _, h := range hubs {
		t.s.expectDown(h.Name)
		h.Kill()
		t.s.processEnded(h.Name, false, check.ProcessKill)
	}
	for _, h := range hubs {
		if err := replaceData(t.s.savedDir(h), h.Dir); err != nil {
			return err
		}
		// Whoever restores a copy has it durable before the hub starts on it.
		if h.Disk == nil {
			continue
		}
		if err := h.Disk.Sync(); err != nil {
			return err
		}
	}
	t.s.recordHubsRewound()
	t.done = true
	return nil
}

func (t *restored) healFault(ctx context.Context) error {
	if !t.done {
		return nil
	}
	t.s.watch.pauseAppliedEntries() // until the fault's end is known
	for _, h := range t.s.fleet.Hubs {
		if err := t.s.startHub(h); err != nil {
			return err
		}
		t.s.expectUp(h.Name)
	}
	for _, h := range t.s.fleet.Hubs {
		if err := h.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *restored) faultEvidence() (uint64, string) {
	if !t.done {
		return 0, "there was no copy yet"
	}
	for _, e := range t.s.fleet.Edges {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		st, err := e.Local().Status(ctx)
		cancel()
		if err == nil && st.Link.WentBack != "" {
			return 1, fmt.Sprintf("%s says: %s", e.Name, st.Link.WentBack)
		}
	}
	return 0, "no edge says that the cluster went back"
}
