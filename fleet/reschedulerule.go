package fleet

import "time"

// Least values of a ReschedulePolicy.
const (
	MinRescheduleInterval = 15 * time.Second
	MinRescheduleDelay    = 5 * time.Second
)

// Allows reports whether anything that failed is ever replaced by the policy.
func (p *ReschedulePolicy) Allows() bool { return p != nil && (p.Attempts > 0 || p.Unlimited) }

// validateReschedule checks that the policy is not ambiguous, and that its attempts
// fit into its interval.
func validateReschedule(ps *Problems, path string, p *ReschedulePolicy, jobType string) {
	if p == nil {
		return
	}
	if RunsEverywhere(jobType) {
		ps.add(path, "jobs of type %s are never rescheduled", jobType)
		return
	}
	if p.Attempts < 0 {
		ps.add(path+".Attempts", "may not be negative: %d", p.Attempts)
		return
	}
	if p.Attempts == 0 && !p.Unlimited {
		return // never rescheduled: the rest does not matter
	}
	if p.Attempts > 0 && p.Unlimited {
		ps.add(path+".Unlimited", "%d attempts and unlimited exclude each other", p.Attempts)
	}
	if !validRescheduleDelays(ps, path, p) || p.Unlimited {
		return
	}
	if p.Interval < MinRescheduleInterval {
		ps.add(path+".Interval", "must be at least %s, not %s", MinRescheduleInterval, p.Interval)
		return
	}
	checkDuration(ps, path+".Interval", p.Interval)
	if fit, need := p.attemptsInInterval(); fit < p.Attempts {
		ps.add(path+".Interval", "only %d of %d attempts fit into %s: it takes %s", fit, p.Attempts, p.Interval, need)
	}
}

func validRescheduleDelays(ps *Problems, path string, p *ReschedulePolicy) bool {
	before := len(*ps)
	switch p.DelayFunction {
	case DelayConstant:
	case DelayExponential, DelayFibonacci:
		if p.MaxDelay < p.Delay {
			ps.add(path+".MaxDelay", "%s is less than the delay of %s", p.MaxDelay, p.Delay)
		}
		checkDuration(ps, path+".MaxDelay", p.MaxDelay)
	default:
		ps.addHint(path+".DelayFunction", "it is constant, exponential or fibonacci",
			"unknown delay function %q", p.DelayFunction)
	}
	if p.Delay < MinRescheduleDelay {
		ps.add(path+".Delay", "must be at least %s, not %s", MinRescheduleDelay, p.Delay)
	}
	checkDuration(ps, path+".Delay", p.Delay)
	return len(*ps) == before
}

// attemptsInInterval returns how many of the policy's attempts fit into its interval, and how long
// an interval must be for all. While delays grow only the longest so far counts; from
// where they have reached MaxDelay each of them does. (That is how Nomad counts, and
// what it accepts must be accepted here.)
func (p *ReschedulePolicy) attemptsInInterval() (fit int, need time.Duration) {
	previous, delay := time.Duration(0), p.Delay
	capped := false
	for i := range p.Attempts {
		switch {
		case p.DelayFunction == DelayConstant:
			need += delay
		case p.DelayFunction == DelayFibonacci && delay > p.MaxDelay && !capped:
			capped = true
			need = p.MaxDelay
		case delay > p.MaxDelay:
			delay = p.MaxDelay
			need += delay
		default:
			need = delay
		}
		if need <= p.Interval {
			fit = i + 1
		}
		if need > MaxDuration {
			return fit, need // long over; the sum must not overflow
		}
		switch p.DelayFunction {
		case DelayExponential:
			delay *= 2
		case DelayFibonacci:
			previous, delay = delay, previous+delay
		}
	}
	return fit, need
}
