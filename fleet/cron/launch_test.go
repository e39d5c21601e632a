package cron_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/fleet/cron"
)

var quarterly = fleet.Periodic{Spec: "*/15 * * * *"}

func clock(tb testing.TB, at string) time.Time {
	tb.Helper()
	return mustIn(tb, "UTC", "2026-07-01 "+at)
}

// ending is what a launcher uses of a test, or of a check of rapid.
type ending interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// launcher launches a job by a clock, as an edge does.
type launcher struct {
	ending
	p        fleet.Periodic
	spans    []cron.Span
	launched []time.Time
}

// look lets the launcher read a clock, and returns when it wants to read it again.
func (l *launcher) look(now time.Time) time.Time {
	l.Helper()
	due, next, known, err := cron.Due(l.p, l.spans, now)
	switch {
	case err != nil:
		l.Fatal(err)
	case !known:
		l.spans = cron.SettleUpTo(l.spans, now)
		return l.look(now)
	case !due.IsZero():
		l.launched = append(l.launched, due)
		l.spans = cron.Settle(l.p, l.spans, due)
	}
	if !cron.ValidSpans(l.spans) {
		l.Fatalf("at %s the spans are %v", now, l.spans)
	}
	return next
}

func TestLaunches(t *testing.T) {
	for name, tc := range map[string]struct {
		clock []string // as the launcher reads it
		want  []string
	}{
		"on time":                         {[]string{"10:05", "10:14", "10:15", "10:16", "10:30", "10:45"}, []string{"10:15", "10:30", "10:45"}},
		"not before it began":             {[]string{"10:15", "10:16"}, nil},
		"late":                            {[]string{"10:05", "10:20", "10:29"}, []string{"10:15"}},
		"the newest of those missed":      {[]string{"10:05", "13:20", "13:29", "13:30"}, []string{"13:15", "13:30"}},
		"set back":                        {[]string{"10:05", "10:15", "10:10", "10:15", "10:30"}, []string{"10:15", "10:30"}},
		"set back by far":                 {[]string{"10:05", "10:15", "10:30", "10:45", "10:06", "10:15", "10:30", "10:45", "11:00"}, []string{"10:15", "10:30", "10:45", "11:00"}},
		"set back behind the beginning":   {[]string{"10:05", "10:15", "08:01", "08:15", "10:05", "10:15"}, []string{"10:15", "08:15", "10:00"}},
		"far ahead for a moment":          {[]string{"10:05", "23:00", "10:10", "10:15", "10:30", "23:00", "23:15"}, []string{"23:00", "10:15", "10:30", "23:15"}},
		"ahead, and what was missed then": {[]string{"10:05", "12:20", "10:16", "10:30"}, []string{"12:15", "10:15", "10:30"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &launcher{ending: t, p: quarterly}
			for _, at := range tc.clock {
				l.look(clock(t, at))
			}
			var got []string
			for _, at := range l.launched {
				got = append(got, at.UTC().Format("15:04"))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("launched %q, want %q", got, tc.want)
			}
		})
	}
}

// A launcher says when it is next, and after the last time that there is none.
func TestNextLaunch(t *testing.T) {
	l := &launcher{ending: t, p: fleet.Periodic{Specs: []string{"0 11 1 7 * 2026", "30 10 1 7 * 2026"}}}
	for _, at := range []string{"10:30", "11:00"} {
		if next := l.look(clock(t, "10:00").Add(time.Duration(len(l.launched)) * 30 * time.Minute)); !next.Equal(clock(t, at)) {
			t.Fatalf("next is %s, want %s", next, at)
		}
		l.look(clock(t, at))
	}
	if next := l.look(clock(t, "11:00")); !next.IsZero() || len(l.launched) != 2 {
		t.Errorf("next is %s after %v", next, l.launched)
	}
	if _, _, _, err := cron.Due(fleet.Periodic{Spec: "nonsense"}, l.spans, clock(t, "11:00")); err == nil {
		t.Error("an expression that is none is no error")
	}
}

// TestLaunchesOnce sets a clock at random. No time is launched twice or before it has come. A clock that only goes on
// has each of its times launched that it reads before the next one.
func TestLaunchesOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &launcher{ending: t, p: quarterly}
		now := time.Date(2026, 7, 1, 10, 5, 30, 0, time.UTC) // never at a launch time
		l.look(now)
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			before, missed := now, len(l.launched)
			if rapid.IntRange(0, 4).Draw(t, "jump") == 0 {
				now = now.Add(time.Duration(rapid.IntRange(-5000, 5000).Draw(t, "minutes")) * time.Minute)
			} else {
				now = now.Add(time.Duration(rapid.IntRange(1, 14).Draw(t, "steps")) * time.Minute)
			}
			l.look(now)
			for _, at := range l.launched[missed:] {
				if at.After(now) {
					t.Fatalf("launched for %s at %s", at, now)
				}
				if slices.ContainsFunc(l.launched[:missed], at.Equal) {
					t.Fatalf("launched for %s twice", at)
				}
			}
			due := now.Truncate(15 * time.Minute)
			if now.After(before) && now.Sub(before) < 15*time.Minute && due.After(before) && !slices.ContainsFunc(l.launched, due.Equal) && len(l.spans) < 60 {
				t.Fatalf("at %s nothing was launched for %s, after %s", now, due, before)
			}
		}
	})
}

func TestSpansThatAreNot(t *testing.T) {
	for _, spans := range [][]cron.Span{{{2, 1}}, {{1, 5}, {5, 6}}, {{5, 6}, {1, 2}}, make([]cron.Span, 65)} {
		if cron.ValidSpans(spans) {
			t.Errorf("%v is valid", spans)
		}
	}
}
