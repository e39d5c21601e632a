package real

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/disk"
)

// reportVerdict is what the run comes to.
func (s *campaignRun) reportVerdict(err error) error {
	never, played := s.summarizeKindHits()
	s.printLine("\nfaults that hit: %s", played)
	s.printLine("what users did: %s", describeSteps(s.acked))
	s.printLine("quiet again after: median %s, longest %s", median(s.settled), longest(s.settled))
	s.printLine("waited for a processor: phases' median %s, longest %s", median(s.waited), longest(s.waited))
	vs := s.watch.judgeAtEnd()
	err = errors.Join(err, s.watch.exportReadError())
	fmt.Fprint(s.Out, formatVerdicts(s.watch.Monitor.Verdicts(), vs))
	switch {
	case len(vs) > 0:
		for _, v := range vs {
			s.printLine("    %s", v)
		}
		if why := stalled(longest(s.waited)); why != "" {
			s.printLine("    %s", why)
		}
		return errors.Join(fmt.Errorf("%w: %s; repeat it with --seed %d, files are in %s", ErrViolated, vs[0], s.Seed, s.Dir), err)
	case errors.Is(err, disk.ErrRemembers):
		return fmt.Errorf("%w: %w", ErrVoid, err)
	case err != nil:
		return err
	case s.expect != nil:
		return s.reportUnmet()
	case len(never) > 0:
		return fmt.Errorf("%w: never hit: %s", ErrVoid, strings.Join(never, ", "))
	}
	if never := s.unjudgedInvariants(); len(never) > 0 && s.Clocked != "" && s.For >= rollingRun {
		return fmt.Errorf("%w: never judged: %s", ErrVoid, strings.Join(never, ", "))
	}
	return nil
}

// reportUnmet is what the scenario's expectations come to.
func (s *campaignRun) reportUnmet() error {
	unmet := s.expect.Unmet()
	if len(unmet) == 0 {
		return nil
	}
	s.printLine("    %s", strings.Join(unmet, "\n    "))
	return fmt.Errorf("%w: %s", ErrViolated, unmet[0])
}

// rolloutInvariants are those that a campaign has to judge, or nothing was rolled out, launched or
// drained in it.
var rolloutInvariants = []check.Invariant{
	check.MaxParallel, check.Canaries, check.SiteBudget, check.NoneBetween, check.Deferred, check.LaunchedOnce, check.DrainsEnd, check.DeploymentsEnd,
}

// unjudgedInvariants names those of them that were never judged.
func (s *campaignRun) unjudgedInvariants() (never []string) {
	for _, v := range s.watch.Monitor.Verdicts() {
		if slices.Contains(rolloutInvariants, v.Invariant) && v.Judged == 0 {
			never = append(never, v.Invariant.Slug())
		}
	}
	return never
}

// longRun is from which length on every kind has to have come up: each is due within
// a few phases. In a shorter one bad luck has to come twice: a crash that finds no
// task, a rebind behind a cut.
const (
	longRun = 15 * time.Minute
	badLuck = 2
)

// rollingRun is from which length on rollouts, launches and drains have to have come up:
// there is one every few seconds.
const rollingRun = 2 * time.Minute

// summarizeKindHits lists the kinds that were tried, and never hit; and renders all counts.
func (s *campaignRun) summarizeKindHits() (never []string, all string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var counts []string
	for _, k := range s.possibleKinds() {
		counts = append(counts, fmt.Sprintf("%s %d", k, s.played[k]))
		if s.hits[k] == 0 && (s.played[k] >= badLuck || s.For >= longRun || s.Rounds >= voidBelow) {
			never = append(never, string(k))
		}
	}
	return never, strings.Join(counts, ", ")
}

// formatVerdicts renders how each invariant fared that was judged, or found to be broken.
func formatVerdicts(all []check.Verdict, found []check.Violation) string {
	broken := map[check.Invariant]int{}
	for _, v := range found {
		broken[v.Invariant]++
	}
	var b strings.Builder
	for _, v := range all {
		verdict := "holds"
		if n := broken[v.Invariant]; n > 0 {
			verdict = fmt.Sprintf("BROKEN %d times", n)
		} else if v.Judged == 0 {
			continue
		}
		fmt.Fprintf(&b, "  %-22s %-14s %s (judged %d times)\n", v.Invariant.Slug(), verdict, v.Invariant.Statement(), v.Judged)
	}
	return b.String()
}

// quietVerdicts are those of invariants that so many snapshots of a quiet fleet were judged by.
func quietVerdicts(snapshots int) (all []check.Verdict) {
	for _, i := range check.Checked() {
		all = append(all, check.Verdict{Invariant: i, Judged: uint64(snapshots)})
	}
	return all
}
