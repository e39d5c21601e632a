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
	s := l.tracker.currentStatus()
	s.Away = l.cfg.Journal.Away()
	if h := l.cfg.Journal.Head(); h.Last > h.Acknowledged {
		s.Unacknowledged = uint64(h.Last - h.Acknowledged)
	}
	return s
}

// statusTracker is the status as others read it.
type statusTracker struct {
	mu            sync.Mutex
	status        Status          // without what read adds
	committed     bool            // a beat of the session on conn was answered
	retryAt       time.Time       // end of a pause; zero: there is none
	closedTraffic traffic         // of connections that are over
	conn          *transport.Conn // the session's; nil: there is none
}

// traffic is bytes on the wire.
type traffic struct{ sent, received uint64 }

func (b *statusTracker) updateStatus(f func(s *Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.status)
}

func (b *statusTracker) currentStatus() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	s.Hubs = slices.Clone(s.Hubs)
	t := b.closedTraffic
	if b.conn != nil {
		t = t.addTraffic(connTraffic(b.conn))
		s.RTT = b.conn.Stats().RTT
	} else if !b.retryAt.IsZero() {
		s.NextTry = max(0, time.Until(b.retryAt))
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

// setRetryTime notes a pause that ends at resume; zero: it is over.
func (b *statusTracker) setRetryTime(resume time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retryAt = resume
}

// noteDialAttempt notes an attempt, where there is no session.
func (b *statusTracker) noteDialAttempt(hub string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		b.status.Hub = hub
	}
}

// markCommitted notes that the session is committed.
func (b *statusTracker) markCommitted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed = true
}

// setConnection makes c the session's connection; nil: there is none.
func (b *statusTracker) setConnection(c *transport.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.closedTraffic = b.closedTraffic.addTraffic(connTraffic(b.conn))
	}
	b.conn, b.committed = c, false
}

// addClosedTraffic adds the traffic of a connection that came to nothing.
func (b *statusTracker) addClosedTraffic(t traffic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closedTraffic = b.closedTraffic.addTraffic(t)
}

func (t traffic) addTraffic(o traffic) traffic {
	return traffic{t.sent + o.sent, t.received + o.received}
}

// headers are the bytes before a packet's payload: UDP over IPv4.
const headers = 8 + 20

func connTraffic(c *transport.Conn) traffic {
	s := c.Stats()
	return traffic{s.BytesSent + headers*s.PacketsSent, s.BytesReceived + headers*s.PacketsReceived}
}
