package consensus_test

import (
	"context"
	"errors"
	"testing"

	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/state"
)

// watchedContext is a context that tells when it is first looked at: Decide has noted by
// then on what it decides.
type watchedContext struct {
	context.Context
	once chan struct{}
}

func (c watchedContext) Done() <-chan struct{} {
	select {
	case c.once <- struct{}{}:
	default:
	}
	return c.Context.Done()
}

// mustStartHeldHub starts a hub that leads alone and does not get further in applying pool "hold"
// than to close reached, until hold is closed.
func mustStartHeldHub(t *testing.T) (one *hub, reached <-chan struct{}, hold chan<- struct{}) {
	t.Helper()
	at, on := make(chan struct{}), make(chan struct{})
	c := newCluster(t, func(cfg *consensus.Config) {
		cfg.Applied = func(a consensus.Applied) {
			if p, ok := a.Command.(state.Pool); ok && p.Pool.Name == "hold" {
				close(at)
				<-on
			}
		}
	})
	one = c.mustStart("one", "", true)
	one.mustApply(t, "a")
	return one, at, on
}

// A command that goes alone comes behind all that was given to raft before it. What
// was decided before it, and waits, is refused; what is decided behind it is taken.
func TestWhatWasDecidedBeforeACommandThatGoesAlone(t *testing.T) {
	one, reached, hold := mustStartHeldHub(t)
	type answer struct {
		index fleet.Index
		err   error
	}
	give := func(f func(context.Context, state.Command) (state.Result, error), ctx context.Context, name string) <-chan answer {
		out := make(chan answer, 1)
		go func() {
			res, err := f(ctx, pool(name))
			out <- answer{res.Index, err}
		}()
		return out
	}
	before := give(one.Decide, t.Context(), "hold")
	<-reached
	alone := give(one.Alone, t.Context(), "alone")
	mustSoon(t, func() error {
		if !one.AloneWaits() {
			return errors.New("it does not wait for what is being applied")
		}
		return nil
	})
	seen := watchedContext{t.Context(), make(chan struct{}, 1)}
	decided := give(one.Decide, seen, "decided")
	<-seen.once
	close(hold)
	first, second := <-before, <-alone
	if first.err != nil || second.err != nil || second.index <= first.index {
		t.Fatalf("what was given before is %+v, what goes alone %+v", first, second)
	}
	if got := <-decided; fleet.CodeOf(got.err) != fleet.CodeNotLeader {
		t.Errorf("what was decided before, on another state: %+v", got)
	}
	if got := <-give(one.Decide, t.Context(), "after"); got.err != nil || got.index <= second.index {
		t.Errorf("what was decided after: %+v", got)
	}
	if one.hasPool("decided") {
		t.Error("it was applied nevertheless")
	}
}

// A command that goes alone and whose caller leaves while it waits is not given to raft
// when its turn has come, and keeps nobody waiting until then.
func TestACommandThatGoesAloneIsGivenUp(t *testing.T) {
	one, reached, hold := mustStartHeldHub(t)
	held := make(chan error, 1)
	go func() {
		_, err := one.Decide(t.Context(), pool("hold"))
		held <- err
	}()
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	alone := make(chan error, 1)
	go func() {
		_, err := one.Alone(ctx, pool("alone"))
		alone <- err
	}()
	mustSoon(t, func() error {
		if !one.AloneWaits() {
			return errors.New("it does not wait for what is being applied")
		}
		return nil
	})
	cancel()
	if err := <-alone; err == nil {
		t.Error("it is said to be committed")
	}
	mustSoon(t, func() error { // though what it waited for is still being applied
		if one.AloneWaits() {
			return errors.New("it waits, and nobody for it")
		}
		return nil
	})
	close(hold)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	one.mustApply(t, "b")
	if one.hasPool("alone") {
		t.Error("it was applied nevertheless")
	}
}
