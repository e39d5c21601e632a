package fabric

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// keepAlive is the time after which a broken stream ends: Go's TCP keep-alive, 15 s of silence
// and nine probes 15 s apart.
const keepAlive = 150 * time.Second

// pair has the two ends of a stream. It is guarded by Net.mu.
type pair struct {
	ends        [2]*Stream
	brokenSince instant // since when one of the pipes is broken; never: none is
}

// Stream is one end of a TCP connection.
type Stream struct {
	host          *Host
	local, remote *net.TCPAddr
	pair          *pair
	in, out       *pipe
	reading       waiter
	writing       waiter

	// Guarded by Net.mu.
	closed   bool
	released bool    // Close was called
	dead     bool    // the host has crashed since the stream was made
	reset    instant // arrival of a reset from the peer's host; never: none
	err      error   // the error that has ended the stream; nil: none
}

var _ net.Conn = (*Stream)(nil)

// newStreamPair adds a stream from the host h to the port of target; mu is held.
func (n *Net) newStreamPair(h, target *Host, port uint16) *pair {
	dialing := &Stream{host: h, local: &net.TCPAddr{IP: h.ip.AsSlice(), Port: h.nextEphemeralPort()}}
	accepting := &Stream{host: target, local: &net.TCPAddr{IP: target.ip.AsSlice(), Port: int(port)}}
	dialing.remote, accepting.remote = accepting.local, dialing.local
	dialing.out = &pipe{from: dialing, to: accepting}
	accepting.out = &pipe{from: accepting, to: dialing}
	dialing.in, accepting.in = accepting.out, dialing.out
	p := &pair{ends: [2]*Stream{dialing, accepting}, brokenSince: never}
	for _, s := range p.ends {
		s.pair, s.reset = p, never
		s.reading, s.writing = newWaiter(n), newWaiter(n)
	}
	n.pairs = append(n.pairs, p)
	return p
}

// nextEphemeralPort returns the local port of a dialed stream; mu is held.
func (h *Host) nextEphemeralPort() int {
	p := h.nextPort
	if h.nextPort++; h.nextPort > lastEphemeral {
		h.nextPort = firstEphemeral
	}
	return p
}

// refreshStreams updates all streams after a change of faults or hosts: it sends segments that are no
// longer stalled, and wakes the readers and writers of streams that broke or healed. mu is held.
func (n *Net) refreshStreams() {
	now := n.currentInstant()
	n.pairs = slices.DeleteFunc(n.pairs, func(p *pair) bool { return p.ends[0].hasEnded() && p.ends[1].hasEnded() })
	for _, p := range n.pairs {
		broken := false
		for _, s := range p.ends {
			if s.out.stalledCount > 0 && s.out.currentState() == open {
				s.out.sendStalled(now)
			}
			broken = broken || s.out.isBroken()
		}
		if broken == (p.brokenSince != never) {
			continue
		}
		p.brokenSince = never
		if broken {
			p.brokenSince = now
		}
		for _, s := range p.ends {
			s.notifyWaiters()
		}
	}
}

// hasEnded reports whether this end is closed or has failed.
func (s *Stream) hasEnded() bool { return s.closed || s.err != nil }

// forgetIfEnded removes the pair from the network if both ends have ended; mu is held.
func (p *pair) forgetIfEnded() {
	if n := p.ends[0].host.net; p.ends[0].hasEnded() && p.ends[1].hasEnded() {
		n.pairs = slices.DeleteFunc(n.pairs, func(o *pair) bool { return o == p })
	}
}

// notifyWaiters makes waiting reads and writes check the stream again.
func (s *Stream) notifyWaiters() {
	s.reading.wakeSleeper()
	s.writing.wakeSleeper()
}

// checkForError returns the error that ends a read or a write now; nil: none. It fails the stream if
// a reset has arrived or the keep-alive has ended.
func (s *Stream) checkForError(now instant, w *waiter) error {
	switch {
	case s.closed:
		return net.ErrClosed
	case w.isPastDeadline(now):
		return os.ErrDeadlineExceeded
	case s.err != nil:
	case s.reset <= now:
		s.failStream(os.NewSyscallError("read", syscall.ECONNRESET))
	case s.keepAliveEnd() <= now:
		s.failStream(os.NewSyscallError("read", syscall.ETIMEDOUT))
	}
	return s.err
}

// keepAliveEnd returns the instant at which a broken stream fails; never: it is not broken.
func (s *Stream) keepAliveEnd() instant {
	if s.pair.brokenSince == never {
		return never
	}
	return s.pair.brokenSince.addDuration(keepAlive)
}

// failStream ends this side with an error and drops its stalled segments; mu is held.
func (s *Stream) failStream(err error) {
	s.err = err
	s.out.dropStalled()
	s.notifyWaiters()
	s.pair.forgetIfEnded()
}

// Read waits for data and copies it to b. After the peer's last data it returns io.EOF.
func (s *Stream) Read(b []byte) (size int, err error) {
	s.reading.waitUntilDone(func(now instant) (instant, bool) {
		if err = s.checkForError(now, &s.reading); err != nil || len(b) == 0 {
			return 0, true
		}
		if s.host.pause != nil {
			return never, false
		}
		end := false
		if size, end = s.in.readArrived(now, b); end {
			err = io.EOF
			return 0, true
		}
		if size > 0 {
			s.in.from.writing.wakeSleeper()
			return 0, true
		}
		return min(s.in.nextArrival(), s.reset, s.keepAliveEnd()), false
	})
	if err != nil && err != io.EOF {
		err = opError("read", "tcp", s.local, s.remote, err)
	}
	return size, err
}

// Write sends b. It waits while the window is full because the peer does not read.
func (s *Stream) Write(b []byte) (size int, err error) {
	s.writing.waitUntilDone(func(now instant) (instant, bool) {
		if s.dead && !s.released {
			size = len(b)
			return 0, true
		}
		if err = s.checkForError(now, &s.writing); err != nil {
			return 0, true
		}
		if s.out.fin || s.in.closedAt() <= now {
			err = os.NewSyscallError("write", syscall.EPIPE)
			return 0, true
		}
		n := 0
		if n, err = s.sendSegment(now, b[size:]); err != nil {
			return 0, true
		}
		size += n
		return min(s.in.closedAt(), s.reset, s.keepAliveEnd()), size == len(b)
	})
	if err != nil {
		err = opError("write", "tcp", s.local, s.remote, err)
	}
	return size, err
}

// sendSegment sends as many bytes as the window allows, and returns their number. It counts the
// effects of faults, and fails the stream if a cut refuses the write. mu is held.
func (s *Stream) sendSegment(now instant, b []byte) (int, error) {
	size := min(len(b), s.out.windowSpace())
	if size <= 0 {
		return 0, nil
	}
	g := s.out.currentState()
	switch {
	case g == open:
	case s.host.pause != nil:
		s.host.pause.count.Held++
	default:
		s.host.linkTo(s.in.from.host).countStoppedByCut(true)
	}
	switch g {
	case refused:
		s.failStream(os.NewSyscallError("write", syscall.ECONNRESET))
		return 0, s.err
	case unknownToPeer:
		peer := s.in.from.host
		there := s.host.linkTo(peer).segmentArrival(now, segmentHeaders)
		s.reset = min(s.reset, peer.linkTo(s.host).segmentArrival(there, segmentHeaders))
		s.reading.wakeAtLatest(now, s.reset)
	}
	s.out.pushSegment(now, segment{data: slices.Clone(b[:size])}, g)
	return size, nil
}

// CloseWrite ends the writing half: the peer reads io.EOF after the data written so far.
func (s *Stream) CloseWrite() error {
	n := s.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return opError("close", "tcp", s.local, s.remote, net.ErrClosed)
	}
	s.sendFin(n.currentInstant())
	return nil
}

// sendFin sends the end of the stream, once; mu is held.
func (s *Stream) sendFin(now instant) {
	if s.out.fin || s.err != nil {
		return
	}
	s.out.fin = true
	s.out.pushSegment(now, segment{fin: true}, s.out.currentState())
	s.writing.wakeSleeper()
}

// Close ends both halves; data that was written is still delivered.
func (s *Stream) Close() error {
	n := s.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.released {
		return opError("close", "tcp", s.local, s.remote, net.ErrClosed)
	}
	s.released = true
	if !s.closed {
		s.hangUp(n.currentInstant())
	}
	return nil
}

// hangUp closes this side as Close does; mu is held.
func (s *Stream) hangUp(now instant) {
	s.sendFin(now)
	s.out.full = true
	s.closed = true
	s.notifyWaiters()
	s.in.from.notifyWaiters()
	s.pair.forgetIfEnded()
}

// killStream ends this side, as a crash does, without notice to the peer; mu is held.
func (s *Stream) killStream() {
	s.closed, s.dead = true, true
	s.out.dropStalled()
	s.notifyWaiters()
}

// LocalAddr returns a *net.TCPAddr: the host's own address when the stream was made.
func (s *Stream) LocalAddr() net.Addr { return s.local }

// RemoteAddr returns the peer's own address and port.
func (s *Stream) RemoteAddr() net.Addr { return s.remote }

// SetDeadline sets the deadlines for reading and writing.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of Read, also for a call that waits already.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.reading.setDeadline(t)
	return nil
}

// SetWriteDeadline sets the deadline of Write, also for a call that waits already.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.writing.setDeadline(t)
	return nil
}
