package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// span is a state with its time. merged is the number of short states that it stands for; 0: it is one state.
type span struct {
	from, to time.Duration
	state    string
	merged   int
	of       string // the thing that had the state, where several share a row
}

// mixed is the state of a span that stands for several states.
const mixed = "mixed"

// stateSpans is the states of one thing over time: spans in order, without overlaps. While open is true the end
// of the last span is not known.
type stateSpans struct {
	spans []span
	open  bool
}

// maxSpans bounds the spans of one thing while a history is read. At the bound the shortest are merged.
const maxSpans = 4096

// setState ends the present state at a time and begins another one; "": no state. The same state goes on. A
// state that lasted no time is dropped.
func (l *stateSpans) setState(at time.Duration, state string) {
	if l.open {
		last := &l.spans[len(l.spans)-1]
		if last.state == state {
			return
		}
		last.to, l.open = max(last.from, at), false
		if last.to == last.from { // it lasted no time
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

// currentState returns the present state; "": there is none.
func (l *stateSpans) currentState() string {
	if !l.open {
		return ""
	}
	return l.spans[len(l.spans)-1].state
}

// close ends the present state, where there is one, at the run's end.
func (l *stateSpans) close(at time.Duration) {
	if l.open {
		last := &l.spans[len(l.spans)-1]
		last.to, l.open = max(last.from, at), false
	}
}

// mergeShortSpans returns the spans with neighbours merged that are shorter than shortest, until each merged
// one lasts that long. Spans that last that long by themselves stay.
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

// isShorterThan reports whether the span lasts less than shortest.
func (s span) isShorterThan(shortest time.Duration) bool { return s.to-s.from < shortest }

// changeCount returns the number of states that the span stands for.
func (s span) changeCount() int { return max(s.merged, 1) }

// describeSpan shows the span's thing, state and time on one line.
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

// stamp shows a time or a duration, rounded to a millisecond below a second, to a tenth of a second below an
// hour, else to a second. From two days on it shows days.
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
		return formatTrimmed(d)
	}
	if rest := d % day; rest != 0 {
		return fmt.Sprintf("%dd%s", d/day, formatTrimmed(rest))
	}
	return fmt.Sprintf("%dd", d/day)
}

// formatTrimmed shows a duration without zero units at its end: 1h, not 1h0m0s.
func formatTrimmed(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
