package link

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/fleet"
)

// firstPause bounds the pause after the first attempt that failed; each further
// one doubles the bound up to the cap.
const firstPause = time.Second

// reconnectBackoff is the time between rounds of dialing: exponential, with full jitter also
// at the cap, so that a fleet which lost its hub together does not come back
// together.
type reconnectBackoff struct {
	cap        time.Duration
	steps      *backoff.ExponentialBackOff
	busyRounds int // rounds in a row in which a hub was too busy
}

func newReconnectBackoff(limit time.Duration) *reconnectBackoff {
	b := backoff.NewExponentialBackOff(
		// Uniform in [0, 2·interval]: the interval is half of the bound.
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

// delayAfterRound draws the pause after a round of dialing that took a while: the cap is
// for the two of them, so that a link which healed within the round is found
// within the cap.
func (p *reconnectBackoff) delayAfterRound(took time.Duration) time.Duration {
	return min(p.nextDelay(), max(p.cap-took, p.cap/4))
}

// delayAfterBusy draws the pause after a round in which a hub was reached that takes no more
// connections just now. It answers such a try with one packet, and is done with those
// before within a second or two: the bounds of pauses grow slowly, to BusyDelayMax.
func (p *reconnectBackoff) delayAfterBusy() time.Duration {
	d := BusyDelay(p.busyRounds)
	p.busyRounds++
	return min(d, p.cap)
}

// isHubOverloaded reports whether a hub was too busy a few rounds ago: one that does not answer in
// time now has its hands full, and is not gone.
func (p *reconnectBackoff) isHubOverloaded() bool {
	return p.busyRounds > 0 && p.busyRounds < overloadedRounds
}

// overloadedRounds is for how many rounds that is believed: some two minutes.
const overloadedRounds = 30

// Bounds of BusyDelay.
const (
	BusyDelayMin = 400 * time.Millisecond
	BusyDelayMax = 5 * time.Second
)

// BusyDelay draws the pause after the n-th try in a row, from 0, that a hub refused for
// being busy: from half of its bound up, so that the tries of many edges spread out.
func BusyDelay(n int) time.Duration {
	bound := float64(BusyDelayMin)
	for range min(n, 20) {
		bound *= 1.3
	}
	d := min(time.Duration(bound), BusyDelayMax)
	return d/2 + rand.N(d/2)
}

// resetDelays starts again from the shortest.
func (p *reconnectBackoff) resetDelays() {
	p.steps.Reset()
	p.busyRounds = 0
}

// longDelay draws the pause after a refusal that only a person can mend.
func (p *reconnectBackoff) longDelay() time.Duration { return p.cap/2 + rand.N(p.cap/2+1) }

// delayAfterSession is the pause after a session ended with err, given how many sessions have
// ended in a row without being committed.
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
		// Not before, and not all together either.
		d = e.retryAfter + min(d, e.retryAfter)
	}
	return d
}

// Handshake timeouts. A packet that is lost is repeated after longer and longer
// times, so short attempts notice a healed path sooner; every fourth one is long
// enough for a slow path.
const (
	shortHandshake = 3 * time.Second
	longHandshake  = 10 * time.Second
)

// handshakeTimeout is the time for the n-th round of dialing, from 0.
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

// nextTick is the first tick after now.
func nextTick(now time.Duration, urgent bool) time.Duration {
	tick := normalTick
	if urgent {
		tick = urgentTick
	}
	return (now/tick + 1) * tick
}

// heartbeatDelay is the time from one beat to the next: a little less than the TTL, or
// than the longest silence (0: any) where that is shorter, by a different amount
// each time.
func heartbeatDelay(ttl, silence time.Duration) time.Duration {
	if silence > 0 {
		ttl = min(ttl, silence)
	}
	return ttl - rand.N(ttl/20+1)
}

// Bounds of how long an answer may be away before the path is in doubt.
const (
	minSilenceCheck  = 1500 * time.Millisecond // QUIC has repeated a packet three times by then
	silenceCheckRTTs = 4
)

// silenceCheckDelay is how long nothing may be heard after something was sent before a
// second connection is tried.
func silenceCheckDelay(rtt time.Duration) time.Duration {
	return max(minSilenceCheck, silenceCheckRTTs*rtt)
}

// measureAfter is how long after a beat's answer the connection is measured: long
// enough for probes without end to show, and short enough for them to cost little.
const measureAfter = 5 * time.Second

// dialOrder is the order in which hubs are dialed: the one that worked last, then the
// others, shuffled by shuffle. The one that turned this edge away (it has no leader, or is
// shutting down) comes last: it answers the dialer sooner than any other, each time.
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

// After patientAfter rounds in vain fewer hubs are dialed in each: packets cost,
// also those that nobody hears.
const (
	patientAfter = 10
	patientHubs  = 2
)

// hubsPerRound is how many of the hubs the n-th round of dialing tries, from 0.
func hubsPerRound(hubs, n int) int {
	if n < patientAfter {
		return hubs
	}
	return min(hubs, patientHubs)
}

// maxHubs bounds the addresses that are tried.
const maxHubs = 64

// knownHubs joins what hubs told and what was configured, each once.
func knownHubs(told, configured []string) []string {
	var all []string
	for _, h := range slices.Concat(told, configured) {
		if h != "" && !slices.Contains(all, h) && len(all) < maxHubs {
			all = append(all, h)
		}
	}
	return all
}
