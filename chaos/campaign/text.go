package campaign

import (
	"fmt"
	"strings"
	"time"

	"skerry/chaos/history"
)

// formatRunLine is one run on one line.
func formatRunLine(n int, r history.Run) string {
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
