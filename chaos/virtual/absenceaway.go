package virtual

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
)

// shipFault is what happens to the ship's machine while it is away.
type shipFault struct {
	name  string
	power bool          // it is cut; else the machine, or the agent, is asked
	agent bool          // the agent alone is killed, and the machine goes on
	off   time.Duration // until it is started again
	// clock is what the machine's clock shows when it starts; zero: the right time.
	clock time.Time
}

// shipFaults come one after the other, and again from the first. A board without a clock
// battery wakes up at the same moment each time.
var shipFaults = []shipFault{
	{name: "reboot", off: 2 * time.Minute},
	{name: "reboot into 1970", off: 10 * time.Minute, clock: time.Unix(0, 0)},
	{name: "reboot into 1970", off: time.Minute, clock: time.Unix(0, 0)},
	{name: "power cut", power: true, off: 6 * time.Hour},
	{name: "agent killed", agent: true, off: time.Minute},
	{name: "reboot into 2100", off: time.Minute, clock: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)},
	{name: "reboot after 5 days", off: 5 * day},
	{name: "reboot into 1970", off: 3 * time.Minute, clock: time.Unix(0, 0)},
}

// Bounds of the time from one trouble to the next, where the absence is long.
const (
	minFaultInterval = 10 * day
	maxFaultInterval = 30 * day
)

// drawTimeToNextFault is the time to the next trouble, and what it is at most.
func (t *absence) drawTimeToNextFault() (next, longest time.Duration) {
	longest = min(maxFaultInterval, time.Duration(t.a.Days)*day/4)
	shortest := min(minFaultInterval, longest/3)
	return shortest + time.Duration(t.rng.Int64N(int64(longest-shortest))), longest
}

// spendTimeAlone is the time in which nobody but the ship is there. The last trouble leaves its
// clock in 1970.
func (t *absence) spendTimeAlone(ctx context.Context) error {
	io, from := writtenBytes(), t.elapsedTime()
	wall := t.wall()
	end := t.out.Left + time.Duration(t.a.Days)*day
	for n := 0; ; n++ {
		next, longest := t.drawTimeToNextFault()
		what := shipFaults[n%len(shipFaults)]
		last := t.elapsedTime()+next+what.off+longest > end
		if last {
			what = shipFaults[len(shipFaults)-1]
		}
		if err := t.passTimeOnShip(ctx, next); err != nil {
			return err
		}
		if err := t.playShipFault(ctx, what); err != nil {
			return err
		}
		if last {
			break
		}
	}
	if err := t.passTimeOnShip(ctx, end-t.elapsedTime()); err != nil {
		return err
	}
	t.out.Alone = t.elapsedTime() - from
	t.out.AloneWall = t.wall() - wall
	t.out.Written = writtenBytes() - io
	return nil
}

// passTimeOnShip lets time pass, with a look at the ship each day.
func (t *absence) passTimeOnShip(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ; {
		if !engine.Pause(ctx, min(day, time.Until(end))) {
			return ctx.Err()
		}
		t.observeEdge(ctx, t.ship, true)
		if _, j := t.ship.Agent().SyncStatus(); j.Bytes > t.out.JournalBytes {
			t.out.JournalBytes = j.Bytes
		}
		if !time.Now().Before(end) {
			return nil
		}
	}
}

// playShipFault is one trouble, from its beginning until the ship's agent runs again.
func (t *absence) playShipFault(ctx context.Context, what shipFault) error {
	kind, effects, process := schedule.EdgeReboot, []check.Effect{check.Halts, check.Reboots}, check.ProcessReboot
	switch {
	case what.power:
		kind, process = schedule.PowerCut, check.ProcessPowerCut
	case what.agent:
		kind, process, effects = schedule.EdgeKill, check.ProcessKill, effects[:1]
	}
	if !what.clock.IsZero() {
		effects = append(slices.Clone(effects), check.MovesTime)
	}
	over := t.recordFaultBegin(string(kind), effects, t.ship.Name)
	t.observeProcess(t.ship.Name, true, process)
	if err := t.stopShip(what); err != nil {
		return fmt.Errorf("%s: %w", what.name, err)
	}
	down := time.Now()
	if !engine.Pause(ctx, what.off) {
		return ctx.Err()
	}
	t.ship.Clock.Right()
	if !what.clock.IsZero() {
		t.ship.Clock.Set(what.clock)
	}
	if what.agent {
		if err := t.startEdge(t.ship); err != nil {
			return fmt.Errorf("%s: %w", what.name, err)
		}
	} else {
		if err := t.bootEdge(t.ship); err != nil {
			return fmt.Errorf("%s: %w", what.name, err)
		}
		t.out.Boots++
		t.out.Off += time.Since(down)
	}
	over(1)
	t.out.Troubles = append(t.out.Troubles, what.name)
	return nil
}

func (t *absence) stopShip(what shipFault) error {
	switch {
	case what.power:
		return t.ship.PowerCut()
	case what.agent:
		return t.ship.Kill()
	}
	return t.ship.Shutdown()
}
