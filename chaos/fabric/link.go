package fabric

import (
	"math/rand/v2"
	"slices"
	"time"
)

// link is one direction between two hosts. All fields are guarded by Net.mu.
type link struct {
	from, to *Host
	rand     *rand.Rand

	faultVersion uint64 // Net.faultVersion for which cuts and shapes were computed
	cuts         []*Fault
	shapes       []shape

	last     instant      // arrival of the latest packet that was not held back
	heldBack []heldPacket // packets that were held back and not overtaken yet
}

// heldPacket is the arrival of a packet that a shape has held back.
type heldPacket struct {
	at    instant
	fault *Fault
}

// shape is a profile on a link, with the line whose bandwidth its packets share.
type shape struct {
	fault *Fault
	line  *queue
	speed int // bits per second; 0: unlimited
}

// queueKey names a line of a profile by its host and direction.
type queueKey struct {
	host *Host
	up   bool
}

// queue is a line that sends packets one after the other; free is when it has sent them all.
type queue struct{ free instant }

// packetOutcome is the decision about a packet: refused, lost, or arriving at an instant.
type packetOutcome struct {
	refused, lost bool
	at            instant
	duplicateAt   instant // arrival of a duplicate; never: there is none
}

// linkTo returns the link to another host, updated to the current faults; mu is held.
func (h *Host) linkTo(to *Host) *link {
	l := h.links[to]
	if l == nil {
		l = &link{from: h, to: to, rand: h.net.newLinkRandom(h.name, to.name)}
		h.links[to] = l
	} else if l.faultVersion == h.net.faultVersion {
		return l
	}
	l.faultVersion = h.net.faultVersion
	l.cuts, l.shapes, l.last, l.heldBack = nil, nil, 0, nil
	if h == to {
		return l
	}
	for _, f := range h.net.faults {
		forward, applies := f.matchDirection(h.name, to.name)
		switch {
		case !applies:
		case f.cut:
			l.cuts = append(l.cuts, f)
		default:
			l.shapes = append(l.shapes, f.shapeOnLine(h, to, forward))
		}
	}
	return l
}

// shapeOnLine returns the fault's shape for a link, with the line of the host that a selects. It
// makes the line if there is none.
func (f *Fault) shapeOnLine(from, to *Host, forward bool) shape {
	key := queueKey{host: from, up: true}
	if !forward {
		key = queueKey{host: to}
	}
	line := f.queues[key]
	if line == nil {
		line = &queue{}
		f.queues[key] = line
	}
	return shape{fault: f, line: line, speed: f.profile.lineSpeed(key.up)}
}

// countStoppedByCut reports whether cuts stop a packet, or a write on a stream, and returns the mode
// of the oldest cut. It counts the effect on each cut.
func (l *link) countStoppedByCut(stream bool) (mode Mode, cut bool) {
	for i, f := range l.cuts {
		switch {
		case f.mode == Refused:
			f.count.Refused++
		case stream:
			f.count.Stalled++
		default:
			f.count.Dropped++
		}
		if i == 0 {
			mode = f.mode
		}
	}
	return mode, len(l.cuts) > 0
}

// decidePacket draws the outcome of a packet of that size, with headers, and counts the effects of
// faults on it.
func (l *link) decidePacket(now instant, bytes int) packetOutcome {
	if mode, cut := l.countStoppedByCut(false); cut {
		return packetOutcome{refused: mode == Refused, lost: mode == Silent}
	}
	p := packetOutcome{at: now, duplicateAt: never}
	var back time.Duration // held back
	var holder *Fault
	twice := false
	for i := range l.shapes {
		s := &l.shapes[i]
		prof := &s.fault.profile
		if l.drawBool(prof.Loss) || !s.transmitPacket(&p.at, bytes, false) {
			s.fault.count.Dropped++
			return packetOutcome{lost: true}
		}
		p.at = p.at.addDuration(l.drawDelay(prof))
		if l.drawBool(prof.Duplicate) {
			twice = true
			s.fault.count.Duplicated++
		}
		if l.drawBool(prof.Reorder) {
			back += 1 + time.Duration(l.rand.Int64N(int64(max(prof.Latency, minHeldBack))))
			holder = s.fault
		}
		if prof.Latency+prof.Jitter > 0 || s.speed > 0 {
			s.fault.count.Delayed++
		}
	}
	p.at = max(p.at.addDuration(l.baseLatency()), l.last)
	if holder == nil {
		l.last = p.at // jitter keeps the order
	} else {
		p.at = p.at.addDuration(back)
	}
	l.countOvertaken(now, p.at)
	if holder != nil {
		l.heldBack = append(l.heldBack, heldPacket{p.at, holder})
	}
	if twice {
		p.duplicateAt = p.at
	}
	return p
}

// minHeldBack is the minimum upper bound of the time for which a packet is held back.
const minHeldBack = 10 * time.Millisecond

// countOvertaken counts, and then forgets, the held packets that arrive after the instant at. It also
// forgets those that have arrived.
func (l *link) countOvertaken(now, at instant) {
	l.heldBack = slices.DeleteFunc(l.heldBack, func(p heldPacket) bool {
		if p.at > at {
			p.fault.count.Reordered++
		}
		return p.at > at || p.at <= now
	})
}

// segmentArrival draws the arrival of a write on a stream, and counts the effects of shapes. The
// caller has checked the cuts.
func (l *link) segmentArrival(now instant, bytes int) instant {
	at := now
	for i := range l.shapes {
		s := &l.shapes[i]
		prof := &s.fault.profile
		s.transmitPacket(&at, bytes, true)
		at = at.addDuration(l.drawDelay(prof))
		if l.drawBool(prof.Loss) {
			s.fault.count.Dropped++
			at = at.addDuration(prof.retransmitTimeout())
		}
		if prof.Latency+prof.Jitter > 0 || s.speed > 0 {
			s.fault.count.Delayed++
		}
	}
	return at.addDuration(l.baseLatency())
}

// baseLatency returns the latency that is added to that of shapes: 0 if there are any.
func (l *link) baseLatency() time.Duration {
	switch {
	case l.from == l.to:
		return loopback
	case len(l.shapes) > 0:
		return 0
	}
	return LANLatency
}

// transmitPacket reserves the line for a packet, and moves at to the instant when its last bit
// is sent. It returns false if the queue is full; the data of a stream always waits.
func (s *shape) transmitPacket(at *instant, bytes int, stream bool) bool {
	if s.speed == 0 {
		return true
	}
	begin := max(s.line.free, *at)
	waiting := float64(begin-*at) / float64(time.Second) * float64(s.speed) / 8
	if !stream && int(waiting)+bytes > s.fault.profile.queueCapacity(s.speed) {
		return false
	}
	s.line.free = begin.addDuration(airtime(bytes, s.speed))
	*at = s.line.free
	return true
}

// drawDelay draws the delay of a packet from the profile's latency and jitter.
func (l *link) drawDelay(p *Profile) time.Duration {
	if p.Jitter == 0 {
		return p.Latency
	}
	return max(0, p.Latency+time.Duration(l.rand.Int64N(2*int64(p.Jitter)+1))-p.Jitter)
}

// drawBool returns true with the given probability.
func (l *link) drawBool(fraction float64) bool { return fraction > 0 && l.rand.Float64() < fraction }
