package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
)

// Active is a fault that was injected.
type Active struct {
	// Heal ends the fault; nil: it is over already.
	Heal func(ctx context.Context) error
	// Evidence returns how often the fault had an effect, and which. It may grow after Heal.
	Evidence func() (hits uint64, what string)
	// Late says that the effect comes only some time after the injection: with the next packet
	// to an address that an edge no longer has, or the next reading of a wrong clock.
	Late bool
}

// Counted returns an Active.Evidence with a number of hits and no description.
func Counted(hits func() uint64) func() (uint64, string) {
	return func() (uint64, string) { return hits(), "" }
}

// Done returns a fault that is over at once, with this number of hits. There is nothing to heal.
func Done(hits uint64, what string) Active {
	return Active{Evidence: func() (uint64, string) { return hits, what }}
}

// Combine returns one fault for several: its hits are their sum, and its Heal heals all of them.
func Combine(all []Active) Active {
	c := Active{Evidence: func() (hits uint64, what string) {
		var said []string
		for _, a := range all {
			n, what := a.Evidence()
			hits += n
			if what != "" {
				said = append(said, what)
			}
		}
		return hits, strings.Join(said, "; ")
	}}
	for _, a := range all {
		c.Late = c.Late || a.Late
		if a.Heal != nil {
			c.Heal = func(ctx context.Context) error { return healAll(ctx, all) }
		}
	}
	return c
}

// healAll heals each fault that has something to heal, also after an error, and returns all errors joined.
func healAll(ctx context.Context, all []Active) error {
	var errs []error
	for _, a := range all {
		if a.Heal != nil {
			errs = append(errs, a.Heal(ctx))
		}
	}
	return errors.Join(errs...)
}

// Faults injects faults on a platform, and heals them. Its fields are set before Play is called.
type Faults struct {
	Platform
	Users    *Users
	Topology schedule.Topology
	// Effects replaces the effects of kinds of faults that differ on this platform.
	Effects map[schedule.Kind][]check.Effect
	// Targets returns the members that a fault affects, for the checkers.
	Targets func(f schedule.Fault) []string
	// Seed is the seed of the random choices that faults make (Random).
	Seed uint64
	// HealBound bounds the time of a Heal; 0: without a bound.
	HealBound time.Duration
	// AwaitEvidence waits, after a fault was healed, until its Evidence has a hit or is not expected any more.
	AwaitEvidence func(ctx context.Context, f schedule.Fault, a Active)
	Observe       func(check.Observation)
	// Began and Ended are called for each fault; over is when it was healed.
	Began func(f schedule.Fault)
	Ended func(f schedule.Fault, over time.Time, hits uint64, what string)
}

// Play waits until a fault's time in the schedule, injects it, heals it after its duration, and reports both to
// the checkers. For a restore it copies the hubs before. It returns early, without an error, where ctx ends
// before the fault.
func (p *Faults) Play(ctx context.Context, id int, f schedule.Fault) error {
	wait := func(at time.Duration) bool { return Pause(ctx, at-p.Users.Elapsed()) }
	if f.Kind == schedule.Restore {
		if !wait(f.At - f.Kind.Fill(f.Params).Age) {
			return nil
		}
		if err := p.CopyHubs(ctx, f); err != nil {
			return err
		}
		p.Users.keepWantedJobs(f)
	}
	if !wait(f.At) {
		return nil
	}
	return p.playNow(ctx, id, f)
}

// playNow injects a fault, waits for its duration, heals it, and reports its beginning and end. The fault is
// healed even where ctx ends meanwhile or only a part of it could be injected.
func (p *Faults) playNow(ctx context.Context, id int, f schedule.Fault) error {
	f.Params = f.Kind.Fill(f.Params)
	seen := check.Fault{ID: id, Kind: string(f.Kind), Detail: f.Detail(), Targets: p.Targets(f), Effects: p.effectsOf(f.Kind)}
	p.Observe(check.Observation{Fault: &seen})
	p.Began(f)
	a, err := p.injectFault(ctx, f)
	if err == nil {
		Pause(ctx, f.For)
	}
	if a.Heal != nil {
		err = errors.Join(err, p.healFault(ctx, a))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	over := time.Now()
	p.AwaitEvidence(ctx, f, a)
	end := seen
	hits, what := a.Evidence()
	end.End, end.Hits = true, hits
	p.Observe(check.Observation{Fault: &end})
	p.Ended(f, over, hits, what)
	return nil
}

// abandonedHealBound bounds a Heal after ctx has ended: conditions for which it would wait are then given up.
const abandonedHealBound = time.Second

// healFault calls the fault's Heal, which ctx does not cancel, within HealBound where there is one.
func (p *Faults) healFault(ctx context.Context, a Active) error {
	bound := p.HealBound
	if bound == 0 {
		return a.Heal(context.WithoutCancel(ctx))
	}
	if ctx.Err() != nil {
		bound = abandonedHealBound
	}
	healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	return a.Heal(healing)
}

// Pause waits for d, and reports false if ctx ended before.
func Pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
