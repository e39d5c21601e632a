package real

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/schedule"
)

var clockKinds = []realKind{
	{kind: schedule.ClockJump, needs: needs{clocks: true}, effects: []check.Effect{check.MovesTime}, edge: func(s *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault {
		return &jumped{s: s, edge: e, by: func() time.Duration { return f.Params.Jump }}
	}},
	{kind: schedule.Clock1970, needs: needs{clocks: true}, effects: []check.Effect{check.MovesTime, check.Halts, check.Reboots}, edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &jumped{
			s: s, edge: e,
			by: func() time.Duration { return time.Until(time.Unix(30, 0)) },
			boot: &stoppedProcess{
				s: s, name: e.Name, what: "booted",
				how: func() error {
					err := e.Shutdown()
					s.processEnded(e.Name, true, check.ProcessReboot)
					return err
				},
				again: func() error { return s.bootEdge(e) },
			},
		}
	}},
}

// jumped is a wall clock that is wrong, from a boot on where there is one.
type jumped struct {
	s    *campaignRun
	edge *cluster.Edge
	by   func() time.Duration
	boot *stoppedProcess // nil: the clock jumps under a running agent
	said string
}

func (t *jumped) injectFault(ctx context.Context) error {
	by := t.by()
	if t.boot == nil {
		return t.edge.Clock.Set(by)
	}
	if err := t.boot.injectFault(ctx); err != nil {
		return err
	}
	return errors.Join(t.edge.Clock.Set(by), t.boot.healFault(ctx))
}

// healFault has the agent journal something, looks at the time of it, and mends the
// clock.
func (t *jumped) healFault(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := t.checkJournaledTime(soon); err != nil {
		t.said = "" // an agent that does not answer shows nothing
	}
	return t.edge.Clock.Set(0)
}

func (t *jumped) checkJournaledTime(ctx context.Context) error {
	if err := t.s.restartTask(ctx, t.edge, "the clock is looked at"); err != nil {
		return err
	}
	rows, err := t.edge.Local().History(ctx, "")
	if err != nil || len(rows) == 0 {
		return err
	}
	last := time.Unix(0, rows[len(rows)-1].Wall)
	if seen, off := time.Until(last), t.by(); (seen-off).Abs() < off.Abs()/2+10*time.Minute && seen.Abs() > off.Abs()/2 {
		t.said = fmt.Sprintf("%s journals at %s", t.edge.Name, last.UTC().Format(time.DateTime))
	}
	return nil
}

func (t *jumped) faultEvidence() (uint64, string) {
	if t.said == "" {
		return 0, "its journal does not show it"
	}
	return 1, t.said
}
