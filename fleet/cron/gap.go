package cron

import (
	"sort"
	"time"

	"skerry/fleet"
)

// minGap is how long after a launch the next one may come: each makes a job of its own,
// which hubs keep for hours.
const minGap = 10 * time.Second

const (
	day          = 24 * time.Hour
	minutesOfDay = 24 * 60
)

// Bounds of the search for days that two expressions share.
const (
	maxRounds    = 20     // for two expressions: 29 February is each weekday within seven rounds
	maxJobRounds = 20_000 // for all expressions of a job
)

// checkGap refuses launches that follow each other too fast, those of one expression and those of several together.
// Changes of the clock in spring and autumn, which move hours next to each other, do not count.
func checkGap(p fleet.Periodic, now time.Time) error {
	var all []*launchTimes
	for _, spec := range specsOf(p) {
		x, err := compileExpression(spec)
		if err != nil {
			return err
		}
		l, err := x.readTimes(now)
		if err != nil {
			return err
		}
		if l != nil {
			all = append(all, l)
		}
	}
	rounds := maxJobRounds
	for _, a := range all {
		for _, b := range all {
			gap, err := a.gapTo(b, now, &rounds)
			if err != nil {
				return err
			}
			if gap < minGap {
				return fleet.Errorf(fleet.CodeInvalid, "periodic block: launches are %s apart, at least %s are needed", gap, minGap).
					WithHint("let one launch do the work of several, or run a service job that waits between its runs")
			}
		}
	}
	return nil
}

// launchTimes are the times of an expression on each of its days: it launches at the same seconds of each of its
// minutes, and in the same minutes of each of its hours.
type launchTimes struct {
	expression
	minutes map[int]bool // of the day
	seconds []int        // of each of these minutes, ascending
}

// readTimes reads the times from the first day after now. It returns nil for an expression that launches no more.
func (x expression) readTimes(now time.Time) (*launchTimes, error) {
	first, err := x.nextLaunch(now.UTC())
	if err != nil || first.IsZero() {
		return nil, err
	}
	l := &launchTimes{expression: x, minutes: map[int]bool{}}
	hours, err := x.launchesWithin(first.Truncate(day), day, time.Hour)
	if err != nil {
		return nil, err
	}
	minutes, err := x.launchesWithin(first.Truncate(time.Hour), time.Hour, time.Minute)
	if err != nil {
		return nil, err
	}
	for _, h := range hours {
		for _, m := range minutes {
			l.minutes[60*h+m] = true
		}
	}
	l.seconds, err = x.launchesWithin(first.Truncate(time.Minute), time.Minute, time.Second)
	return l, err
}

// launchesWithin numbers the steps with a launch, from begin on.
func (x expression) launchesWithin(begin time.Time, length, step time.Duration) ([]int, error) {
	var steps []int
	for at := begin; ; {
		next, err := x.nextLaunch(at.Add(-1))
		if err != nil || next.IsZero() || !next.Before(begin.Add(length)) {
			return steps, err
		}
		n := int(next.Sub(begin) / step)
		steps = append(steps, n)
		at = begin.Add(time.Duration(n+1) * step)
	}
}

// gapTo returns the smallest time from a launch of l to a later one of o that is shorter than minGap; else minGap. Such
// launches are in the same minute, or in one and the next.
func (l *launchTimes) gapTo(o *launchTimes, now time.Time, rounds *int) (time.Duration, error) {
	within, across, gap := minGap, time.Duration(60-l.seconds[len(l.seconds)-1]+o.seconds[0])*time.Second, minGap
	for _, s := range l.seconds {
		if i := sort.SearchInts(o.seconds, s+1); i < len(o.seconds) {
			within = min(within, time.Duration(o.seconds[i]-s)*time.Second)
		}
	}
	for _, c := range []struct {
		gap    time.Duration
		minute int           // of o: the same one as of l, or the next one
		after  time.Duration // of o's day after l's
	}{{within, 0, 0}, {across, 1, 0}, {across, 1 - minutesOfDay, day}} {
		if c.gap >= gap || !l.sharesMinute(o, c.minute) {
			continue
		}
		shared, err := l.sharesDay(o, now, c.after, rounds)
		if err != nil {
			return 0, err
		}
		if shared {
			gap = c.gap
		}
	}
	return gap, nil
}

// sharesMinute reports whether o launches that many minutes after a minute in which l launches.
func (l *launchTimes) sharesMinute(o *launchTimes, after int) bool {
	for m := range l.minutes {
		if o.minutes[m+after] {
			return true
		}
	}
	return false
}

// sharesDay reports whether o launches on a day that is so long after a day on which l launches. If the next maxRounds
// days of both tell of none, there is none.
func (l *launchTimes) sharesDay(o *launchTimes, now time.Time, after time.Duration, rounds *int) (bool, error) {
	if l == o && after == 0 {
		return true, nil
	}
	from := now.UTC().Truncate(day)
	for range maxRounds {
		if *rounds--; *rounds < 0 {
			return false, fleet.Errorf(fleet.CodeInvalid, "periodic block: whether launches are at least %s apart takes too long to find out", minGap).
				WithHint("let fewer expressions name seconds")
		}
		one, err := l.nextLaunch(from.Add(-1))
		if err != nil || one.IsZero() {
			return false, err
		}
		one = one.Truncate(day).Add(after)
		other, err := o.nextLaunch(one.Add(-1))
		if err != nil || other.IsZero() {
			return false, err
		}
		if other = other.Truncate(day); other.Equal(one) {
			return true, nil
		}
		from = other.Add(-after)
	}
	return false, nil
}
