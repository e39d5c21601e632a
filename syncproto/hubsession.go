package syncproto

import (
	"time"

	"skerry/fleet"
)

// HubSession is the hub's half of a session with one edge. Each method returns the frames to send and the events for
// the hub, in order. A call that the state does not allow ends the session with CodeInternal.
//
// Invariant: it returns no EventUpdates before it has sent the first HeartbeatAck.
type HubSession struct {
	node fleet.NodeID

	state           SessionState
	hello           Hello
	epoch           fleet.Epoch
	ttl             time.Duration
	since           time.Duration // when state was entered, while it is not open
	lastHeartbeat   time.Duration // when the newest heartbeat came
	heartbeatNumber uint64        // its number
	next            fleet.Seq     // the next row: Updates may start here or at an earlier row, not later
	waiting         int           // Updates not yet answered
	desired         fleet.Index   // newest sent
	probe           uint64        // newest sent
}

// NewHubSession returns a session in state SessionNew. node is the node id in the certificate of the connection;
// the Hello must name the same.
func NewHubSession(now time.Duration, node fleet.NodeID) *HubSession {
	return &HubSession{node: node, since: now, ttl: DefaultTTL}
}

// State returns the session's state.
func (s *HubSession) State() SessionState { return s.state }

// Epoch returns the epoch that the cluster committed for the session; 0: not committed yet.
func (s *HubSession) Epoch() fleet.Epoch { return s.epoch }

// Frame handles a frame that arrived from the edge on stream on. A frame on the wrong stream, or one that the state
// does not allow, ends the session: the edge gets a Refused.
func (s *HubSession) Frame(now time.Duration, on Stream, m Message) []Output {
	if s.state == SessionEnded {
		return nil
	}
	if want := streamForFrame(m.FrameType()); on != want {
		return s.endForBadFrame("%s on the %s stream: it belongs on %s", m.FrameType(), on, want)
	}
	switch m := m.(type) {
	case Hello:
		return s.onHello(now, m)
	case Heartbeat:
		return s.onHeartbeat(now, m)
	case Updates:
		return s.onUpdates(m)
	case Received:
		return s.onReceived(m)
	case Holdings:
		if s.state != SessionOpen {
			return s.refuseEarlyFrame(m)
		}
		return []Output{eventOutput(EventHoldings{m})}
	case ProbeAck:
		if s.probe == 0 || m.Number != s.probe {
			return nil // an answer to a probe that a newer one replaced
		}
		s.probe = 0
		return []Output{eventOutput(EventProbeAck(m))}
	case Refused:
		return s.endSession(EventEnd{Err: &fleet.Error{Code: m.Code, Message: m.Message, Hint: m.Hint}})
	}
	return s.endForBadFrame("%s is a hub's frame", m.FrameType())
}

// Bad ends the session because of err, such as a frame that cannot be read, and tells the edge with a Refused.
func (s *HubSession) Bad(err *fleet.Error) []Output {
	return s.Refuse(Refused{Code: err.Code, Message: err.Message, Hint: err.Hint})
}

// Due returns the session's deadline: the time at which Tick ends it if no heartbeat (or Hello) arrives before. ok
// is false if there is none.
func (s *HubSession) Due() (at time.Duration, ok bool) {
	switch s.state {
	case SessionNew, SessionWelcomed:
		return s.since + HelloTimeout, true
	case SessionHeartbeat, SessionOpen:
		return s.lastHeartbeat + MissedHeartbeats*s.ttl, true
	}
	return 0, false
}

// Tick ends the session if its deadline (see Due) is over; before the deadline it does nothing.
func (s *HubSession) Tick(now time.Duration) []Output {
	switch s.state {
	case SessionNew, SessionWelcomed:
		if now-s.since >= HelloTimeout {
			what := map[SessionState]string{SessionNew: "Hello", SessionWelcomed: "Heartbeat"}[s.state]
			return s.Refuse(Refused{Code: fleet.CodeTimeout, Message: "no " + what + " within " + HelloTimeout.String()})
		}
	case SessionHeartbeat, SessionOpen:
		if silence := now - s.lastHeartbeat; silence >= MissedHeartbeats*s.ttl {
			return s.endSession(EventEnd{Err: fleet.Errorf(fleet.CodeTimeout, "no heartbeat for %s, %d times the TTL", silence, MissedHeartbeats)})
		}
	}
	return nil
}

// Accept answers EventHello with a Welcome. It sets w.Version, and w.TTL to DefaultTTL if it is 0.
func (s *HubSession) Accept(now time.Duration, w Welcome) []Output {
	if s.state != SessionHello {
		return s.endForMisuse("accept")
	}
	w.Version, _ = chooseVersion(s.hello.Versions)
	if w.TTL == 0 {
		w.TTL = s.ttl
	}
	s.ttl = w.TTL
	s.next = w.Applied + 1
	s.state, s.since = SessionWelcomed, now
	return []Output{sendOutput(w)}
}

// Refuse ends the session at any time, and tells the edge why.
func (s *HubSession) Refuse(r Refused) []Output {
	if s.state == SessionEnded {
		return nil
	}
	end := EventEnd{
		Err:        &fleet.Error{Code: r.Code, Message: r.Message, Hint: r.Hint},
		RetryAfter: r.RetryAfter, Session: r.Session, Applied: r.Applied,
	}
	return append([]Output{sendOutput(r)}, s.endSession(end)...)
}

// Acknowledge answers EventHeartbeat. The first call says that the cluster has committed the session as ack.Epoch;
// from then on Updates are accepted. It sets ack.Number and clears fields that the edge knows already.
func (s *HubSession) Acknowledge(ack HeartbeatAck) []Output {
	first := s.state == SessionHeartbeat
	switch s.state {
	case SessionEnded:
		return nil
	case SessionHeartbeat:
		if ack.Epoch == 0 {
			return s.endForMisuse("acknowledge without an epoch")
		}
		s.state, s.epoch = SessionOpen, ack.Epoch
		s.next = max(s.next, ack.Applied+1)
	case SessionOpen:
	default:
		return s.endForMisuse("acknowledge")
	}
	if ack.TTL == s.ttl {
		ack.TTL = 0
	} else if ack.TTL > 0 {
		s.ttl = ack.TTL
	}
	if !first {
		ack.Epoch, ack.Applied, ack.Index, ack.Term = 0, 0, 0, 0
	}
	if !first || s.hello.Lost == "" {
		ack.ChainHash = nil
	}
	ack.Number = s.heartbeatNumber
	return []Output{sendOutput(ack)}
}

// AppliedTo answers the oldest unanswered EventUpdates: it tells the edge which rows the cluster has applied.
func (s *HubSession) AppliedTo(a Applied) []Output {
	switch {
	case s.state == SessionEnded:
		return nil
	case s.waiting == 0:
		return s.endForMisuse("answer updates")
	}
	s.waiting--
	return []Output{sendOutput(a)}
}

// Desire sends desired state. The session must be open.
func (s *HubSession) Desire(d Desired) []Output {
	switch s.state {
	case SessionEnded:
		return nil
	case SessionOpen:
		s.desired = max(s.desired, d.Index)
		return []Output{sendOutput(d)}
	}
	return s.endForMisuse("send desired state")
}

// Probe asks the edge whether it is alive. number must grow with each probe; only the answer to the newest one
// gives an EventProbeAck. The session must be open.
func (s *HubSession) Probe(number uint64) []Output {
	switch s.state {
	case SessionEnded:
		return nil
	case SessionOpen:
		s.probe = number
		return []Output{sendOutput(Probe{Number: number})}
	}
	return s.endForMisuse("probe")
}

// Resync asks the edge to send its node, its holdings and its rows from r.Applied+1 again. The session must be
// open.
func (s *HubSession) Resync(r Resync) []Output {
	switch s.state {
	case SessionEnded:
		return nil
	case SessionOpen:
		return []Output{sendOutput(r)}
	}
	return s.endForMisuse("ask for a resync")
}

// onHello checks the Hello, and gives EventHello. A Hello without a common version, of another node than the
// certificate's, or with impossible values is refused.
func (s *HubSession) onHello(now time.Duration, h Hello) []Output {
	if s.state != SessionNew {
		return s.endForBadFrame("a second Hello in state %s", s.state)
	}
	if _, ok := chooseVersion(h.Versions); !ok {
		return s.Refuse(Refused{
			Code:    fleet.CodeVersion,
			Message: "no protocol version in common: the edge offers " + joinVersions(h.Versions) + ", this hub speaks " + joinVersions([]uint16{Version}),
			Hint:    "upgrade the older side",
		})
	}
	switch {
	case h.Node != s.node:
		return s.Refuse(Refused{
			Code:    fleet.CodeForbidden,
			Message: "the Hello is of node " + fleet.Short(h.Node) + ", the certificate of " + fleet.Short(s.node),
		})
	case h.Instance == "" || h.Boot == "" || h.Session == 0:
		return s.endForBadFrame("a Hello without instance, boot id or session counter")
	case h.Last > 0 && (h.First == 0 || h.First > h.Last+1), h.Last == 0 && h.First > 1:
		return s.endForBadFrame("a Hello that holds rows %d to %d", h.First, h.Last)
	}
	s.hello, s.state, s.since = h, SessionHello, now
	return []Output{eventOutput(EventHello{h})}
}

// onHeartbeat moves the session's deadline. It gives EventHeartbeat, unless the first heartbeat is still being
// committed. Heartbeats must be numbered without a gap.
func (s *HubSession) onHeartbeat(now time.Duration, h Heartbeat) []Output {
	switch s.state {
	case SessionWelcomed, SessionHeartbeat, SessionOpen:
	default:
		return s.refuseEarlyFrame(h)
	}
	if h.Number != s.heartbeatNumber+1 {
		return s.endForBadFrame("heartbeat %d after %d", h.Number, s.heartbeatNumber)
	}
	s.lastHeartbeat, s.heartbeatNumber = now, h.Number
	switch s.state {
	case SessionWelcomed:
		s.state = SessionHeartbeat
		return []Output{eventOutput(EventHeartbeat{First: true, Heartbeat: h})}
	case SessionHeartbeat:
		return nil
	}
	return []Output{eventOutput(EventHeartbeat{Heartbeat: h})}
}

// onUpdates checks that rows may come now and that none is missing before them, and gives EventUpdates. Else it
// refuses: CodeHeartbeatFirst, CodeGap (with the last row before the gap) or CodeFrameBad.
func (s *HubSession) onUpdates(u Updates) []Output {
	if s.state != SessionOpen {
		return s.Refuse(Refused{
			Code:    fleet.CodeHeartbeatFirst,
			Message: "updates before a heartbeat of this session was acknowledged (state " + s.state.String() + ")",
		})
	}
	switch {
	case s.hello.Lost != "":
		return s.endForBadFrame("updates of a journal that has lost rows and does not know yet where to go on")
	case s.waiting == MaxUpdatesInFlight:
		return s.endForBadFrame("more than %d Updates without an answer", MaxUpdatesInFlight)
	case u.Base && u.First != s.hello.First:
		return s.endForBadFrame("updates that start anew at row %d, where the Hello holds %d on", u.First, s.hello.First)
	case !u.Base && u.First > s.next:
		return s.Refuse(Refused{
			Code:    fleet.CodeGap,
			Message: "updates that start at a row after the next one",
			Applied: s.next - 1,
		})
	}
	s.waiting++
	s.next = max(s.next, u.First+fleet.Seq(len(u.Rows)))
	return []Output{eventOutput(EventUpdates{Epoch: s.epoch, Updates: u})}
}

// onReceived gives EventReceived. It refuses an index that was never sent.
func (s *HubSession) onReceived(r Received) []Output {
	switch {
	case s.state != SessionOpen:
		return s.refuseEarlyFrame(r)
	case r.Index > s.desired:
		return s.endForBadFrame("received index %d, where %d is the newest sent", r.Index, s.desired)
	}
	return []Output{eventOutput(EventReceived{r})}
}

// refuseEarlyFrame ends the session because m came in a state that does not allow it, and tells the edge.
func (s *HubSession) refuseEarlyFrame(m Message) []Output {
	return s.endForBadFrame("%s in state %s", m.FrameType(), s.state)
}

// endForBadFrame ends the session with CodeFrameBad and tells the edge.
func (s *HubSession) endForBadFrame(format string, args ...any) []Output {
	return s.Bad(fleet.Errorf(fleet.CodeFrameBad, format, args...))
}

// endForMisuse ends the session with CodeInternal, because the hub made a call that the state does not allow. what
// completes "the hub tried to".
func (s *HubSession) endForMisuse(what string) []Output {
	return s.Refuse(Refused{Code: fleet.CodeInternal, Message: "the hub tried to " + what + " in state " + s.state.String()})
}

// endSession ends the session without telling the edge, and returns e as the event for the hub.
func (s *HubSession) endSession(e EventEnd) []Output {
	s.state = SessionEnded
	return []Output{eventOutput(e)}
}
