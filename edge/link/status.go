package link

import (
	"slices"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
)

// State says whether the link is connected, and what it does otherwise.
type State string

const (
	StateConnecting State = "connecting" // dialing, or waiting for a hub to commit the session
	StateConnected  State = "connected"  // a heartbeat of the session was answered
	StateWaiting    State = "waiting"    // waiting before the next attempt
	StateFenced     State = "fenced"     // a hub takes this machine for a clone; retrying slowly
)

// Status is a copy of the link's status, for people.
type Status struct {
	State      State
	Hub        string           // address of the session, or of the last attempt
	Hubs       []string         // known addresses
	Session    uint64           // number of the session
	Epoch      fleet.Epoch      // of the committed session; 0: none
	NodeStatus fleet.NodeStatus // as a hub reported last
	NodeReason string
	LastError  string        // why the last attempt or session ended
	Away       time.Duration // since the last answered heartbeat was sent, in machine time; 0: never
	NextTry    time.Duration // until the next attempt; 0: not waiting
	TTL        time.Duration // of the session's heartbeats
	RTT        time.Duration
	Fenced     string // why a hub refused this machine as a clone
	WentBack   string // how the cluster fell behind its own acknowledgements

	Unacknowledged uint64 // rows that the cluster has not applied
	// Bytes on the wire since New, with UDP and IP headers.
	BytesSent, BytesReceived uint64
}

// Status returns the status of the link now. It may be called from any goroutine.
func (l *Link) Status() Status {
	s := l.tracker.currentStatus()
	s.Away = l.cfg.Journal.Away()
	if h := l.cfg.Journal.Head(); h.Last > h.Acknowledged {
		s.Unacknowledged = uint64(h.Last - h.Acknowledged)
	}
	return s
}

// statusTracker holds the status for readers in other goroutines.
type statusTracker struct {
	mu            sync.Mutex
	status        Status          // without the fields that currentStatus computes
	committed     bool            // a heartbeat of the session on conn was answered
	retryAt       time.Time       // end of the pause; zero: none
	closedTraffic traffic         // of closed connections
	conn          *transport.Conn // of the session; nil: none
}

// traffic is bytes on the wire.
type traffic struct{ sent, received uint64 }

// updateStatus calls f with the stored status while the lock is held.
func (b *statusTracker) updateStatus(f func(s *Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.status)
}

// currentStatus returns the status with its computed fields.
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

// setRetryTime records that the link waits until resume before it dials; the zero time: it does not wait.
func (b *statusTracker) setRetryTime(resume time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retryAt = resume
}

// noteDialAttempt shows hub as the address of the last attempt, unless there is a session.
func (b *statusTracker) noteDialAttempt(hub string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		b.status.Hub = hub
	}
}

// markCommitted records that the session on the current connection is committed.
func (b *statusTracker) markCommitted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed = true
}

// setConnection records the connection of a new session, which is not committed yet; nil: the session is over.
// It adds the traffic of the connection before.
func (b *statusTracker) setConnection(c *transport.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.closedTraffic = b.closedTraffic.addTraffic(connTraffic(b.conn))
	}
	b.conn, b.committed = c, false
}

// addClosedTraffic adds the traffic of a closed connection.
func (b *statusTracker) addClosedTraffic(t traffic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closedTraffic = b.closedTraffic.addTraffic(t)
}

func (t traffic) addTraffic(o traffic) traffic {
	return traffic{t.sent + o.sent, t.received + o.received}
}

// headers is the size of a packet's headers in bytes: UDP over IPv4.
const headers = 8 + 20

// connTraffic returns the bytes of a connection on the wire, with the headers of its packets.
func connTraffic(c *transport.Conn) traffic {
	s := c.Stats()
	return traffic{s.BytesSent + headers*s.PacketsSent, s.BytesReceived + headers*s.PacketsReceived}
}
