package fleet

import "time"

// Least values of a ReschedulePolicy.
const (
	MinRescheduleInterval = 15 * time.Second
	MinRescheduleDelay    = 5 * time.Second
)

// Allows reports whether anything that failed is ever replaced by the policy.
func (p *ReschedulePolicy) Allows() bool { return p != nil && (p.Attempts > 0 || p.Unlimited) }
