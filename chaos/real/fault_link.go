package real

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/faultnet"
	"skerry/chaos/schedule"
)

var linkKinds = []realKind{
	{kind: schedule.LinkCut, effects: []check.Effect{check.Severs}, edge: newCut},
	{kind: schedule.Flapping, effects: []check.Effect{check.Severs}, edge: func(s *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault {
		return &flapping{net: s.Net, member: e.Name, gone: f.Params.Phases, there: f.Params.Phases}
	}},
	{kind: schedule.OfflineOn, effects: []check.Effect{check.Severs}, edge: func(s *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault {
		return &flapping{net: s.Net, member: e.Name, gone: always(f.Params.Off), there: always(f.Params.On)}
	}},
	{kind: schedule.NATRebind, effects: []check.Effect{check.Impairs}, edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &moved{what: "packets under new ports", move: func() (func() uint64, error) { return s.Net.Rebind(e.Name) }}
	}},
	{kind: schedule.AddressChange, needs: needs{netns: true}, effects: []check.Effect{check.Impairs}, edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &moved{what: "packets to the new address", move: func() (func() uint64, error) { return s.space.Move(e.Name) }}
	}},
	{kind: schedule.LinkProfile, effects: []check.Effect{check.Impairs}, edge: func(s *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault {
		return &impaired{net: s.Net, member: e.Name, with: profile(f.Params.Profile)}
	}},
}

func always(d time.Duration) schedule.Span { return schedule.Span{Shortest: d, Longest: d} }

// profile is how links behave that are not cut.
func profile(p schedule.Profile) faultnet.Impairment {
	const mbit = 1_000_000 / 8
	switch p {
	case schedule.Satellite:
		return faultnet.Both(faultnet.Way{Delay: 300 * time.Millisecond, Jitter: 25 * time.Millisecond, Loss: 0.02, Rate: 25 * mbit})
	case schedule.Cellular3G:
		return faultnet.Both(faultnet.Way{Delay: 75 * time.Millisecond, Jitter: 37 * time.Millisecond, Loss: 0.01, Rate: mbit})
	}
	return faultnet.Both(faultnet.Way{Delay: 5 * time.Millisecond, Loss: 0.1, Reorder: 0.1, Duplicate: 0.05})
}

// newCut is a cut in one direction or both, silent or refused.
func newCut(s *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault {
	if f.Params.Refused && s.space != nil {
		return &refusal{space: s.space, member: e.Name}
	}
	with := faultnet.Dead()
	switch f.Params.Way {
	case schedule.WayOut:
		with.In = faultnet.Way{}
	case schedule.WayIn:
		with.Out = faultnet.Way{}
	}
	return &impaired{net: s.Net, member: e.Name, with: with}
}

// impaired is a link that is worse than it was.
type impaired struct {
	net    faultnet.Network
	member string
	with   faultnet.Impairment
	lies   *faultnet.Imposed
}

func (t *impaired) injectFault(context.Context) (err error) {
	t.lies, err = t.net.Impose(t.member, t.with)
	return err
}

func (t *impaired) healFault(context.Context) error {
	if t.lies != nil {
		t.lies.Lift()
	}
	return nil
}

func (t *impaired) faultEvidence() (uint64, string) {
	if t.lies == nil {
		return 0, ""
	}
	tally := t.lies.Tally()
	return tally.Touched(), fmt.Sprintf("%s: %s", t.member, tally)
}

// flapping is a link that is gone and there by turns.
type flapping struct {
	net         faultnet.Network
	member      string
	gone, there schedule.Span

	cancel context.CancelFunc
	over   sync.WaitGroup
	mu     sync.Mutex
	turns  uint64 // guarded by mu: times that it was gone and packets were lost
	err    error  // guarded by mu
}

func (t *flapping) injectFault(ctx context.Context) error {
	ctx, t.cancel = context.WithCancel(ctx)
	t.over.Go(func() {
		for ctx.Err() == nil {
			lost, err := t.cutLinkOnce(ctx)
			t.mu.Lock()
			t.err = errors.Join(t.err, err)
			if lost {
				t.turns++
			}
			t.mu.Unlock()
			if pause(ctx, within(t.there)) != nil {
				return
			}
		}
	})
	return nil
}

// cutLinkOnce takes the link away once.
func (t *flapping) cutLinkOnce(ctx context.Context) (lost bool, err error) {
	lies, err := t.net.Impose(t.member, faultnet.Dead())
	if err != nil {
		return false, err
	}
	defer lies.Lift()
	_ = pause(ctx, within(t.gone)) // the link comes back also where the run ends
	return lies.Tally().Dropped > 0, nil
}

func within(s schedule.Span) time.Duration {
	if s.Longest <= s.Shortest {
		return s.Shortest
	}
	return s.Shortest + time.Duration(rand.Int64N(int64(s.Longest-s.Shortest)))
}

func (t *flapping) healFault(context.Context) error {
	if t.cancel != nil {
		t.cancel()
		t.over.Wait()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *flapping) faultEvidence() (uint64, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turns, fmt.Sprintf("%s: gone %d times", t.member, t.turns)
}

// moved is a member that others see at another place from now on.
type moved struct {
	what    string
	move    func() (func() uint64, error)
	through func() uint64
}

func (t *moved) injectFault(context.Context) (err error) {
	t.through, err = t.move()
	return err
}

func (t *moved) healFault(context.Context) error { return nil }

func (t *moved) faultEvidence() (uint64, string) {
	if t.through == nil {
		return 0, ""
	}
	n := t.through()
	return n, fmt.Sprintf("%d %s", n, t.what)
}

// refusal is a cut that the member's own machine knows of: who sends is told so.
type refusal struct {
	space  *faultnet.Netns
	member string
	lies   *faultnet.Imposed
	said   error
}

func (t *refusal) injectFault(context.Context) (err error) {
	if t.lies, err = t.space.Impose(t.member, faultnet.Impairment{In: faultnet.Way{Cut: true}}); err != nil {
		return err
	}
	if err := t.space.Refuse(t.member); err != nil {
		return err
	}
	t.said = t.space.Refused(t.member)
	return nil
}

func (t *refusal) healFault(context.Context) error {
	if t.lies == nil {
		return nil
	}
	t.lies.Lift()
	return t.space.Accept(t.member)
}

func (t *refusal) faultEvidence() (uint64, string) {
	if t.said == nil {
		return 0, ""
	}
	return 1, fmt.Sprintf("%s: %v", t.member, t.said)
}
