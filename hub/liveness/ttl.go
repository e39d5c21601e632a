package liveness

import "time"

// Policy is the arithmetic of heartbeats.
type Policy struct {
	MinTTL time.Duration // shortest TTL given, where a pool has none of its own
	Grace  time.Duration // added to every deadline
	// MaxRate is how many beats a second one hub takes. 0: any number.
	MaxRate float64
}

// TTL returns how long a beat lasts, which is how often an edge beats: pool (a
// pool's own TTL, 0 for none) or MinTTL, and longer where nodes, spread evenly
// over hubs, would beat more than MaxRate times a second on each. A TTL made
// longer for the rate is rounded up to a second.
func (p Policy) TTL(nodes, hubs int, pool time.Duration) time.Duration {
	ttl := pool
	if ttl <= 0 {
		ttl = p.MinTTL
	}
	if p.MaxRate <= 0 {
		return ttl
	}
	seconds := float64(nodes) / (float64(max(hubs, 1)) * p.MaxRate)
	if bound := time.Duration(seconds * float64(time.Second)); bound > ttl {
		return (bound + time.Second - 1).Truncate(time.Second)
	}
	return ttl
}

// Deadline returns when a node counts as gone whose beat arrived at now and was
// given ttl.
func (p Policy) Deadline(now time.Time, ttl time.Duration) time.Time {
	return now.Add(ttl + p.Grace)
}
