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

// reportVerdict prints the results of the run, which ended with err, and returns its verdict:
// ErrViolated for a violation or an unmet expectation, ErrVoid if it proves too little, or err.
func (s *campaignRun) reportVerdict(err error) error {
	never, played := s.summarizeKindHits()
	s.printLine("\nfaults that hit: %s", played)
	s.printLine("what users did: %s", describeSteps(s.acked))
	s.printLine("quiet again after: median %s, longest %s", median(s.settled), longest(s.settled))
	s.printLine("waited for a processor: phases' median %s, longest %s", median(s.waited), longest(s.waited))
	s.printLine("searched for secrets: %d times, %d files and answers, in %s: %s", s.searches, s.searched, s.searchTime.Round(time.Millisecond), s.marks.Describe())
	vs := s.watch.judgeAtEnd()
	err = errors.Join(err, s.watch.exportReadError(), s.searchErr)
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

// reportUnmet prints the unmet expectations of the scenario, and returns ErrViolated if there are any.
func (s *campaignRun) reportUnmet() error {
	unmet := s.expect.Unmet()
	if len(unmet) == 0 {
		return nil
	}
	s.printLine("    %s", strings.Join(unmet, "\n    "))
	return fmt.Errorf("%w: %s", ErrViolated, unmet[0])
}

// rolloutInvariants are the invariants about rollouts, periodic launches and drains. A long
// campaign is void if it judged one of them never.
var rolloutInvariants = []check.Invariant{
	check.MaxParallel, check.Canaries, check.SiteBudget, check.NoneBetween, check.Deferred, check.LaunchedOnce, check.DrainsEnd, check.DeploymentsEnd,
}

// unjudgedInvariants returns the names of the rolloutInvariants that were never judged.
func (s *campaignRun) unjudgedInvariants() (never []string) {
	for _, v := range s.watch.Monitor.Verdicts() {
		if slices.Contains(rolloutInvariants, v.Invariant) && v.Judged == 0 {
			never = append(never, v.Invariant.Slug())
		}
	}
	return never
}

// A run of at least longRun is void if a kind of fault never had an effect. In a shorter run
// that counts only for a kind that was played badLuck times: a single crash may find no task,
// and a single rebind may happen behind a cut.
const (
	longRun = 15 * time.Minute
	badLuck = 2
)

// rollingRun is the length from which on the rolloutInvariants have to be judged: users start
// a rollout, launch or drain every few seconds.
const rollingRun = 2 * time.Minute

// summarizeKindHits returns the kinds of fault that should have had an effect and never had one,
// and the number of faults of each kind as text.
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

// formatVerdicts returns a table with the verdict of each invariant that was judged or violated.
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

// quietVerdicts returns a verdict for each invariant that check.Quiet checks, judged that many times.
func quietVerdicts(snapshots int) (all []check.Verdict) {
	for _, i := range check.Checked() {
		all = append(all, check.Verdict{Invariant: i, Judged: uint64(snapshots)})
	}
	return all
}
