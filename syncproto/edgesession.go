package syncproto

import (
	"fmt"
	"strings"
	"time"

	"skerry/fleet"
)

// EdgeSession is the edge's half of a session with one hub.
type EdgeSession struct {
	state                SessionState
	ttl                  time.Duration
	epoch                fleet.Epoch
	since                time.Duration   // when state was entered, while it is not open
	unansweredHeartbeats []sentHeartbeat // not yet acknowledged, oldest first
	heartbeatNumber      uint64          // newest sent
	sent                 fleet.Seq       // newest row sent, or said to be applied by the hub
	waiting              int             // Updates not yet answered
}

type sentHeartbeat struct {
	number uint64
	at     time.Duration
}

// NewEdgeSession makes the edge's half.
func NewEdgeSession() *EdgeSession { return &EdgeSession{ttl: DefaultTTL} }

// State is how far the session has come.
func (s *EdgeSession) State() SessionState { return s.state }

// TTL is the heartbeat that the hub asked for.
func (s *EdgeSession) TTL() time.Duration { return s.ttl }

// Start opens the session. The session fills in Versions where it is empty.
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

// Frame takes a frame that the hub sent on a stream.
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

// Bad takes what a Reader reported instead of a frame: the hub is told.
func (s *EdgeSession) Bad(err *fleet.Error) []Output {
	if s.state == SessionEnded {
		return nil
	}
	r := Refused{Code: err.Code, Message: err.Message, Hint: err.Hint}
	return append([]Output{sendOutput(r)}, s.endSession(EventEnd{Err: err})...)
}

// Tick lets time pass. Once a second is often enough.
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

// SendHeartbeat sends a heartbeat. The session fills in Number.
func (s *EdgeSession) SendHeartbeat(now time.Duration, h Heartbeat) []Output {
	switch s.state {
	case SessionEnded:
		return nil
	case SessionWelcomed:
		s.state = SessionHeartbeat
	case SessionHeartbeat, SessionOpen:
	default:
		return s.endForMisuse("beat")
	}
	s.heartbeatNumber++
	h.Number = s.heartbeatNumber
	s.unansweredHeartbeats = append(s.unansweredHeartbeats, sentHeartbeat{h.Number, now})
	return []Output{sendOutput(h)}
}

// Overdue is how long the oldest unanswered heartbeat has been waiting; 0: none is.
func (s *EdgeSession) Overdue(now time.Duration) time.Duration {
	if len(s.unansweredHeartbeats) == 0 {
		return 0
	}
	return now - s.unansweredHeartbeats[0].at
}

// MaySend reports whether Updates may be sent now: a heartbeat was acknowledged, and
// fewer than MaxUpdatesInFlight wait for their answer.
func (s *EdgeSession) MaySend() bool {
	return s.state == SessionOpen && s.waiting < MaxUpdatesInFlight
}

// InFlight is how many Updates wait for their answer.
func (s *EdgeSession) InFlight() int { return s.waiting }

// Update sends rows; MaySend must allow it.
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

// Received says that desired state is journaled.
func (s *EdgeSession) Received(r Received) []Output {
	return s.sendAfterHeartbeat(r, "say that desired state is received")
}

// Hold lists what a full Desired did not mention.
func (s *EdgeSession) Hold(h Holdings) []Output { return s.sendAfterHeartbeat(h, "list holdings") }

func (s *EdgeSession) sendAfterHeartbeat(m Message, what string) []Output {
	switch s.state {
	case SessionEnded:
		return nil
	case SessionHeartbeat, SessionOpen:
		return []Output{sendOutput(m)}
	}
	return s.endForMisuse(what)
}

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

// setBoundedTTL takes a TTL that the hub names (0: none), within bounds: no hub can
// silence an edge for good, nor wear it out.
func (s *EdgeSession) setBoundedTTL(ttl time.Duration) {
	if ttl > 0 {
		s.ttl = min(max(ttl, MinTTL), MaxTTL)
	}
}

func (s *EdgeSession) onAck(now time.Duration, a HeartbeatAck) []Output {
	if s.state != SessionHeartbeat && s.state != SessionOpen || a.Number > s.heartbeatNumber {
		return s.endForBadFrame("acknowledgement of heartbeat %d in state %s, %d sent", a.Number, s.state, s.heartbeatNumber)
	}
	s.setBoundedTTL(a.TTL)
	if s.state == SessionHeartbeat {
		s.epoch = a.Epoch
	}
	a.TTL, a.Epoch = s.ttl, s.epoch
	e := EventAck{First: s.state == SessionHeartbeat, Ack: a}
	for len(s.unansweredHeartbeats) > 0 && s.unansweredHeartbeats[0].number <= a.Number {
		e.RTT = now - s.unansweredHeartbeats[0].at
		s.unansweredHeartbeats = s.unansweredHeartbeats[1:]
	}
	s.state = SessionOpen
	return []Output{eventOutput(e)}
}

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

func (s *EdgeSession) outputIfOpen(m Message, o Output) []Output {
	if s.state != SessionOpen {
		return s.endForBadFrame("%s in state %s", m.FrameType(), s.state)
	}
	return []Output{o}
}

func (s *EdgeSession) endForBadFrame(format string, args ...any) []Output {
	return s.Bad(fleet.Errorf(fleet.CodeFrameBad, format, args...))
}

// endForMisuse ends the session for a call that its owner must not make now.
func (s *EdgeSession) endForMisuse(what string) []Output {
	return s.Bad(fleet.Errorf(fleet.CodeInternal, "the edge tried to %s in state %s", what, s.state))
}

func (s *EdgeSession) endSession(e EventEnd) []Output {
	s.state = SessionEnded
	return []Output{eventOutput(e)}
}

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
