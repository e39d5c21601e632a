package syncproto

import (
	"slices"
	"time"

	"skerry/fleet"
)

// A session is stepped: each call is given the time since an arbitrary start
// (monotonic) and returns frames to send and events for its owner. It does no
// I/O, holds no lock and never blocks. The same input gives the same output. Its
// owner calls it from one goroutine at a time.
//
// Once a session has ended, every step of it does nothing: an answer that comes
// late from a slow part of the owner needs no check.

// Bounds of a session.
const (
	// HelloTimeout is how long a hub waits for a Hello, for the first Heartbeat
	// after its Welcome, and an edge for the Welcome.
	HelloTimeout = 10 * time.Second
	// MissedHeartbeats is how many heartbeats may be missing before either side gives up.
	MissedHeartbeats = 3
	// MaxUpdatesInFlight is how many Updates may wait for their Applied.
	MaxUpdatesInFlight = 2
	// DefaultTTL is a session's heartbeat until the hub names another.
	DefaultTTL = 10 * time.Second
	// MinTTL, MaxTTL and MaxRetryAfter bound what an edge believes of a hub.
	MinTTL        = 100 * time.Millisecond
	MaxTTL        = 24 * time.Hour
	MaxRetryAfter = time.Hour
)

// Output is what a step asks its owner to do, in order.
type Output struct {
	// Send is a frame to write to Stream; nil where there is none.
	Send   Message
	Stream Stream
	// Event is one of the Event types below; nil where there is none.
	Event any
}

// Events of HubSession.
type (
	// EventHello: look the node up and answer with Accept or Refuse.
	EventHello struct{ Hello Hello }
	// EventHeartbeat: answer with Acknowledge. First asks the owner to commit the
	// session (SessionOpen) before it does; later heartbeats only move the deadline,
	// unless Node is set, which has to be committed too. A heartbeat that comes while
	// the First is being committed gives no event; it is acknowledged with it.
	EventHeartbeat struct {
		First     bool
		Heartbeat Heartbeat
	}
	// EventUpdates: rows to apply under Epoch; answer with AppliedTo or Refuse.
	EventUpdates struct {
		Epoch   fleet.Epoch
		Updates Updates
	}
	// EventReceived: the edge journaled the desired state up to Index.
	EventReceived struct{ Received Received }
	// EventHoldings: answer each with a Desired.
	EventHoldings struct{ Holdings Holdings }
	// EventProbeAck: the edge answered the newest probe.
	EventProbeAck struct{ Number uint64 }
)

// Events of both halves.
type (
	// EventEnd: the session is over; the owner closes the connection. A Refused
	// frame, where one is due, was sent before it.
	EventEnd struct {
		Err        *fleet.Error
		RetryAfter time.Duration
		Session    uint64    // with stale_session
		Applied    fleet.Seq // with gap and fork
	}
)

// Events of EdgeSession.
type (
	// EventWelcome: the hub accepted the Hello; the first Beat is due.
	EventWelcome struct{ Welcome Welcome }
	// EventAck: a heartbeat was acknowledged; First opens the way for updates.
	EventAck struct {
		First bool
		Ack   HeartbeatAck
		RTT   time.Duration // from the heartbeat to its answer
	}
	// EventApplied: rows up to Last are durable in the cluster.
	EventApplied struct{ Applied Applied }
	// EventDesired: journal it, then call Received.
	EventDesired struct{ Desired Desired }
	// EventResync: describe the node again and send rows from Applied+1.
	EventResync struct{ Resync Resync }
)

// SessionState is how far a session has come.
type SessionState uint8

const (
	SessionNew       SessionState = iota // nothing said yet
	SessionHello                         // Hello said, not yet answered
	SessionWelcomed                      // welcomed; no heartbeat yet
	SessionHeartbeat                     // first heartbeat said, not yet acknowledged
	SessionOpen                          // first heartbeat acknowledged: updates may flow
	SessionEnded                         // refused, broken or closed; it is not used again
)

var sessionStates = [...]string{"new", "hello", "welcomed", "beat", "open", "ended"}

// String returns the state as logs write it.
func (s SessionState) String() string {
	if int(s) < len(sessionStates) {
		return sessionStates[s]
	}
	return "invalid"
}

// chooseVersion returns the newest version that both sides speak.
func chooseVersion(offered []uint16) (uint16, bool) {
	if slices.Contains(offered, Version) {
		return Version, true
	}
	return 0, false
}

// streamForFrame returns the stream that a frame belongs on.
func streamForFrame(t FrameType) Stream {
	switch t {
	case FrameUpdates, FrameApplied:
		return StreamUpdates
	case FrameDesired, FrameReceived, FrameHoldings:
		return StreamDesired
	}
	return StreamControl
}

func sendOutput(m Message) Output { return Output{Send: m, Stream: streamForFrame(m.FrameType())} }

func eventOutput(e any) Output { return Output{Event: e} }
