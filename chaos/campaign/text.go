package campaign

import (
	"fmt"
	"strings"
	"time"

	"skerry/chaos/history"
)

// line is one run on one line.
func line(n int, r history.Run) string {
	var faults, hits uint64
	for _, f := range r.Faults {
		faults += f.Times
		if f.Hits > 0 {
			hits += f.Times - f.Missed
		}
	}
	s := fmt.Sprintf("%4d  %-12s %-10s %8s in %6s  %2d faults, %2d hit", n, r.Name, r.Outcome,
		r.Lasted.Round(time.Second), r.Wall.Round(100*time.Millisecond), faults, hits)
	for _, v := range r.Violations {
		s += fmt.Sprintf("  %s ×%d", v.Invariant, v.Count)
	}
	if r.Outcome != history.Pass && len(r.Reasons) > 0 {
		s += "  " + strings.Join(r.Reasons[:1], "")
	}
	return s
}

// text is the campaign for people.
func text(c history.Campaign) string {
	t := c.Totals()
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d runs: %d pass, %d violation, %d void, %d broken\n", t.Histories,
		t.Outcomes[history.Pass], t.Outcomes[history.Violated], t.Outcomes[history.Void], t.Outcomes[history.Broken])
	hours := t.Virtual.Hours()
	fmt.Fprintf(&b, "%.1f virtual cluster-hours in %s on %d cores", hours, c.Wall.Round(time.Second), c.Cores)
	if hours > 0 {
		fmt.Fprintf(&b, " (%.2f s of one core an hour)", c.Wall.Seconds()*float64(c.Cores)/hours)
	}
	fmt.Fprintf(&b, "\n%d records, %d operations, %d refusals, %d faults (%.0f an hour)\n\n", t.Records, t.Operations, t.Refused,
		t.Times, float64(t.Times)/max(hours, 1e-9))
	fmt.Fprintf(&b, "  %-16s %6s %6s %10s %6s\n", "fault", "times", "missed", "hits", "runs")
	for _, f := range t.Faults {
		fmt.Fprintf(&b, "  %-16s %6d %6d %10d %6d\n", f.Fault, f.Times, f.Missed, f.Hits, f.Runs)
	}
	fmt.Fprintf(&b, "\n  %-44s %8s %6s\n", "branch", "times", "runs")
	for _, s := range t.Sometimes {
		fmt.Fprintf(&b, "  %-44s %8d %6d\n", s.Name, s.Count, s.Runs)
	}
	for _, v := range t.Violations {
		fmt.Fprintf(&b, "\n  BROKEN %s %d times", v.Invariant, v.Count)
	}
	if why := c.Shortcomings(); len(why) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(why, "\n"))
	}
	return b.String()
}
