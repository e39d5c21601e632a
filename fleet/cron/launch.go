package cron

import (
	"slices"
	"time"

	"skerry/fleet"
)

// Span is a range of launch times that are settled: each of a job's times within it was launched, or is not to be
// launched any more. Both ends belong to it. Times are Unix seconds.
type Span struct {
	From int64 `cbor:"1,keyasint"`
	To   int64 `cbor:"2,keyasint"`
}

// maxSpans bounds the spans that Settle keeps. Each outage that missed a launch, and each jump of a clock, makes one.
const maxSpans = 64

// Launches of a job that a clock decides on, which may be set: of several times that were missed only the newest is
// launched, and none is launched again after the clock was set back. Nothing before the first span is launched.

// Due returns the newest launch time that is over if it is not settled, and the next one that is to come and is not
// settled; zero for none. known is false if nothing says where to begin, because now is before the first of the sorted
// spans: SettleUpTo(now) says it.
func Due(p fleet.Periodic, spans []Span, now time.Time) (due, next time.Time, known bool, err error) {
	if len(spans) == 0 || spans[0].From > now.Unix() {
		return time.Time{}, time.Time{}, false, nil
	}
	first, err := Next(p, time.Unix(spans[0].From, 0))
	if err != nil || first.IsZero() {
		return time.Time{}, time.Time{}, true, err
	}
	if !first.After(now) {
		if due, err = lastBefore(p, first, now); err != nil {
			return time.Time{}, time.Time{}, true, err
		}
		if i := spanOf(spans, due); i >= 0 {
			due = time.Time{}
		}
	}
	next, err = Next(p, now)
	for i := spanOf(spans, next); err == nil && i >= 0; i = spanOf(spans, next) {
		next, err = Next(p, time.Unix(spans[i].To, 0))
	}
	return due, next, true, err
}

// spanOf returns the index of the span with a time; -1: none has it.
func spanOf(spans []Span, at time.Time) int {
	return slices.IndexFunc(spans, func(s Span) bool { return s.From <= at.Unix() && at.Unix() <= s.To })
}

// lastBefore returns the last launch time that is not after now. at is one of them.
func lastBefore(p fleet.Periodic, at, now time.Time) (time.Time, error) {
	for end := now; end.Sub(at) > time.Second; {
		middle := at.Add(end.Sub(at) / 2)
		next, err := Next(p, middle)
		if err != nil {
			return time.Time{}, err
		}
		if next.IsZero() || next.After(now) {
			end = middle // no launch is between it and now
		} else {
			at = next
		}
	}
	return at, nil
}

// SettleUpTo returns the spans with one that ends at a time or later: launches begin after it.
func SettleUpTo(spans []Span, at time.Time) []Span {
	if spanOf(spans, at) >= 0 {
		return spans
	}
	return insertSpan(spans, Span{at.Unix(), at.Unix()})
}

// Settle returns the spans with a launch time of the job. It extends the span whose next launch time that is.
func Settle(p fleet.Periodic, spans []Span, at time.Time) []Span {
	if spanOf(spans, at) >= 0 {
		return spans
	}
	before := -1
	for i, s := range spans {
		if s.To < at.Unix() {
			before = i
		}
	}
	if before >= 0 {
		if next, err := Next(p, time.Unix(spans[before].To, 0)); err == nil && next.Equal(at) {
			spans = slices.Clone(spans)
			spans[before].To = at.Unix()
			return spans
		}
	}
	return insertSpan(spans, Span{at.Unix(), at.Unix()})
}

// insertSpan returns the sorted spans with another one. If there are too many, the two oldest become one.
func insertSpan(spans []Span, s Span) []Span {
	i := slices.IndexFunc(spans, func(other Span) bool { return other.From > s.From })
	if i < 0 {
		i = len(spans)
	}
	spans = slices.Insert(slices.Clone(spans), i, s)
	if len(spans) > maxSpans {
		spans[1].From = spans[0].From
		spans = spans[1:]
	}
	return spans
}

// ValidSpans reports whether spans are sorted, no more than Settle keeps, and not reversed.
func ValidSpans(spans []Span) bool {
	for i, s := range spans {
		if s.From > s.To || i > 0 && s.From <= spans[i-1].To {
			return false
		}
	}
	return len(spans) <= maxSpans
}
