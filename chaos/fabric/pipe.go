package fabric

// Sizes of streams, in bytes.
const (
	window         = 256 << 10 // bytes in flight and unread, in one direction
	segmentSize    = 1460      // bytes of a stream in one packet
	segmentHeaders = 40        // of IPv4 and TCP
)

// segment is the data of one Write.
type segment struct {
	at   instant // arrival; never: the segment is stalled
	data []byte
	fin  bool // end of the stream
}

// pipe is one direction of a stream. All fields are guarded by Net.mu.
type pipe struct {
	from, to     *Stream
	segments     []segment
	stalledCount int     // number of stalled segments, which are the last ones
	last         instant // arrival of the last segment that is not stalled

	written, read int
	acked         int  // bytes read, as far as the sender knows
	fin           bool // the sender has sent its last segment
	full          bool // the sender has closed its reading half, too
}

// pipeState is the effect of a pipe on new segments.
type pipeState uint8

const (
	open          pipeState = iota
	stalled                 // they wait until the pipe is open
	refused                 // the sender gets an error
	unknownToPeer           // the peer's host has crashed and answers with a reset
)

// currentState returns the state that follows from the hosts' states and the current cuts.
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

// isBroken reports whether a cut or a crash of the sender stops the pipe. A pause does not count.
func (p *pipe) isBroken() bool {
	return len(p.from.host.linkTo(p.to.host).cuts) > 0 || p.from.dead
}

// windowSpace returns the number of bytes that the sender may write. While the other direction is
// not open, the sender does not learn of bytes that were read.
func (p *pipe) windowSpace() int {
	if p.to.out.currentState() == open {
		p.acked = p.read
	}
	return window - (p.written - p.acked)
}

// pushSegment sends a segment, or stalls it unless the pipe is in the state open.
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

// scheduleSegment sets the arrival of a segment, counts the traffic, and wakes the receiver then.
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

// sendStalled sends the stalled segments.
func (p *pipe) sendStalled(now instant) {
	for i := len(p.segments) - p.stalledCount; i < len(p.segments); i++ {
		p.scheduleSegment(now, &p.segments[i])
	}
	p.stalledCount = 0
}

// dropStalled drops the stalled segments.
func (p *pipe) dropStalled() {
	p.segments = p.segments[:len(p.segments)-p.stalledCount]
	p.stalledCount = 0
}

// nextArrival returns the arrival of the first segment; never: there is none, or it is stalled.
func (p *pipe) nextArrival() instant {
	if len(p.segments) == 0 {
		return never
	}
	return p.segments[0].at
}

// readArrived copies arrived bytes to b and returns their number. end is true if the stream has ended
// and all bytes were read.
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

// closedAt returns the instant at which the receiver learns that the sender reads no more; never: it
// has not closed, or the end is stalled.
func (p *pipe) closedAt() instant {
	if !p.full || p.stalledCount > 0 {
		return never
	}
	return p.last
}
