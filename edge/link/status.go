package link

import (
	"slices"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
)

// State is what the link is doing.
type State string

const (
	StateConnecting State = "connecting" // dialing, or waiting for a hub to commit the session
	StateConnected  State = "connected"  // a beat of the session was answered
	StateWaiting    State = "waiting"    // pausing before the next attempt
	StateFenced     State = "fenced"     // a hub takes this machine for a clone; trying again slowly
)

// Status is where the link stands.
type Status struct {
	State      State
	Hub        string   // address of the session, or of the last attempt
	Hubs       []string // addresses that are tried
	Session    uint64   // the edge's own count of sessions
	Epoch      fleet.Epoch
	NodeStatus fleet.NodeStatus // as the hub said last
	NodeReason string
	LastError  string        // why the last attempt or session ended
	Away       time.Duration // since the last answered beat, in machine time; 0: never
	NextTry    time.Duration // until the next attempt; 0: none is waiting
	TTL        time.Duration // of the session's beats
	RTT        time.Duration
	Fenced     string // why a hub refused this machine as a clone
	WentBack   string // how the cluster fell behind what it had said before

	Unacknowledged uint64 // rows that the cluster has not applied
	// Bytes on the wire since New, UDP and IP headers counted.
	BytesSent, BytesReceived uint64
}

// Status may be called from any goroutine, at any time.
func (l *Link) Status() Status {
	s := l.board.read()
	s.Away = l.cfg.Memory.Away()
	if h := l.cfg.Journal.Head(); h.Last > h.Acknowledged {
		s.Unacknowledged = uint64(h.Last - h.Acknowledged)
	}
	return s
}

// board is the status as others read it.
type board struct {
	mu        sync.Mutex
	status    Status          // without what read adds
	committed bool            // a beat of the session on conn was answered
	resume    time.Time       // end of a pause; zero: there is none
	past      traffic         // of connections that are over
	conn      *transport.Conn // the session's; nil: there is none
}

// traffic is bytes on the wire.
type traffic struct{ sent, received uint64 }

func (b *board) set(f func(s *Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.status)
}

func (b *board) read() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	s.Hubs = slices.Clone(s.Hubs)
	t := b.past
	if b.conn != nil {
		t = t.plus(wire(b.conn))
		s.RTT = b.conn.Stats().RTT
	} else if !b.resume.IsZero() {
		s.NextTry = max(0, time.Until(b.resume))
	}
	s.BytesSent, s.BytesReceived = t.sent, t.received
	switch {
	case b.committed:
		s.State = StateConnected
	case s.Fenced != "":
		s.State = StateFenced
	case s.NextTry > 0:
		s.State = StateWaiting
	default:
		s.State = StateConnecting
	}
	return s
}

// waiting notes a pause that ends at resume; zero: it is over.
func (b *board) waiting(resume time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resume = resume
}

// trying notes an attempt, where there is no session.
func (b *board) trying(hub string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		b.status.Hub = hub
	}
}

// connected notes that the session is committed.
func (b *board) connected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed = true
}

// use makes c the session's connection; nil: there is none.
func (b *board) use(c *transport.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.past = b.past.plus(wire(b.conn))
	}
	b.conn, b.committed = c, false
}

// count adds the traffic of a connection that came to nothing.
func (b *board) count(t traffic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.past = b.past.plus(t)
}

func (t traffic) plus(o traffic) traffic {
	return traffic{t.sent + o.sent, t.received + o.received}
}

// headers are the bytes before a packet's payload: UDP over IPv4.
const headers = 8 + 20

func wire(c *transport.Conn) traffic {
	s := c.Stats()
	return traffic{s.BytesSent + headers*s.PacketsSent, s.BytesReceived + headers*s.PacketsReceived}
}
