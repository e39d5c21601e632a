package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// span is a state that lasted. merged is how many changes were drawn together as
// it; 0: it is one state.
type span struct {
	from, to time.Duration
	state    string
	merged   int
	of       string // what was so, where several share a row
}

// mixed is the state of a span that stands for several.
const mixed = "mixed"

// stateSpans is what one thing was, over time: spans without an overlap, in order.
// While the last one is open, its end is not known.
type stateSpans struct {
	spans []span
	open  bool
}

// maxSpans bounds the spans of one thing while they are collected; then the shortest are merged.
const maxSpans = 4096

// setState notes that from now on the state is another one; "" is none.
func (l *stateSpans) setState(at time.Duration, state string) {
	if l.open {
		last := &l.spans[len(l.spans)-1]
		if last.state == state {
			return
		}
		last.to, l.open = max(last.from, at), false
		if last.to == last.from { // it never was
			l.spans = l.spans[:len(l.spans)-1]
		}
	}
	if state == "" {
		return
	}
	if n := len(l.spans); n > 0 && l.spans[n-1].state == state && l.spans[n-1].to == at {
		l.open = true
		return
	}
	if len(l.spans) >= maxSpans {
		l.spans = mergeShortSpans(l.spans, l.spans[len(l.spans)-1].to/(maxSpans/4))
	}
	l.spans = append(l.spans, span{from: at, to: at, state: state})
	l.open = true
}

// currentState is what it is now; "": nothing.
func (l *stateSpans) currentState() string {
	if !l.open {
		return ""
	}
	return l.spans[len(l.spans)-1].state
}

// close ends what is open at the end of the run.
func (l *stateSpans) close(at time.Duration) {
	if l.open {
		last := &l.spans[len(l.spans)-1]
		last.to, l.open = max(last.from, at), false
	}
}

// mergeShortSpans draws neighbours together until a stretch of them lasts for at least
// shortest. What lasts that long by itself stays as it is.
func mergeShortSpans(spans []span, shortest time.Duration) []span {
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && s.isShorterThan(shortest) && out[n-1].isShorterThan(shortest) && s.from-out[n-1].to < shortest {
			last := &out[n-1]
			last.merged = last.changeCount() + s.changeCount()
			last.to, last.state = max(last.to, s.to), mixed
			if last.of != s.of {
				last.of = ""
			}
			continue
		}
		out = append(out, s)
	}
	return slices.Clip(out)
}

func (s span) isShorterThan(shortest time.Duration) bool { return s.to-s.from < shortest }

// changeCount is how many states it stands for.
func (s span) changeCount() int { return max(s.merged, 1) }

// describeSpan says what it is, for people.
func (s span) describeSpan() string {
	what := s.state
	if s.merged > 0 {
		what = fmt.Sprintf("%d changes", s.merged)
	}
	if s.of != "" {
		what = s.of + ": " + what
	}
	return fmt.Sprintf("%s, %s to %s (%s)", what, stamp(s.from), stamp(s.to), stamp(s.to-s.from))
}

// stamp prints a time or a duration: to the millisecond below a second, to a tenth
// below an hour, to the second above, with days.
func stamp(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + stamp(-d)
	case d < time.Second:
		d = d.Round(time.Millisecond)
	case d < time.Hour:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	const day = 24 * time.Hour
	if d < 2*day {
		return trimmed(d)
	}
	if rest := d % day; rest != 0 {
		return fmt.Sprintf("%dd%s", d/day, trimmed(rest))
	}
	return fmt.Sprintf("%dd", d/day)
}

// trimmed prints a duration without units that are zero at its end: 1h, not 1h0m0s.
func trimmed(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
