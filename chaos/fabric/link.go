package fabric

import (
	"math/rand/v2"
	"slices"
	"time"
)

// link is one direction between two hosts. All is guarded by Net.mu.
type link struct {
	from, to *Host
	rand     *rand.Rand

	faultVersion uint64 // what cuts and shapes belong to
	cuts         []*Fault
	shapes       []shape

	last     instant      // arrival of the latest packet that kept the order
	heldBack []heldPacket // packets that were held back and not yet overtaken
}

// heldPacket is a packet that a shape has held back.
type heldPacket struct {
	at    instant
	fault *Fault
}

// shape is a profile on a link, with the line that its packets share.
type shape struct {
	fault *Fault
	line  *queue
	speed int // bits per second; 0: unlimited
}

// queueKey names a line of a profile: whose it is, and which direction.
type queueKey struct {
	host *Host
	up   bool
}

// queue is a line that sends one packet after the other.
type queue struct{ free instant }

// packetOutcome is what a link does with a packet.
type packetOutcome struct {
	refused, lost bool
	at            instant
	duplicateAt   instant // a duplicate's; never: none
}

// linkTo returns the way to another host, with the faults of now; mu is held.
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

// shapeOnLine finds the line of the host that a chose.
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

// countStoppedByCut counts a packet, or a write on a stream, that a cut keeps from
// passing, and returns the mode of the first cut.
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

// decidePacket decides what becomes of a packet with its headers.
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

const minHeldBack = 10 * time.Millisecond

// countOvertaken counts the packets held back that one overtakes which arrives at an
// instant.
func (l *link) countOvertaken(now, at instant) {
	l.heldBack = slices.DeleteFunc(l.heldBack, func(p heldPacket) bool {
		if p.at > at {
			p.fault.count.Reordered++
		}
		return p.at > at || p.at <= now
	})
}

// segmentArrival decides when a write on a stream arrives; cuts were looked at before.
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

// baseLatency is the latency of a link without a shape.
func (l *link) baseLatency() time.Duration {
	switch {
	case l.from == l.to:
		return loopback
	case len(l.shapes) > 0:
		return 0
	}
	return LANLatency
}

// transmitPacket puts a packet on the line, and moves at to where its last bit is
// sent. A full queue refuses a packet; a stream waits.
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

func (l *link) drawDelay(p *Profile) time.Duration {
	if p.Jitter == 0 {
		return p.Latency
	}
	return max(0, p.Latency+time.Duration(l.rand.Int64N(2*int64(p.Jitter)+1))-p.Jitter)
}

func (l *link) drawBool(fraction float64) bool { return fraction > 0 && l.rand.Float64() < fraction }
