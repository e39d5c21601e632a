package link

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/fleet"
)

// firstPause bounds the pause after the first failed attempt. Each further one doubles the bound, up to the cap.
const firstPause = time.Second

// reconnectBackoff draws the pauses between dialing rounds: exponential, with full jitter also at the
// cap, so that a fleet does not reconnect all at once.
type reconnectBackoff struct {
	cap        time.Duration
	steps      *backoff.ExponentialBackOff
	busyRounds int // consecutive rounds in which a hub was too busy
}

func newReconnectBackoff(limit time.Duration) *reconnectBackoff {
	b := backoff.NewExponentialBackOff(
		// Uniform in [0, 2·interval], so the interval is half of the bound.
		backoff.WithRandomizationFactor(1),
		backoff.WithInitialInterval(min(firstPause, limit)/2),
		backoff.WithMaxInterval(limit/2),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0),
	)
	b.Reset()
	return &reconnectBackoff{cap: limit, steps: b}
}

// nextDelay draws the next pause.
func (p *reconnectBackoff) nextDelay() time.Duration { return min(p.steps.NextBackOff(), p.cap) }

// delayAfterRound draws the pause after a dialing round. The round and the pause together take at most
// the cap, so that a link that heals during the round is found within the cap.
func (p *reconnectBackoff) delayAfterRound(took time.Duration) time.Duration {
	return min(p.nextDelay(), max(p.cap-took, p.cap/4))
}

// delayAfterBusy draws the pause after a round in which a hub was reached but took no more connections.
// Such a hub is free again within a second or two, so these pauses grow slowly, up to BusyDelayMax.
func (p *reconnectBackoff) delayAfterBusy() time.Duration {
	d := BusyDelay(p.busyRounds)
	p.busyRounds++
	return min(d, p.cap)
}

// isHubOverloaded reports whether a hub was too busy within the last rounds. A hub that does not answer
// in time is then probably overloaded and not gone.
func (p *reconnectBackoff) isHubOverloaded() bool {
	return p.busyRounds > 0 && p.busyRounds < overloadedRounds
}

// overloadedRounds is how many rounds count for that: about two minutes.
const overloadedRounds = 30

// Bounds of BusyDelay.
const (
	BusyDelayMin = 400 * time.Millisecond
	BusyDelayMax = 5 * time.Second
)

// BusyDelay draws the pause after the n-th consecutive refusal of a busy hub, from 0: at least half of
// its bound, so that the attempts of many edges spread out.
func BusyDelay(n int) time.Duration {
	bound := float64(BusyDelayMin)
	for range min(n, 20) {
		bound *= 1.3
	}
	d := min(time.Duration(bound), BusyDelayMax)
	return d/2 + rand.N(d/2)
}

// resetDelays returns to the shortest pause.
func (p *reconnectBackoff) resetDelays() {
	p.steps.Reset()
	p.busyRounds = 0
}

// longDelay draws the pause after a refusal that only a person can resolve.
func (p *reconnectBackoff) longDelay() time.Duration { return p.cap/2 + rand.N(p.cap/2+1) }

// delayAfterSession returns the pause after a session.
func (p *reconnectBackoff) delayAfterSession(e sessionEnd) time.Duration {
	switch e.err.Code {
	case fleet.CodeFork, fleet.CodeCloned, fleet.CodeVersion, fleet.CodeForbidden, fleet.CodeCertExpiry, fleet.CodeRevoked:
		return max(p.longDelay(), e.retryAfter)
	case fleet.CodeStaleSession:
		if e.firstTry {
			return 0
		}
	}
	d := p.nextDelay()
	if e.retryAfter > 0 {
		// Not before retryAfter, and not all edges at once.
		d = e.retryAfter + min(d, e.retryAfter)
	}
	return d
}

// Handshake timeouts. QUIC repeats a lost packet after longer and longer times, so short attempts find
// a healed path sooner. Every fourth attempt is long enough for a slow path.
const (
	shortHandshake = 3 * time.Second
	longHandshake  = 10 * time.Second
)

// handshakeTimeout returns the timeout for the n-th dialing round, from 0.
func handshakeTimeout(n int) time.Duration {
	if n%4 == 3 {
		return longHandshake
	}
	return shortHandshake
}

// Ticks of updates (protocol.md 5).
const (
	urgentTick = 200 * time.Millisecond
	normalTick = 5 * urgentTick
)

// nextTick returns the first tick after now.
func nextTick(now time.Duration, urgent bool) time.Duration {
	tick := normalTick
	if urgent {
		tick = urgentTick
	}
	return (now/tick + 1) * tick
}

// heartbeatDelay returns the time to the next heartbeat: a little less than the TTL, or than the
// longest silence if that is shorter (0: none), with jitter.
func heartbeatDelay(ttl, silence time.Duration) time.Duration {
	if silence > 0 {
		ttl = min(ttl, silence)
	}
	return ttl - rand.N(ttl/20+1)
}

// Bounds of how long an answer may take before a second connection is tried.
const (
	minSilenceCheck  = 1500 * time.Millisecond // QUIC has repeated a packet three times by then
	silenceCheckRTTs = 4
)

// silenceCheckDelay returns how long nothing may be received after a send before a second connection is tried.
func silenceCheckDelay(rtt time.Duration) time.Duration {
	return max(minSilenceCheck, silenceCheckRTTs*rtt)
}

// measureAfter is the time from a heartbeat's answer to the check of the round trip: long enough to see
// endless probes, short enough to limit their cost.
const measureAfter = 5 * time.Second

// dialOrder returns the hubs in dialing order: the one that worked last, then the others, shuffled. The one that
// turned this edge away (no leader, or shutting down) comes last, because it would answer first each time.
func dialOrder(hubs []string, last, turned string, shuffle func(n int, swap func(i, j int))) []string {
	o := slices.Clone(hubs)
	shuffle(len(o), func(i, j int) { o[i], o[j] = o[j], o[i] })
	if i := slices.Index(o, last); i > 0 {
		o = slices.Insert(slices.Delete(o, i, i+1), 0, last)
	}
	if i := slices.Index(o, turned); i >= 0 {
		o = append(slices.Delete(o, i, i+1), turned)
	}
	return o
}

// After patientAfter failed rounds, fewer hubs are dialed in each: packets cost, also lost ones.
const (
	patientAfter = 10
	patientHubs  = 2
)

// hubsPerRound returns how many hubs the n-th dialing round tries, from 0.
func hubsPerRound(hubs, n int) int {
	if n < patientAfter {
		return hubs
	}
	return min(hubs, patientHubs)
}

// maxHubs bounds the addresses that are dialed.
const maxHubs = 64

// knownHubs joins the hubs that a hub told and the configured ones, each once.
func knownHubs(told, configured []string) []string {
	var all []string
	for _, h := range slices.Concat(told, configured) {
		if h != "" && !slices.Contains(all, h) && len(all) < maxHubs {
			all = append(all, h)
		}
	}
	return all
}
