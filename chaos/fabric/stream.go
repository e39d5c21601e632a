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

// keepAlive is after how long a stream ends on which nothing passes: Go's TCP
// keep-alive, 15 s of silence and nine probes 15 s apart.
const keepAlive = 150 * time.Second

// pair is a stream with its two ends. It is guarded by Net.mu.
type pair struct {
	ends        [2]*Stream
	brokenSince instant // since when nothing passes in a direction; never: all does
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
	dead     bool    // the machine is
	reset    instant // when the peer's answer arrives, that it knows of no such stream
	err      error   // what has ended it
}

var _ net.Conn = (*Stream)(nil)

// newStreamPair makes a stream between a host that dials and one that listens; mu is held.
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

// nextEphemeralPort is the port of a stream that the host dials; mu is held.
func (h *Host) nextEphemeralPort() int {
	p := h.nextPort
	if h.nextPort++; h.nextPort > lastEphemeral {
		h.nextPort = firstEphemeral
	}
	return p
}

// refreshStreams looks at all streams after a change of the network: what waited for it
// is sent, and who sleeps learns that nothing passes any more. mu is held.
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

func (s *Stream) hasEnded() bool { return s.closed || s.err != nil }

// forgetIfEnded lets go of a stream that is over on both sides; mu is held.
func (p *pair) forgetIfEnded() {
	if n := p.ends[0].host.net; p.ends[0].hasEnded() && p.ends[1].hasEnded() {
		n.pairs = slices.DeleteFunc(n.pairs, func(o *pair) bool { return o == p })
	}
}

func (s *Stream) notifyWaiters() {
	s.reading.wakeSleeper()
	s.writing.wakeSleeper()
}

// checkForError gives the error that a read or a write ends with before anything else.
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

// keepAliveEnd is until when a stream lives on which nothing passes.
func (s *Stream) keepAliveEnd() instant {
	if s.pair.brokenSince == never {
		return never
	}
	return s.pair.brokenSince.addDuration(keepAlive)
}

// failStream ends the stream on this side; mu is held.
func (s *Stream) failStream(err error) {
	s.err = err
	s.out.dropStalled()
	s.notifyWaiters()
	s.pair.forgetIfEnded()
}

// Read gives io.EOF after what the peer wrote before it closed.
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

// Write waits while the peer does not read and the window is full.
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

// sendSegment writes as much as the window allows; mu is held.
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

// CloseWrite tells the peer that no more is written.
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

// sendFin sends the end; mu is held.
func (s *Stream) sendFin(now instant) {
	if s.out.fin || s.err != nil {
		return
	}
	s.out.fin = true
	s.out.pushSegment(now, segment{fin: true}, s.out.currentState())
	s.writing.wakeSleeper()
}

// Close ends both halves; what was written is still delivered.
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

// hangUp closes this side; mu is held.
func (s *Stream) hangUp(now instant) {
	s.sendFin(now)
	s.out.full = true
	s.closed = true
	s.notifyWaiters()
	s.in.from.notifyWaiters()
	s.pair.forgetIfEnded()
}

// killStream ends this side without a word; mu is held.
func (s *Stream) killStream() {
	s.closed, s.dead = true, true
	s.out.dropStalled()
	s.notifyWaiters()
}

// LocalAddr is a *net.TCPAddr: the host's own address when the stream was made.
func (s *Stream) LocalAddr() net.Addr { return s.local }

// RemoteAddr is the peer's address, as seen from here.
func (s *Stream) RemoteAddr() net.Addr { return s.remote }

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline is for Read, also one that waits already.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.reading.setDeadline(t)
	return nil
}

// SetWriteDeadline is for Write, also one that waits already.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.writing.setDeadline(t)
	return nil
}
