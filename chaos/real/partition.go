package real

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// Partition is a run of random faults on real processes.
type Partition struct {
	Ground
	Hubs   int
	Edges  int
	Rounds int
	Seed   uint64
}

// ErrVoid is returned by Run where a kind of fault never hit, so that the run
// proves nothing about it.
var ErrVoid = errors.New("the run is void")

// Bounds of one round.
const (
	cutShortest = 300 * time.Millisecond
	cutLongest  = 5 * time.Second
	// rebootBound is how long tasks may take to run again after a reboot without a
	// link (on a machine that runs the whole fleet at once).
	rebootBound = 10 * time.Second
	// voidBelow is from how many rounds on every kind of fault has to have hit.
	voidBelow = 20
)

// partition is a Partition under way.
type partition struct {
	*fleetRun
	Partition
	rng        *rand.Rand
	jobs       []fleet.JobID
	hits       map[string]int
	violations []check.Violation
	rebooted   []time.Duration
	settled    []time.Duration
	log        []string // of this round
}

// Run runs the rounds and judges each. Everything that it started is gone when
// it returns; Dir stays.
func (p Partition) Run(ctx context.Context) error {
	p.printLine("partition: %d hubs, %d edges, %d rounds, seed %d, files in %s", p.Hubs, p.Edges, p.Rounds, p.Seed, p.Dir)
	return p.runOnFleet(ctx, fast(p.Hubs, p.Edges), func(s *fleetRun) error {
		r := &partition{fleetRun: s, Partition: p, rng: rand.New(rand.NewPCG(p.Seed, 0x5ce44)), hits: map[string]int{}}
		if err := r.registerPartitionJobs(ctx); err != nil {
			return err
		}
		for i := range p.Rounds {
			if err := r.playRound(ctx, i+1); err != nil {
				return fmt.Errorf("round %d (seed %d): %w", i+1, p.Seed, err)
			}
			if len(r.violations) > 0 {
				break
			}
		}
		return r.printPartitionVerdict()
	})
}

// registerPartitionJobs registers the jobs and waits until they run: one that keeps its
// allocations whatever happens, one that replaces them.
func (r *partition) registerPartitionJobs(ctx context.Context) error {
	soon, replace := 3*time.Second, true
	specs := []struct {
		id         fleet.JobID
		disconnect *fleet.Disconnect
	}{
		{"keep", nil},
		{"replace", &fleet.Disconnect{LostAfter: &soon, Replace: &replace, Reconcile: fleet.ReconcileKeepOriginal}},
	}
	for _, s := range specs {
		if err := r.runJobUntilQuiet(ctx, workload(s.id, r.Edges, r.starts, s.disconnect)); err != nil {
			return err
		}
		r.jobs = append(r.jobs, s.id)
	}
	return nil
}

// playRound breaks things, mends them, waits until all is quiet, and judges.
func (r *partition) playRound(ctx context.Context, number int) error {
	r.log = nil
	if err := r.playRoundFaults(ctx); err != nil {
		return err
	}
	if err := r.healAllMembers(ctx); err != nil {
		return err
	}
	took, picture, err := r.waitUntilQuiet(ctx)
	if err != nil {
		r.violations = append(r.violations, check.Violation{Invariant: check.Settled, Message: err.Error()})
	}
	r.settled = append(r.settled, took)
	found := check.Quiet(picture)
	verdict := "ok"
	if len(found) > 0 {
		verdict = fmt.Sprintf("%d VIOLATIONS", len(found))
	}
	fmt.Fprintf(r.fleetRun.Out, "round %3d: %s; quiet after %.1fs: %s\n", number, strings.Join(r.log, ", "), took.Seconds(), verdict)
	for _, v := range found {
		fmt.Fprintf(r.fleetRun.Out, "    %s\n", v)
	}
	r.violations = append(r.violations, found...)
	return nil
}

func (r *partition) recordFaultHit(kind, format string, args ...any) {
	r.hits[kind]++
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// printPartitionVerdict prints the verdicts.
func (r *partition) printPartitionVerdict() error {
	fmt.Fprintf(r.fleetRun.Out, "\nfaults that hit:")
	var never []string
	for _, kind := range Faults() {
		fmt.Fprintf(r.fleetRun.Out, " %s %d", kind, r.hits[kind])
		if r.hits[kind] == 0 {
			never = append(never, kind)
		}
	}
	fmt.Fprintf(r.fleetRun.Out, "\nquiet again after: median %s, longest %s\n", median(r.settled), longest(r.settled))
	fmt.Fprintf(r.fleetRun.Out, "tasks back after a reboot without a link: median %s, longest %s (%d reboots)\n", median(r.rebooted), longest(r.rebooted), len(r.rebooted))
	fmt.Fprint(r.fleetRun.Out, verdicts(r.violations, len(r.settled)))
	switch {
	case len(r.violations) > 0:
		return fmt.Errorf("%w: %s; repeat it with --seed %d, files are in %s", ErrViolated, r.violations[0], r.Seed, r.fleetRun.Dir)
	case len(never) > 0 && r.Rounds >= voidBelow:
		return fmt.Errorf("%w: never hit: %s", ErrVoid, strings.Join(never, ", "))
	}
	return nil
}
