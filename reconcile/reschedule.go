package reconcile

import (
	"slices"
	"time"

	"skerry/fleet"
)

const (
	// rescheduleWindow is how much too early a replacement may be made: a later evaluation is not worth
	// it for less.
	rescheduleWindow = time.Second
	// eventsKept is how many past events a tracker of an unlimited policy keeps, beside the new one.
	eventsKept = 5
)

// attempt is the answer of a reschedule policy.
type attempt struct {
	allowed bool
	at      time.Time
	delay   time.Duration
	why     string // why it is not allowed, for people
}

// nextAttempt returns whether and when the policy allows a replacement of an allocation that failed or
// became unknown at failedAt, by the hub's clock. p is nil if there is no policy: then none is allowed.
func nextAttempt(a *fleet.Alloc, p *fleet.ReschedulePolicy, failedAt time.Time) attempt {
	if p == nil || (p.Attempts == 0 && !p.Unlimited) {
		return attempt{why: "its reschedule policy forbids a replacement"}
	}
	if !p.Unlimited && countAttempts(a.RescheduleTracker, p.Interval, failedAt) >= p.Attempts {
		return attempt{why: "the attempts of its reschedule policy are used up"}
	}
	delay := nextDelay(a.RescheduleTracker, p, failedAt)
	return attempt{allowed: true, at: failedAt.Add(delay), delay: delay}
}

// countAttempts counts the replacements within the interval before failedAt.
func countAttempts(t *fleet.RescheduleTracker, interval time.Duration, failedAt time.Time) int {
	if t == nil {
		return 0
	}
	n := 0
	for _, e := range t.Events {
		if failedAt.UnixNano()-e.RescheduleTime < int64(interval) {
			n++
		}
	}
	return n
}

// nextDelay returns the next delay of the policy's series. If the allocation ran for longer than the
// greatest delay, the series starts again.
func nextDelay(t *fleet.RescheduleTracker, p *fleet.ReschedulePolicy, failedAt time.Time) time.Duration {
	if t == nil || len(t.Events) == 0 {
		return p.Delay
	}
	last := t.Events[len(t.Events)-1]
	delay := p.Delay
	switch p.DelayFunction {
	case fleet.DelayExponential:
		delay = 2 * last.Delay
	case fleet.DelayFibonacci:
		if len(t.Events) < 2 {
			break
		}
		before := t.Events[len(t.Events)-2]
		if before.Delay == p.MaxDelay && last.Delay == p.Delay {
			delay = last.Delay // the series has just started again
		} else {
			delay = before.Delay + last.Delay
		}
	default:
		return delay
	}
	delay = max(delay, p.Delay) // the last attempt may have had no delay
	if p.MaxDelay > 0 && delay > p.MaxDelay {
		delay = p.MaxDelay
		if failedAt.UnixNano()-last.RescheduleTime > int64(p.MaxDelay) {
			delay = p.Delay
		}
	}
	return delay
}

// lastDelay returns the delay of the last attempt, or 0. An attempt without a delay records it again, so
// that the series does not change.
func lastDelay(t *fleet.RescheduleTracker) time.Duration {
	if t == nil || len(t.Events) == 0 {
		return 0
	}
	return t.Events[len(t.Events)-1].Delay
}

// nextTracker returns the reschedule tracker for the replacement of prev: the events that still count for
// the policy, and one for this attempt.
func nextTracker(prev *fleet.Alloc, p *fleet.ReschedulePolicy, delay time.Duration, now time.Time) *fleet.RescheduleTracker {
	var past []fleet.RescheduleEvent
	if prev.RescheduleTracker != nil {
		past = prev.RescheduleTracker.Events
	}
	if p != nil && p.Unlimited {
		past = past[max(0, len(past)-eventsKept):]
	} else if p != nil {
		first := slices.IndexFunc(past, func(e fleet.RescheduleEvent) bool {
			return now.UnixNano()-e.RescheduleTime < int64(p.Interval)
		})
		if first < 0 {
			first = len(past)
		}
		past = past[first:]
	}
	events := append(slices.Clone(past), fleet.RescheduleEvent{
		RescheduleTime: now.UnixNano(), PrevAllocID: prev.ID, PrevNodeID: prev.NodeID, Delay: delay,
	})
	return &fleet.RescheduleTracker{Events: events, LastReschedule: fleet.RescheduleOK}
}
