// Package cron reads the cron expressions of periodic jobs and of the windows of
// updates: package fleet/jobspec and the HTTP API check them with it, hub/periodic finds
// out when a job is next, and hubs and edges whether a window is open. It is the door to
// hashicorp/cronexpr, starts no goroutine and reads no clock.
package cron

import (
	"fmt"
	"time"

	"github.com/hashicorp/cronexpr"

	"skerry/fleet"
)

// maxExpression bounds an expression, in bytes.
const maxExpression = 1024

// Next is the first time after from that one of a job's expressions names, in the
// job's time zone; zero: never again. In spring a time within the hour that is left
// out does not come that day, in autumn one within the hour that comes twice comes
// twice. Where clocks are put on by half an hour (Lord Howe Island), the other half of
// that hour is left out, too.
func Next(p fleet.Periodic, from time.Time) (time.Time, error) {
	where, err := location(p.TimeZone)
	if err != nil {
		return time.Time{}, err
	}
	var first time.Time
	for _, spec := range specsOf(p) {
		at, err := nextLaunchOf(spec, from.In(where))
		if err != nil {
			return time.Time{}, err
		}
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, nil
}

// Check reports what is wrong with a periodic block: also that none of its
// expressions names a time after now.
func Check(p fleet.Periodic, now time.Time) error {
	if p.SpecType != "" && p.SpecType != fleet.PeriodicCron {
		return fleet.Errorf(fleet.CodeInvalid, "periodic block: unknown type %q", p.SpecType).WithHint("it is %s", fleet.PeriodicCron)
	}
	if len(specsOf(p)) == 0 {
		return fleet.Errorf(fleet.CodeInvalid, "periodic block: it has no cron expression")
	}
	at, err := Next(p, now)
	if err != nil {
		return err
	}
	if at.IsZero() {
		return fleet.Errorf(fleet.CodeInvalid, "periodic block: %q never launches", specsOf(p)[0]).
			WithHint("no day matches it, or all such days are over")
	}
	return checkGap(p, now)
}

func location(zone string) (*time.Location, error) {
	if zone == "" {
		return time.UTC, nil
	}
	where, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "unknown time zone %q", zone).
			WithHint("write it like Europe/Berlin, or UTC")
	}
	return where, nil
}

func nextLaunchOf(spec string, from time.Time) (time.Time, error) {
	e, err := compileExpression(spec)
	if err != nil {
		return time.Time{}, err
	}
	return e.nextLaunch(from)
}

// expression is one that was read. The library panics on some.
type expression struct {
	spec string
	e    *cronexpr.Expression
}

func (x expression) nextLaunch(from time.Time) (at time.Time, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = malformedExpression(x.spec, fmt.Errorf("%v", p))
		}
	}()
	return x.e.Next(from), nil
}

func compileExpression(spec string) (x expression, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = malformedExpression(spec, fmt.Errorf("%v", p))
		}
	}()
	if len(spec) > maxExpression {
		return expression{}, fleet.Errorf(fleet.CodeInvalid, "the cron expression has %d bytes, at most %d are allowed", len(spec), maxExpression)
	}
	e, err := cronexpr.Parse(spec)
	if err != nil {
		return expression{}, malformedExpression(spec, err)
	}
	return expression{spec, e}, nil
}

func malformedExpression(spec string, err error) error {
	return fleet.Errorf(fleet.CodeInvalid, "cron expression %q: %w", spec, err).
		WithHint("minute, hour, day of month, month, day of week: \"*/15 6-20 * * 1-5\"")
}

// specsOf returns the expressions, whichever way they were given.
func specsOf(p fleet.Periodic) []string {
	if p.Spec != "" {
		return append([]string{p.Spec}, p.Specs...)
	}
	return p.Specs
}
