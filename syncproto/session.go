package syncproto

import (
	"slices"
	"time"

	"skerry/fleet"
)

// A session is a state machine. Each call takes the time since an arbitrary start (monotonic), and returns frames to send
// and events for the session's owner. It does no I/O, holds no lock and never blocks. The same calls give the same outputs.
// The owner calls it from one goroutine at a time.
//
// After the end of a session every call does nothing, so the owner need not check before it passes on a late answer.

// Bounds of a session.
const (
	// HelloTimeout is how long a hub waits for the Hello, and after its Welcome for the first Heartbeat. An edge waits
	// as long for the Welcome.
	HelloTimeout = 10 * time.Second
	// MissedHeartbeats is the number of TTLs without a heartbeat, or without its answer, after which a side ends the session.
	MissedHeartbeats = 3
	// MaxUpdatesInFlight is how many Updates may wait for their Applied.
	MaxUpdatesInFlight = 2
	// DefaultTTL is the time between two heartbeats until the hub chooses another.
	DefaultTTL = 10 * time.Second
	// MinTTL, MaxTTL and MaxRetryAfter bound the values that an edge accepts from a hub.
	MinTTL        = 100 * time.Millisecond
	MaxTTL        = 24 * time.Hour
	MaxRetryAfter = time.Hour
)

// Output is one thing that the owner of a session has to do: send a frame, or handle an event.
type Output struct {
	// Send is a frame to write to Stream; nil: none.
	Send   Message
	Stream Stream
	// Event is one of the Event types below; nil: none.
	Event any
}

// Events of HubSession.
type (
	// EventHello: look the node up and answer with Accept or Refuse.
	EventHello struct{ Hello Hello }
	// EventHeartbeat: answer with Acknowledge. With First the hub commits the session (state.SessionOpen) before
	// that. A later heartbeat only moves the deadline; if it has a Node, the hub commits that, too. Heartbeats that
	// arrive while the first one is being committed give no event.
	EventHeartbeat struct {
		First     bool
		Heartbeat Heartbeat
	}
	// EventUpdates: apply the rows in the session of Epoch, then answer with AppliedTo or Refuse.
	EventUpdates struct {
		Epoch   fleet.Epoch
		Updates Updates
	}
	// EventReceived: the edge journaled the desired state up to Index.
	EventReceived struct{ Received Received }
	// EventHoldings: answer for each allocation with a Desired.
	EventHoldings struct{ Holdings Holdings }
	// EventProbeAck: the edge answered the newest probe.
	EventProbeAck struct{ Number uint64 }
)

// Events of both halves.
type (
	// EventEnd: the session is over, because of Err; close the connection. A Refused, if the peer gets one, was
	// sent before.
	EventEnd struct {
		Err        *fleet.Error
		RetryAfter time.Duration
		Session    uint64    // with stale_session: the counter that the edge's next Hello must exceed
		Applied    fleet.Seq // with gap and fork: the last row that the cluster has applied
	}
)

// Events of EdgeSession.
type (
	// EventWelcome: the hub accepted the Hello; call SendHeartbeat.
	EventWelcome struct{ Welcome Welcome }
	// EventAck: a heartbeat was acknowledged. After the first one (First) Updates may be sent.
	EventAck struct {
		First bool
		Ack   HeartbeatAck
		RTT   time.Duration // from the heartbeat to its answer
	}
	// EventApplied: rows up to Last are durable in the cluster.
	EventApplied struct{ Applied Applied }
	// EventDesired: journal it, then call Received.
	EventDesired struct{ Desired Desired }
	// EventResync: send the node, the holdings and the rows from Applied+1 again.
	EventResync struct{ Resync Resync }
)

// SessionState is a state of EdgeSession or HubSession.
type SessionState uint8

const (
	SessionNew       SessionState = iota // no Hello yet
	SessionHello                         // Hello sent, not yet answered
	SessionWelcomed                      // Hello accepted; no heartbeat yet
	SessionHeartbeat                     // first heartbeat sent, not yet acknowledged
	SessionOpen                          // first heartbeat acknowledged: Updates may be sent
	SessionEnded                         // over; no call does anything
)

var sessionStates = [...]string{"new", "hello", "welcomed", "beat", "open", "ended"}

// String returns the name of the state.
func (s SessionState) String() string {
	if int(s) < len(sessionStates) {
		return sessionStates[s]
	}
	return "invalid"
}

// chooseVersion returns the newest offered version that this build speaks; false: there is none.
func chooseVersion(offered []uint16) (uint16, bool) {
	if slices.Contains(offered, Version) {
		return Version, true
	}
	return 0, false
}

// streamForFrame returns the stream that frames of type t must use.
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
