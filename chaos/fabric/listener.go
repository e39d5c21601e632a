package fabric

import (
	"context"
	"net"
	"slices"
	"syscall"
	"time"
)

// Dialing, as Linux does it.
const (
	backlog    = 128         // maximum number of connections that wait for Accept
	firstRetry = time.Second // delay until the second attempt; it doubles each time
	attempts   = 7
	synSize    = 60
)

// Listener listens on a TCP port of a host.
type Listener struct {
	host   *Host
	port   uint16
	addr   *net.TCPAddr
	accept waiter

	// Guarded by Net.mu.
	closed   bool // accepts no more: by Close, or by the end of the host's process
	released bool // Close was called
	queue    []incoming
}

// incoming is a connection that waits for Accept.
type incoming struct {
	at     instant
	stream *Stream
}

var _ net.Listener = (*Listener)(nil)

// Accept waits for the next connection and returns it.
func (l *Listener) Accept() (net.Conn, error) {
	var s *Stream
	l.accept.waitUntilDone(func(now instant) (instant, bool) {
		if l.closed {
			return 0, true
		}
		if l.host.pause != nil || len(l.queue) == 0 {
			return never, false
		}
		first := 0
		for i, w := range l.queue {
			if w.at < l.queue[first].at {
				first = i
			}
		}
		if l.queue[first].at > now {
			return l.queue[first].at, false
		}
		s = l.queue[first].stream
		l.queue = slices.Delete(l.queue, first, first+1)
		return 0, true
	})
	if s == nil {
		return nil, opError("accept", "tcp", l.addr, nil, net.ErrClosed)
	}
	return s, nil
}

// Close releases the port, and closes the connections that wait for Accept.
func (l *Listener) Close() error {
	n := l.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.released {
		return opError("close", "tcp", l.addr, nil, net.ErrClosed)
	}
	l.released = true
	if l.closed {
		return nil
	}
	for _, w := range l.queue {
		w.stream.hangUp(n.currentInstant())
	}
	l.closeListener()
	return nil
}

// closeListener ends the listener without notice to waiting connections, and returns 1 for the count
// of things that a crash ended; mu is held.
func (l *Listener) closeListener() int {
	l.closed = true
	l.queue = nil
	if l.host.listeners[l.port] == l {
		delete(l.host.listeners, l.port)
	}
	l.accept.wakeSleeper()
	return 1
}

// Addr returns a *net.TCPAddr: the host's own address at the time of Listen.
func (l *Listener) Addr() net.Addr { return l.addr }

// Dial opens a stream to an address such as "10.0.0.1:4646", or with a host's
// name instead. It takes a round trip. Without an answer it retries after 1 s, 3 s,
// 7 s …, and gives up when ctx is done or after 127 s. It is refused at once by a cut
// with the mode Refused, and after a round trip if no listener has the port. A NAT
// does not translate streams: a host behind one reaches only itself. After a Crash it
// fails with ENETDOWN until the host has opened a port, so that goroutines of the
// crashed process reach no other host.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	s, err := h.dialWithRetries(ctx, addr)
	if err != nil {
		return nil, opError("dial", "tcp", nil, textAddr(addr), err)
	}
	return s, nil
}

// textAddr is an unparsed address, for errors.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

// dialWithRetries attempts to dial until there is a stream or an error other than a missing answer.
func (h *Host) dialWithRetries(ctx context.Context, addr string) (*Stream, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := firstRetry
	for range attempts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, wait, gone, err := h.attemptDial(addr)
		if s == nil && wait == 0 && err == nil {
			wait = retry
			retry *= 2
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-gone:
			err = net.ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil && s != nil {
			_ = s.Close() // it was not closed before
		}
		if err != nil || s != nil {
			return s, err
		}
	}
	return nil, syscall.ETIMEDOUT
}

// attemptDial makes one attempt to connect. The result, a stream or an error, is valid after the
// wait. Without an answer all of s, wait and err are zero. gone is closed when the host crashes.
func (h *Host) attemptDial(addr string) (s *Stream, wait time.Duration, gone <-chan struct{}, err error) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, 0, h.crashed, net.ErrClosed
	}
	if !h.up {
		return nil, 0, h.crashed, syscall.ENETDOWN
	}
	dst, err := n.resolveAddr(addr)
	if err != nil {
		return nil, 0, h.crashed, err
	}
	now := n.currentInstant()
	target := n.hostsByAddr[dst.Addr()]
	if dst.Addr() == h.ip || dst.Addr().IsLoopback() {
		target = h
	} else if h.nat != nil {
		return nil, 0, h.crashed, syscall.ENETUNREACH
	}
	if target == nil || h.pause != nil {
		return nil, 0, h.crashed, nil
	}
	there, back := h.linkTo(target), target.linkTo(h)
	if mode, cut := there.countStoppedByCut(true); cut && mode == Refused {
		return nil, 0, h.crashed, syscall.ECONNREFUSED
	} else if cut {
		return nil, 0, h.crashed, nil
	}
	if _, cut := back.countStoppedByCut(true); cut || !target.up {
		return nil, 0, h.crashed, nil
	}
	arrives := there.segmentArrival(now, synSize)
	answered := back.segmentArrival(arrives, synSize)
	wait = time.Duration(answered - now)
	l := target.listeners[dst.Port()]
	switch {
	case l == nil:
		return nil, wait, h.crashed, syscall.ECONNREFUSED
	case len(l.queue) >= backlog:
		return nil, 0, h.crashed, nil
	}
	p := n.newStreamPair(h, target, dst.Port())
	at := there.segmentArrival(answered, synSize)
	p.ends[0].out.last, p.ends[1].out.last = at, answered
	l.queue = append(l.queue, incoming{at: at, stream: p.ends[1]})
	l.accept.wakeAtLatest(now, at)
	return p.ends[0], wait, h.crashed, nil
}
