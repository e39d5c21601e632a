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

// Active is a fault that is in force.
type Active struct {
	// Heal ends it; nil: there is nothing to heal.
	Heal func(ctx context.Context) error
	// Evidence is how often it really did something, and what. It may come late.
	Evidence func() (hits uint64, what string)
	// Late says that it does so only after it was brought about: by the next packet to an
	// address that an edge no longer has, the next question to a clock that is wrong.
	Late bool
}

// Counted is evidence that is a number.
func Counted(hits func() uint64) func() (uint64, string) {
	return func() (uint64, string) { return hits(), "" }
}

// Done is a fault that was over at once and hit so often; there is nothing to heal.
func Done(hits uint64, what string) Active {
	return Active{Evidence: func() (uint64, string) { return hits, what }}
}

// Combine makes one of several: it hit as often as all of them.
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

func healAll(ctx context.Context, all []Active) error {
	var errs []error
	for _, a := range all {
		if a.Heal != nil {
			errs = append(errs, a.Heal(ctx))
		}
	}
	return errors.Join(errs...)
}

// Faults brings faults about on a platform, and heals them.
type Faults struct {
	Platform
	Users    *Users
	Topology schedule.Topology
	// Effects are what kinds excuse on this platform, where that is not what they excuse
	// elsewhere.
	Effects map[schedule.Kind][]check.Effect
	// Targets are the members that a fault is on, as the checkers are told.
	Targets func(f schedule.Fault) []string
	// Seed is of what faults choose by themselves.
	Seed uint64
	// HealBound is how long mending may take; 0: as long as it takes.
	HealBound time.Duration
	// AwaitEvidence waits for a fault that is over to show that it hit.
	AwaitEvidence func(ctx context.Context, f schedule.Fault, a Active)
	Observe       func(check.Observation)
	// Began and Ended are told of each fault; over is when it was healed.
	Began func(f schedule.Fault)
	Ended func(f schedule.Fault, over time.Time, hits uint64, what string)
}

// Play plays one fault at its time in the schedule. For a restore the hubs are copied before.
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

// playNow plays one fault, from now on until it is over. It is healed also where ctx ends
// meanwhile, or where it could not be brought about as a whole.
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

// abandonedHealBound is HealBound where the run is given up: what has to be waited for is not.
const abandonedHealBound = time.Second

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

// Pause lets d pass; false: ctx ended before.
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
