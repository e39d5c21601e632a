package liveness

import "time"

// Policy computes TTLs and deadlines of heartbeats.
type Policy struct {
	MinTTL time.Duration // shortest TTL of pools that do not set their own
	Grace  time.Duration // added to every deadline
	// MaxRate is the most heartbeats that one hub receives in a second. 0: no limit.
	MaxRate float64
}

// TTL returns the TTL of a heartbeat, which is also the interval of an edge's heartbeats: the pool's own
// TTL, or MinTTL if that is 0. It is longer if the nodes, spread evenly over the hubs, would exceed
// MaxRate; then it is rounded up to a second.
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

// Deadline returns when a node counts as gone whose heartbeat arrived at now with that TTL.
func (p Policy) Deadline(now time.Time, ttl time.Duration) time.Time {
	return now.Add(ttl + p.Grace)
}
