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
	ends   [2]*Stream
	broken instant // since when nothing passes in a direction; never: all does
}

// Stream is one end of a TCP connection.
type Stream struct {
	host          *Host
	local, remote *net.TCPAddr
	public        uint16 // the NAT's port; 0: there is none
	pair          *pair
	in, out       *pipe
	reading       waiter
	writing       waiter

	// Guarded by Net.mu.
	closed    bool
	released  bool    // Close was called
	dead      bool    // the machine is
	forgotten bool    // by the NAT
	reset     instant // when the peer's answer arrives, that it knows of no such stream
	err       error   // what has ended it
}

var _ net.Conn = (*Stream)(nil)

// join makes a stream between a host that dials and one that listens; mu is held.
func (n *Net) join(h, target *Host, port uint16) *pair {
	dialing := &Stream{host: h, local: &net.TCPAddr{IP: h.ip.AsSlice(), Port: h.ephemeral()}}
	accepting := &Stream{host: target, local: &net.TCPAddr{IP: target.ip.AsSlice(), Port: int(port)}}
	dialing.remote, accepting.remote = accepting.local, dialing.local
	if h.nat != nil && h != target {
		dialing.public = h.nat.port()
		h.nat.streams[dialing.public] = dialing
		accepting.remote = &net.TCPAddr{IP: h.nat.ip.AsSlice(), Port: int(dialing.public)}
	}
	dialing.out = &pipe{from: dialing, to: accepting}
	accepting.out = &pipe{from: accepting, to: dialing}
	dialing.in, accepting.in = accepting.out, dialing.out
	p := &pair{ends: [2]*Stream{dialing, accepting}, broken: never}
	for _, s := range p.ends {
		s.pair, s.reset = p, never
		s.reading, s.writing = newWaiter(n), newWaiter(n)
	}
	n.pairs = append(n.pairs, p)
	return p
}

// ephemeral is the port of a stream that the host dials; mu is held.
func (h *Host) ephemeral() int {
	p := h.nextPort
	if h.nextPort++; h.nextPort > lastEphemeral {
		h.nextPort = firstEphemeral
	}
	return p
}

// review looks at all streams after a change of the network: what waited for it
// is sent, and who sleeps learns that nothing passes any more. mu is held.
func (n *Net) review() {
	now := n.now()
	n.pairs = slices.DeleteFunc(n.pairs, func(p *pair) bool { return p.ends[0].over() && p.ends[1].over() })
	for _, p := range n.pairs {
		broken := false
		for _, s := range p.ends {
			if s.out.held > 0 && s.out.gate() == open {
				s.out.flush(now)
			}
			broken = broken || s.out.broken()
		}
		if broken == (p.broken != never) {
			continue
		}
		p.broken = never
		if broken {
			p.broken = now
		}
		for _, s := range p.ends {
			s.notify()
		}
	}
}

func (s *Stream) over() bool { return s.closed || s.err != nil }

// forget lets go of a stream that is over on both sides; mu is held.
func (p *pair) forget() {
	if n := p.ends[0].host.net; p.ends[0].over() && p.ends[1].over() {
		n.pairs = slices.DeleteFunc(n.pairs, func(o *pair) bool { return o == p })
	}
}

// away reports whether the host has left the address that the stream was made at.
func (s *Stream) away() bool {
	return s.public == 0 && s.host.nat == nil && !s.local.IP.Equal(s.host.ip.AsSlice())
}

func (s *Stream) notify() {
	s.reading.notify()
	s.writing.notify()
}

// check gives the error that a read or a write ends with before anything else.
func (s *Stream) check(now instant, w *waiter) error {
	switch {
	case s.closed:
		return net.ErrClosed
	case w.expired(now):
		return os.ErrDeadlineExceeded
	case s.err != nil:
	case s.reset <= now:
		s.fail(os.NewSyscallError("read", syscall.ECONNRESET))
	case s.lifetime() <= now:
		s.fail(os.NewSyscallError("read", syscall.ETIMEDOUT))
	}
	return s.err
}

// lifetime is until when a stream lives on which nothing passes.
func (s *Stream) lifetime() instant {
	if s.pair.broken == never {
		return never
	}
	return s.pair.broken.add(keepAlive)
}

// fail ends the stream on this side; mu is held.
func (s *Stream) fail(err error) {
	s.err = err
	s.out.drop()
	s.leave()
	s.notify()
	s.pair.forget()
}

// leave gives the NAT's port back; mu is held.
func (s *Stream) leave() {
	if s.public != 0 && s.host.nat != nil && s.host.nat.streams[s.public] == s {
		delete(s.host.nat.streams, s.public)
	}
}

// Read gives io.EOF after what the peer wrote before it closed.
func (s *Stream) Read(b []byte) (size int, err error) {
	s.reading.wait(func(now instant) (instant, bool) {
		if err = s.check(now, &s.reading); err != nil || len(b) == 0 {
			return 0, true
		}
		if s.host.pause != nil {
			return never, false
		}
		end := false
		if size, end = s.in.take(now, b); end {
			err = io.EOF
			return 0, true
		}
		if size > 0 {
			s.in.from.writing.notify()
			return 0, true
		}
		return min(s.in.next(), s.reset, s.lifetime()), false
	})
	if err != nil && err != io.EOF {
		err = opError("read", "tcp", s.local, s.remote, err)
	}
	return size, err
}

// Write waits while the peer does not read and the window is full.
func (s *Stream) Write(b []byte) (size int, err error) {
	s.writing.wait(func(now instant) (instant, bool) {
		if s.dead && !s.released {
			size = len(b)
			return 0, true
		}
		if err = s.check(now, &s.writing); err != nil {
			return 0, true
		}
		if s.out.fin || s.in.closedAt() <= now {
			err = os.NewSyscallError("write", syscall.EPIPE)
			return 0, true
		}
		n := 0
		if n, err = s.send(now, b[size:]); err != nil {
			return 0, true
		}
		size += n
		return min(s.in.closedAt(), s.reset, s.lifetime()), size == len(b)
	})
	if err != nil {
		err = opError("write", "tcp", s.local, s.remote, err)
	}
	return size, err
}

// send writes as much as the window allows; mu is held.
func (s *Stream) send(now instant, b []byte) (int, error) {
	size := min(len(b), s.out.space())
	if size <= 0 {
		return 0, nil
	}
	g := s.out.gate()
	switch {
	case g == open:
	case s.host.pause != nil:
		s.host.pause.count.Held++
	default:
		s.host.link(s.in.from.host).stopped(true)
	}
	switch g {
	case refused:
		s.fail(os.NewSyscallError("write", syscall.ECONNRESET))
		return 0, s.err
	case unknown:
		peer := s.in.from.host
		there := s.host.link(peer).segment(now, segmentHeaders)
		s.reset = min(s.reset, peer.link(s.host).segment(there, segmentHeaders))
		s.reading.expect(now, s.reset)
	}
	s.out.push(now, segment{data: slices.Clone(b[:size])}, g)
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
	s.finish(n.now())
	return nil
}

// finish sends the end; mu is held.
func (s *Stream) finish(now instant) {
	if s.out.fin || s.err != nil {
		return
	}
	s.out.fin = true
	s.out.push(now, segment{fin: true}, s.out.gate())
	s.writing.notify()
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
		s.hangUp(n.now())
	}
	return nil
}

// hangUp closes this side; mu is held.
func (s *Stream) hangUp(now instant) {
	s.finish(now)
	s.out.full = true
	s.closed = true
	s.leave()
	s.notify()
	s.in.from.notify()
	s.pair.forget()
}

// die ends this side without a word; mu is held.
func (s *Stream) die() {
	s.closed, s.dead = true, true
	s.out.drop()
	s.leave()
	s.notify()
}

// displaced is told that the host's address has changed; mu is held.
func (s *Stream) displaced(h *Host) {
	if h.nat != nil && s.public != 0 {
		s.forgotten = true
		s.leave()
	}
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
	s.reading.until(t)
	return nil
}

// SetWriteDeadline is for Write, also one that waits already.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.writing.until(t)
	return nil
}
