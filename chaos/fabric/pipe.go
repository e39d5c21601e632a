package fabric

// Streams.
const (
	window         = 256 << 10 // bytes under way and unread, in one direction
	segmentSize    = 1460      // bytes of a stream in one packet
	segmentHeaders = 40        // of IPv4 and TCP
)

// segment is what one Write has sent.
type segment struct {
	at   instant // of arrival; never: it waits for the way to open
	data []byte
	fin  bool // the end
}

// pipe is one direction of a stream. All is guarded by Net.mu.
type pipe struct {
	from, to     *Stream
	segments     []segment
	stalledCount int     // of the segments, the last ones, wait for the way to open
	last         instant // arrival of the last one that does not wait

	written, read int
	acked         int  // of what was read, what the sender knows of
	fin           bool // no more is written
	full          bool // the sender has closed its other half too
}

// pipeState is what a pipe does with what is written.
type pipeState uint8

const (
	open          pipeState = iota
	stalled                 // it waits
	refused                 // the sender's system knows that there is no way
	unknownToPeer           // the other system does not know this stream, and says so
)

// currentState looks at the hosts' states and at the cuts of now.
func (p *pipe) currentState() pipeState {
	cuts := p.from.host.linkTo(p.to.host).cuts
	switch {
	case p.from.host.pause != nil:
		return stalled
	case len(cuts) > 0 && cuts[0].mode == Refused:
		return refused
	case len(cuts) > 0:
		return stalled
	case p.to.dead && p.to.host.up:
		return unknownToPeer
	case p.to.dead:
		return stalled
	}
	return open
}

// isBroken reports whether nothing passes, and not because of a pause.
func (p *pipe) isBroken() bool {
	return len(p.from.host.linkTo(p.to.host).cuts) > 0 || p.from.dead
}

// windowSpace is how many bytes the sender may write. While the way back is cut it
// does not hear what was read.
func (p *pipe) windowSpace() int {
	if p.to.out.currentState() == open {
		p.acked = p.read
	}
	return window - (p.written - p.acked)
}

// pushSegment sends a segment through a gate that is not refused.
func (p *pipe) pushSegment(now instant, s segment, g pipeState) {
	p.written += len(s.data)
	s.at = never
	if g == open && p.stalledCount == 0 {
		p.scheduleSegment(now, &s)
	} else {
		p.stalledCount++
	}
	p.segments = append(p.segments, s)
}

// scheduleSegment decides when a segment arrives.
func (p *pipe) scheduleSegment(now instant, s *segment) {
	packets := max(1, (len(s.data)+segmentSize-1)/segmentSize)
	bytes := len(s.data) + packets*segmentHeaders
	from, to := p.from.host, p.to.host
	s.at = max(from.linkTo(to).segmentArrival(now, bytes), p.last)
	p.last = s.at
	from.traffic.SentPackets += packets
	from.traffic.SentBytes += bytes
	to.traffic.ReceivedPackets += packets
	to.traffic.ReceivedBytes += bytes
	p.to.reading.wakeAtLatest(now, s.at)
	if s.fin {
		p.to.writing.wakeAtLatest(now, s.at)
	}
}

// sendStalled sends what has waited.
func (p *pipe) sendStalled(now instant) {
	for i := len(p.segments) - p.stalledCount; i < len(p.segments); i++ {
		p.scheduleSegment(now, &p.segments[i])
	}
	p.stalledCount = 0
}

// dropStalled forgets what has not left.
func (p *pipe) dropStalled() {
	p.segments = p.segments[:len(p.segments)-p.stalledCount]
	p.stalledCount = 0
}

// nextArrival is when something arrives.
func (p *pipe) nextArrival() instant {
	if len(p.segments) == 0 {
		return never
	}
	return p.segments[0].at
}

// readArrived copies what has arrived; end is true when nothing comes after it.
func (p *pipe) readArrived(now instant, b []byte) (size int, end bool) {
	for len(p.segments) > 0 && p.segments[0].at <= now {
		s := &p.segments[0]
		if s.fin {
			return size, size == 0
		}
		if size == len(b) {
			break
		}
		c := copy(b[size:], s.data)
		size += c
		s.data = s.data[c:]
		if len(s.data) == 0 {
			p.segments[0] = segment{}
			p.segments = p.segments[1:]
		}
	}
	p.read += size
	return size, false
}

// closedAt is when the receiver learns that the sender reads no more.
func (p *pipe) closedAt() instant {
	if !p.full || p.stalledCount > 0 {
		return never
	}
	return p.last
}
