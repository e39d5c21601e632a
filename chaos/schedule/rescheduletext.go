package schedule

import (
	"errors"
	"fmt"
	"strings"

	"skerry/fleet"
)

var errReschedule = errors.New("is none, ATTEMPTS/INTERVAL/DELAY or unlimited/DELAY, " +
	"with /FUNCTION/MAX where the delay grows: reschedule=unlimited/30s/exponential/1h")

const (
	rescheduleNone      = "none"
	rescheduleUnlimited = "unlimited"
)

var rescheduleAttribute = attribute[Job]{
	name:  "reschedule",
	read:  readReschedule,
	write: writeReschedule,
}

func readReschedule(j *Job, v string) (err error) {
	p := fleet.ReschedulePolicy{}
	j.Reschedule = &p
	if v == rescheduleNone {
		return nil
	}
	parts := strings.Split(v, "/")
	if parts[0] == rescheduleUnlimited {
		p.Unlimited = true
		parts = parts[1:]
	} else {
		if p.Attempts, err = parseCount(parts[0], 0, 1_000_000); err != nil || len(parts) < 2 {
			return errReschedule
		}
		if p.Interval, err = parseDuration(parts[1], 0, longest); err != nil {
			return err
		}
		parts = parts[2:]
	}
	if len(parts) != 1 && len(parts) != 3 {
		return errReschedule
	}
	if p.Delay, err = parseDuration(parts[0], 0, longest); err != nil {
		return err
	}
	p.DelayFunction = fleet.DelayConstant
	if len(parts) == 3 {
		p.DelayFunction = parts[1]
		p.MaxDelay, err = parseDuration(parts[2], 0, longest)
	}
	return err
}

func writeReschedule(j Job) string {
	p := j.Reschedule
	switch {
	case p == nil:
		return ""
	case *p == fleet.ReschedulePolicy{}:
		return rescheduleNone
	}
	s := rescheduleUnlimited
	if !p.Unlimited {
		s = fmt.Sprintf("%d/%s", p.Attempts, formatDuration(p.Interval))
	}
	s += "/" + formatDuration(p.Delay)
	if p.DelayFunction != fleet.DelayConstant || p.MaxDelay != 0 {
		s += fmt.Sprintf("/%s/%s", p.DelayFunction, formatDuration(p.MaxDelay))
	}
	return s
}
