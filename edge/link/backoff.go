package link

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/fleet"
)

// firstDelay bounds the pause after the first failed dialing round. Each further round doubles the bound, up to
// Config.BackoffCap.
const firstDelay = time.Second

// reconnectBackoff draws the pauses before dialing: exponential, with full jitter also at the cap, so that a
// fleet does not reconnect all at once. It is not safe for concurrent use.
type reconnectBackoff struct {
	cap        time.Duration
	steps      *backoff.ExponentialBackOff
	busyRounds int // consecutive rounds in which a hub was too busy
}

// newReconnectBackoff returns a backoff whose pauses are at most limit.
func newReconnectBackoff(limit time.Duration) *reconnectBackoff {
	b := backoff.NewExponentialBackOff(
		// Uniform in [0, 2·interval], so the interval is half of the bound.
		backoff.WithRandomizationFactor(1),
		backoff.WithInitialInterval(min(firstDelay, limit)/2),
		backoff.WithMaxInterval(limit/2),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0),
	)
	b.Reset()
	return &reconnectBackoff{cap: limit, steps: b}
}

// nextDelay draws the next pause, and doubles the bound of the one after it.
func (p *reconnectBackoff) nextDelay() time.Duration { return min(p.steps.NextBackOff(), p.cap) }

// delayAfterRound draws the pause after a dialing round. The round and the pause together take at most
// the cap, so that a link that heals during the round is found within the cap.
func (p *reconnectBackoff) delayAfterRound(took time.Duration) time.Duration {
	return min(p.nextDelay(), max(p.cap-took, p.cap/4))
}

// delayAfterBusy draws the pause after a round in which a hub was reached but took no more connections, and
// counts that round. Such a hub is free again within a second or two, so these pauses grow slowly, up to
// BusyDelayMax.
func (p *reconnectBackoff) delayAfterBusy() time.Duration {
	d := BusyDelay(p.busyRounds)
	p.busyRounds++
	return min(d, p.cap)
}

// isHubOverloaded reports whether a hub was too busy in one of the last rounds. A hub that does not answer in
// time is then probably overloaded and not gone.
func (p *reconnectBackoff) isHubOverloaded() bool {
	return p.busyRounds > 0 && p.busyRounds < overloadedRounds
}

// overloadedRounds is the number of rounds after which isHubOverloaded no longer assumes an overload: about two
// minutes.
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

// resetDelays makes the pauses start again from the shortest.
func (p *reconnectBackoff) resetDelays() {
	p.steps.Reset()
	p.busyRounds = 0
}

// longDelay draws the pause after a refusal that only a person can resolve: between half of the cap and the
// cap.
func (p *reconnectBackoff) longDelay() time.Duration { return p.cap/2 + rand.N(p.cap/2+1) }

// delayAfterSession draws the pause between a session that ended with e and the next dialing round: none after
// a first stale session, and otherwise not less than the hub's retryAfter.
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

// handshakeTimeout returns the timeout of a QUIC handshake in the n-th dialing round, from 0.
func handshakeTimeout(n int) time.Duration {
	if n%4 == 3 {
		return longHandshake
	}
	return shortHandshake
}

// Bounds of the head start, which a dialed hub has before the next one is dialed beside it. Once it has sent anything,
// it has the longest: it is alive and busy. QUIC ends a losing dial without a message, so that such a dial takes up a
// place on a busy hub for seconds.
const (
	minHeadStart  = 400 * time.Millisecond
	busyHeadStart = 5 * time.Second
)

// headStart returns how long a hub that has sent nothing has its head start: twice the time that hubs have taken to
// answer, which is longer than minHeadStart on a satellite link or under load. answer 0: not known.
func headStart(answer time.Duration) time.Duration {
	return min(max(minHeadStart, 2*answer), busyHeadStart)
}

// Rows are sent at multiples of a tick, so that rows of the same moment share a message (protocol.md 5).
const (
	urgentTick = 200 * time.Millisecond
	normalTick = 5 * urgentTick
)

// nextTick returns the time at which rows that wait now are sent: the first multiple of a tick after now.
// Urgent rows have the shorter tick.
func nextTick(now time.Duration, urgent bool) time.Duration {
	tick := normalTick
	if urgent {
		tick = urgentTick
	}
	return (now/tick + 1) * tick
}

// heartbeatDelay draws the time to the next heartbeat: a little less than the TTL, or than the longest allowed
// silence if that is shorter. silence 0: only the TTL counts.
func heartbeatDelay(ttl, silence time.Duration) time.Duration {
	if silence > 0 {
		ttl = min(ttl, silence)
	}
	return ttl - rand.N(ttl/20+1)
}

// Bounds of silenceCheckDelay.
const (
	minSilenceCheck  = 1500 * time.Millisecond // QUIC has repeated a packet three times by then
	silenceCheckRTTs = 4
)

// silenceCheckDelay returns how long nothing may be received after a send before a second connection is tried.
// rtt is the round trip of the connection.
func silenceCheckDelay(rtt time.Duration) time.Duration {
	return max(minSilenceCheck, silenceCheckRTTs*rtt)
}

// measureAfter is the time from a heartbeat's answer to checkRoundTrip: long enough to see endless probes,
// short enough to limit their cost.
const measureAfter = 5 * time.Second

// dialOrder returns the hubs in dialing order: last (the hub that worked last) first, then the others,
// shuffled. refusing, the hub that last refused this edge (no leader, or shutting down), comes at the end,
// because it would answer first each time. Either may be "".
func dialOrder(hubs []string, last, refusing string, shuffle func(n int, swap func(i, j int))) []string {
	o := slices.Clone(hubs)
	shuffle(len(o), func(i, j int) { o[i], o[j] = o[j], o[i] })
	if i := slices.Index(o, last); i > 0 {
		o = slices.Insert(slices.Delete(o, i, i+1), 0, last)
	}
	if i := slices.Index(o, refusing); i >= 0 {
		o = append(slices.Delete(o, i, i+1), refusing)
	}
	return o
}

// After patientAfter failed rounds, only patientHubs hubs are dialed in each: packets cost, also lost ones.
const (
	patientAfter = 10
	patientHubs  = 2
)

// hubsPerRound returns how many of the hubs the n-th dialing round tries, from 0.
func hubsPerRound(hubs, n int) int {
	if n < patientAfter {
		return hubs
	}
	return min(hubs, patientHubs)
}

// maxHubs bounds the hub addresses that the link remembers and dials.
const maxHubs = 64

// knownHubs joins the addresses that a hub named and the configured ones, each once, at most maxHubs.
func knownHubs(named, configured []string) []string {
	var all []string
	for _, h := range slices.Concat(named, configured) {
		if h != "" && !slices.Contains(all, h) && len(all) < maxHubs {
			all = append(all, h)
		}
	}
	return all
}
