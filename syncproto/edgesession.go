package syncproto

import (
	"fmt"
	"strings"
	"time"

	"skerry/fleet"
)

// EdgeSession is the edge's half of a session with one hub. Each method returns the frames to send and the events
// for the edge, in order. A call that the state does not allow ends the session with CodeInternal.
type EdgeSession struct {
	state                SessionState
	ttl                  time.Duration
	epoch                fleet.Epoch
	since                time.Duration   // when state was entered, while it is not open
	unansweredHeartbeats []sentHeartbeat // not yet acknowledged, oldest first
	answered             time.Duration   // when the newest acknowledged heartbeat was sent; before: the first
	heartbeatNumber      uint64          // newest sent
	sent                 fleet.Seq       // newest row that was sent, or that the hub has applied
	waiting              int             // Updates not yet answered
}

// sentHeartbeat is a heartbeat that waits for its acknowledgement.
type sentHeartbeat struct {
	number uint64
	at     time.Duration
}

// NewEdgeSession returns a session in state SessionNew, with DefaultTTL.
func NewEdgeSession() *EdgeSession { return &EdgeSession{ttl: DefaultTTL} }

// State returns the session's state.
func (s *EdgeSession) State() SessionState { return s.state }

// TTL returns the time between two heartbeats: the hub's choice within MinTTL and MaxTTL, or DefaultTTL.
func (s *EdgeSession) TTL() time.Duration { return s.ttl }

// Start sends the Hello. An empty h.Versions becomes this build's Version.
func (s *EdgeSession) Start(now time.Duration, h Hello) []Output {
	if s.state != SessionNew {
		return s.endForMisuse("start")
	}
	if len(h.Versions) == 0 {
		h.Versions = []uint16{Version}
	}
	s.state, s.since, s.sent = SessionHello, now, h.Last
	return []Output{sendOutput(h)}
}

// Frame handles a frame that arrived from the hub on stream on. A frame on the wrong stream, or one that the state
// does not allow, ends the session: the hub gets a Refused with CodeFrameBad.
func (s *EdgeSession) Frame(now time.Duration, on Stream, m Message) []Output {
	if s.state == SessionEnded {
		return nil
	}
	if want := streamForFrame(m.FrameType()); on != want {
		return s.endForBadFrame("%s on the %s stream: it belongs on %s", m.FrameType(), on, want)
	}
	switch m := m.(type) {
	case Welcome:
		return s.onWelcome(now, m)
	case Refused:
		return s.endSession(EventEnd{
			Err:        &fleet.Error{Code: m.Code, Message: m.Message, Hint: m.Hint},
			RetryAfter: min(m.RetryAfter, MaxRetryAfter), Session: m.Session, Applied: m.Applied,
		})
	case HeartbeatAck:
		return s.onAck(now, m)
	case Applied:
		return s.onApplied(m)
	case Desired:
		// It travels on another stream than the acknowledgement that precedes it,
		// and may overtake it.
		if s.state == SessionHeartbeat {
			return []Output{eventOutput(EventDesired{m})}
		}
		return s.outputIfOpen(m, eventOutput(EventDesired{m}))
	case Probe:
		return s.outputIfOpen(m, sendOutput(ProbeAck(m)))
	case Resync:
		return s.outputIfOpen(m, eventOutput(EventResync{m}))
	}
	return s.endForBadFrame("%s is an edge's frame", m.FrameType())
}

// Bad ends the session because of err, such as a frame that cannot be read, and tells the hub with a Refused.
func (s *EdgeSession) Bad(err *fleet.Error) []Output {
	if s.state == SessionEnded {
		return nil
	}
	r := Refused{Code: err.Code, Message: err.Message, Hint: err.Hint}
	return append([]Output{sendOutput(r)}, s.endSession(EventEnd{Err: err})...)
}

// Tick ends the session if the Welcome or the acknowledgement of a heartbeat is overdue. The edge calls it at least
// once a second.
func (s *EdgeSession) Tick(now time.Duration) []Output {
	switch {
	case s.state == SessionEnded:
	case s.state == SessionHello && now-s.since >= HelloTimeout:
		return s.endSession(EventEnd{Err: fleet.Errorf(fleet.CodeTimeout, "no Welcome within %s", HelloTimeout)})
	case len(s.unansweredHeartbeats) > 0 && now-s.unansweredHeartbeats[0].at >= MissedHeartbeats*s.ttl:
		return s.endSession(EventEnd{Err: fleet.Errorf(fleet.CodeTimeout, "no answer to a heartbeat for %s, %d times the TTL", now-s.unansweredHeartbeats[0].at, MissedHeartbeats)})
	}
	return nil
}

// SendHeartbeat sends h with the next heartbeat number. It is allowed from the Welcome on.
func (s *EdgeSession) SendHeartbeat(now time.Duration, h Heartbeat) []Output {
	switch s.state {
	case SessionEnded:
		return nil
	case SessionWelcomed:
		s.state, s.answered = SessionHeartbeat, now
	case SessionHeartbeat, SessionOpen:
	default:
		return s.endForMisuse("send a heartbeat")
	}
	s.heartbeatNumber++
	h.Number = s.heartbeatNumber
	s.unansweredHeartbeats = append(s.unansweredHeartbeats, sentHeartbeat{h.Number, now})
	return []Output{sendOutput(h)}
}

// Overdue returns how long ago the oldest unanswered heartbeat was sent; 0: every heartbeat is answered.
func (s *EdgeSession) Overdue(now time.Duration) time.Duration {
	if len(s.unansweredHeartbeats) == 0 {
		return 0
	}
	return now - s.unansweredHeartbeats[0].at
}

// MaySend reports whether Update may be called: a heartbeat was acknowledged, and fewer than MaxUpdatesInFlight
// Updates wait for their answer.
func (s *EdgeSession) MaySend() bool {
	return s.state == SessionOpen && s.waiting < MaxUpdatesInFlight
}

// InFlight returns how many Updates wait for their answer.
func (s *EdgeSession) InFlight() int { return s.waiting }

// Update sends journal rows. It ends the session with CodeInternal if MaySend is false.
func (s *EdgeSession) Update(u Updates) []Output {
	switch {
	case s.state == SessionEnded:
		return nil
	case !s.MaySend():
		return s.endForMisuse("send updates")
	}
	s.waiting++
	s.sent = max(s.sent, u.First+fleet.Seq(len(u.Rows))-1)
	return []Output{sendOutput(u)}
}

// Received tells the hub that the edge has journaled desired state. It is allowed after the first heartbeat.
func (s *EdgeSession) Received(r Received) []Output {
	return s.sendAfterHeartbeat(r, "say that desired state is received")
}

// Hold sends the list of allocations that the edge holds and a full Desired did not name. It is allowed after the
// first heartbeat.
func (s *EdgeSession) Hold(h Holdings) []Output { return s.sendAfterHeartbeat(h, "list holdings") }

// sendAfterHeartbeat sends m if a heartbeat was sent, and else ends the session. what names the call in the error.
func (s *EdgeSession) sendAfterHeartbeat(m Message, what string) []Output {
	switch s.state {
	case SessionEnded:
		return nil
	case SessionHeartbeat, SessionOpen:
		return []Output{sendOutput(m)}
	}
	return s.endForMisuse(what)
}

// onWelcome handles the hub's Welcome: it takes over its TTL and asks the edge for the first heartbeat.
func (s *EdgeSession) onWelcome(now time.Duration, w Welcome) []Output {
	switch {
	case s.state != SessionHello:
		return s.endForBadFrame("a Welcome in state %s", s.state)
	case w.Version != Version:
		return s.Bad(fleet.Errorf(fleet.CodeVersion, "the hub chose protocol version %d, which was not offered", w.Version))
	}
	s.setBoundedTTL(w.TTL)
	s.state, s.since = SessionWelcomed, now
	s.sent = max(s.sent, w.Applied)
	return []Output{eventOutput(EventWelcome{w})}
}

// setBoundedTTL sets the TTL to the one that a hub asks for, within MinTTL and MaxTTL: no hub can silence or
// overload an edge. 0 changes nothing.
func (s *EdgeSession) setBoundedTTL(ttl time.Duration) {
	if ttl > 0 {
		s.ttl = min(max(ttl, MinTTL), MaxTTL)
	}
}

// onAck handles an acknowledgement of all heartbeats up to its number. The first one opens the session for Updates.
// The event has the session's Epoch and TTL, which later acknowledgements leave out.
func (s *EdgeSession) onAck(now time.Duration, a HeartbeatAck) []Output {
	if s.state != SessionHeartbeat && s.state != SessionOpen || a.Number > s.heartbeatNumber {
		return s.endForBadFrame("acknowledgement of heartbeat %d in state %s, %d sent", a.Number, s.state, s.heartbeatNumber)
	}
	s.setBoundedTTL(a.TTL)
	if s.state == SessionHeartbeat {
		s.epoch = a.Epoch
	}
	a.TTL, a.Epoch = s.ttl, s.epoch
	for len(s.unansweredHeartbeats) > 0 && s.unansweredHeartbeats[0].number <= a.Number {
		s.answered = s.unansweredHeartbeats[0].at
		s.unansweredHeartbeats = s.unansweredHeartbeats[1:]
	}
	e := EventAck{First: s.state == SessionHeartbeat, Ack: a, RTT: now - s.answered}
	s.state = SessionOpen
	return []Output{eventOutput(e)}
}

// onApplied handles the answer to the oldest unanswered Updates. An answer without Updates, or one that names rows
// that were never sent, ends the session.
func (s *EdgeSession) onApplied(a Applied) []Output {
	switch {
	case s.state != SessionOpen || s.waiting == 0:
		return s.endForBadFrame("Applied in state %s, with %d Updates unanswered", s.state, s.waiting)
	case a.Last > s.sent:
		return s.endForBadFrame("rows up to %d are applied, %d is the newest sent", a.Last, s.sent)
	}
	s.waiting--
	return []Output{eventOutput(EventApplied{a})}
}

// outputIfOpen returns o if the session is open. Else the frame m came too early or too late, and the session ends.
func (s *EdgeSession) outputIfOpen(m Message, o Output) []Output {
	if s.state != SessionOpen {
		return s.endForBadFrame("%s in state %s", m.FrameType(), s.state)
	}
	return []Output{o}
}

// endForBadFrame ends the session with CodeFrameBad and tells the hub.
func (s *EdgeSession) endForBadFrame(format string, args ...any) []Output {
	return s.Bad(fleet.Errorf(fleet.CodeFrameBad, format, args...))
}

// endForMisuse ends the session with CodeInternal, because the edge made a call that the state does not allow. what
// completes "the edge tried to".
func (s *EdgeSession) endForMisuse(what string) []Output {
	return s.Bad(fleet.Errorf(fleet.CodeInternal, "the edge tried to %s in state %s", what, s.state))
}

// endSession ends the session without telling the hub, and returns e as the event for the edge.
func (s *EdgeSession) endSession(e EventEnd) []Output {
	s.state = SessionEnded
	return []Output{eventOutput(e)}
}

// joinVersions lists protocol versions for an error, separated by commas.
func joinVersions(vs []uint16) string {
	var b strings.Builder
	for i, v := range vs {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, v)
	}
	return b.String()
}
