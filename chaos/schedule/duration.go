package schedule

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// formatDuration formats a duration without zero units and with whole days: 1h30m, 2d12h.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	days := ""
	if n := d / day; n > 0 {
		days = strconv.FormatInt(int64(n), 10) + "d"
		d -= n * day
	}
	if d == 0 {
		return sign + days
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return sign + days + s
}

// parseDuration reads the output of formatDuration and the syntax of time.ParseDuration. It
// returns an error for a negative duration and for one that is outside of lo to hi.
func parseDuration(s string, lo, hi time.Duration) (time.Duration, error) {
	text, whole := s, time.Duration(0)
	days, rest, hasDays := strings.Cut(s, "d")
	if hasDays {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, durationError(s)
		}
		text, whole = cmp.Or(rest, "0s"), time.Duration(n)*day
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || len(s) > 40 {
		return 0, durationError(s)
	}
	if d += whole; d < lo || d > hi {
		return 0, fmt.Errorf("must be %s to %s, not %s", formatDuration(lo), formatDuration(hi), s)
	}
	return d, nil
}

func durationError(s string) error {
	return fmt.Errorf("must be a duration like 90s, 45m, 1h30m or 2d, not %q", s)
}

// String formats the range as 1s..30s.
func (s Span) String() string {
	return formatDuration(s.Shortest) + ".." + formatDuration(s.Longest)
}

// maxLabel bounds labels and names in a scenario.
const maxLabel = 64

// checkLabel returns an error unless s is a valid name of a hub, edge, site, pool or step:
// 1 to maxLabel letters, digits, '-', '_' and '.'.
func checkLabel(s string) error {
	if s == "" || len(s) > maxLabel {
		return fmt.Errorf("must be 1 to %d characters long", maxLabel)
	}
	for _, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && !strings.ContainsRune("-_.", r) {
			return fmt.Errorf("may have letters, digits, '-', '_' and '.', not %q", r)
		}
	}
	return nil
}

// label is a name in a schedule, with the word for the thing that it names, for messages.
type label struct{ of, name string }

// checkLabels adds a problem of item i of the part for each invalid name. Empty names are allowed.
func (ps *Problems) checkLabels(part Part, i int, labels ...label) {
	for _, l := range labels {
		if err := checkLabel(l.name); err != nil && l.name != "" {
			ps.add(part, i, "%s %s", l.of, err)
		}
	}
}
