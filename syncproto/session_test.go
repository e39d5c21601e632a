package syncproto_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// sentMessages and events take apart what a step returned.
func sentMessages(outs []syncproto.Output) (ms []syncproto.Message) {
	for _, o := range outs {
		if o.Send != nil {
			ms = append(ms, o.Send)
		}
	}
	return ms
}

func events(outs []syncproto.Output) (es []any) {
	for _, o := range outs {
		if o.Event != nil {
			es = append(es, o.Event)
		}
	}
	return es
}

// ended returns how a step ended its session; nil where it did not.
func ended(outs []syncproto.Output) *syncproto.EventEnd {
	for _, e := range events(outs) {
		if end, ok := e.(syncproto.EventEnd); ok {
			return &end
		}
	}
	return nil
}

func newHello() syncproto.Hello {
	return syncproto.Hello{Versions: []uint16{1}, Node: nodeA, Boot: bootA, Instance: "i", Session: 1, First: 1, Last: 5}
}

func newUpdates(first fleet.Seq, n int) syncproto.Updates {
	return syncproto.Updates{First: first, Rows: make([][]byte, n)}
}

// hubInState brings a HubSession into a state.
func hubInState(tb testing.TB, state syncproto.SessionState) *syncproto.HubSession {
	tb.Helper()
	s := syncproto.NewHubSession(0, nodeA)
	for step := range state {
		switch step {
		case syncproto.SessionNew:
			s.Frame(0, syncproto.StreamControl, newHello())
		case syncproto.SessionHello:
			s.Accept(0, syncproto.Welcome{Epoch: 2, TTL: 10 * time.Second})
		case syncproto.SessionWelcomed:
			s.Frame(0, syncproto.StreamControl, syncproto.Heartbeat{Number: 1})
		case syncproto.SessionHeartbeat:
			s.Acknowledge(syncproto.HeartbeatAck{Epoch: 2, TTL: 10 * time.Second})
		case syncproto.SessionOpen:
			s.Refuse(syncproto.Refused{Code: fleet.CodeUnavailable})
		}
	}
	if s.State() != state {
		tb.Fatalf("the session is %s, want %s", s.State(), state)
	}
	return s
}

// edgeInState brings an EdgeSession into a state.
func edgeInState(tb testing.TB, state syncproto.SessionState) *syncproto.EdgeSession {
	tb.Helper()
	s := syncproto.NewEdgeSession()
	for step := range state {
		switch step {
		case syncproto.SessionNew:
			s.Start(0, newHello())
		case syncproto.SessionHello:
			s.Frame(0, syncproto.StreamControl, syncproto.Welcome{Version: 1, TTL: 10 * time.Second})
		case syncproto.SessionWelcomed:
			s.SendHeartbeat(0, syncproto.Heartbeat{})
		case syncproto.SessionHeartbeat:
			s.Frame(0, syncproto.StreamControl, syncproto.HeartbeatAck{Number: 1, Epoch: 2})
		case syncproto.SessionOpen:
			s.Frame(0, syncproto.StreamControl, syncproto.Refused{Code: fleet.CodeUnavailable})
		}
	}
	if s.State() != state {
		tb.Fatalf("the session is %s, want %s", s.State(), state)
	}
	return s
}

var allStates = []syncproto.SessionState{
	syncproto.SessionNew, syncproto.SessionHello, syncproto.SessionWelcomed, syncproto.SessionHeartbeat, syncproto.SessionOpen, syncproto.SessionEnded,
}

func TestUpdatesBeforeTheFirstAcknowledgement(t *testing.T) {
	for _, state := range allStates[:4] {
		s := hubInState(t, state)
		outs := s.Frame(0, syncproto.StreamUpdates, newUpdates(1, 1))
		end := ended(outs)
		if end == nil || end.Err.Code != fleet.CodeHeartbeatFirst || len(events(outs)) != 1 {
			t.Errorf("state %s: %+v, want %s", state, outs, fleet.CodeHeartbeatFirst)
			continue
		}
		if r, ok := sentMessages(outs)[0].(syncproto.Refused); !ok || r.Code != fleet.CodeHeartbeatFirst {
			t.Errorf("state %s: the edge is told %+v", state, sentMessages(outs))
		}
		if s.State() != syncproto.SessionEnded {
			t.Errorf("state %s: the session goes on as %s", state, s.State())
		}
	}
	outs := hubInState(t, syncproto.SessionOpen).Frame(0, syncproto.StreamUpdates, newUpdates(1, 1))
	if e, ok := events(outs)[0].(syncproto.EventUpdates); !ok || e.Epoch != 2 {
		t.Errorf("after it: %+v, want EventUpdates of epoch 2", outs)
	}
}

func TestHubRefuses(t *testing.T) {
	const control, upd, des = syncproto.StreamControl, syncproto.StreamUpdates, syncproto.StreamDesired
	h := func(f func(*syncproto.Hello)) syncproto.Hello {
		x := newHello()
		f(&x)
		return x
	}
	tests := []struct {
		name  string
		state syncproto.SessionState
		on    syncproto.Stream
		m     syncproto.Message
		code  fleet.Code
	}{
		{"versions of a newer release", syncproto.SessionNew, control, h(func(h *syncproto.Hello) { h.Versions = []uint16{2, 3} }), fleet.CodeVersion},
		{"another node", syncproto.SessionNew, control, h(func(h *syncproto.Hello) { h.Node = "other" }), fleet.CodeForbidden},
		{"no instance", syncproto.SessionNew, control, h(func(h *syncproto.Hello) { h.Instance = "" }), fleet.CodeFrameBad},
		{"no session counter", syncproto.SessionNew, control, h(func(h *syncproto.Hello) { h.Session = 0 }), fleet.CodeFrameBad},
		{"rows that cannot be", syncproto.SessionNew, control, h(func(h *syncproto.Hello) { h.First = 7 }), fleet.CodeFrameBad},
		{"rows from nought", syncproto.SessionNew, control, h(func(h *syncproto.Hello) { h.First = 0 }), fleet.CodeFrameBad},
		{"an empty journal that starts late", syncproto.SessionNew, control, h(func(h *syncproto.Hello) { h.First, h.Last = 2, 0 }), fleet.CodeFrameBad},
		{"a beat first", syncproto.SessionNew, control, syncproto.Heartbeat{Number: 1}, fleet.CodeFrameBad},
		{"a second Hello", syncproto.SessionHello, control, newHello(), fleet.CodeFrameBad},
		{"a second Hello, late", syncproto.SessionOpen, control, newHello(), fleet.CodeFrameBad},
		{"a beat before the Welcome", syncproto.SessionHello, control, syncproto.Heartbeat{Number: 1}, fleet.CodeFrameBad},
		{"a beat out of order", syncproto.SessionOpen, control, syncproto.Heartbeat{Number: 3}, fleet.CodeFrameBad},
		{"a beat again", syncproto.SessionOpen, control, syncproto.Heartbeat{Number: 1}, fleet.CodeFrameBad},
		{"a gap", syncproto.SessionOpen, upd, newUpdates(2, 1), fleet.CodeGap},
		{"a new base that was not announced", syncproto.SessionOpen, upd, syncproto.Updates{First: 4, Rows: [][]byte{{1}}, Base: true}, fleet.CodeFrameBad},
		{"updates on the control stream", syncproto.SessionOpen, control, newUpdates(1, 1), fleet.CodeFrameBad},
		{"a beat on the updates stream", syncproto.SessionOpen, upd, syncproto.Heartbeat{Number: 2}, fleet.CodeFrameBad},
		{"Received of what was not sent", syncproto.SessionOpen, des, syncproto.Received{Index: 1}, fleet.CodeFrameBad},
		{"Received too early", syncproto.SessionHeartbeat, des, syncproto.Received{}, fleet.CodeFrameBad},
		{"Holdings too early", syncproto.SessionHeartbeat, des, syncproto.Holdings{}, fleet.CodeFrameBad},
		{"a hub's frame", syncproto.SessionOpen, control, syncproto.Welcome{}, fleet.CodeFrameBad},
		{"a hub's frame on its stream", syncproto.SessionOpen, upd, syncproto.Applied{}, fleet.CodeFrameBad},
		{"a request", syncproto.SessionOpen, control, syncproto.Request{}, fleet.CodeFrameBad},
	}
	for _, tt := range tests {
		s := hubInState(t, tt.state)
		outs := s.Frame(0, tt.on, tt.m)
		end := ended(outs)
		if end == nil || end.Err.Code != tt.code || len(events(outs)) != 1 {
			t.Errorf("%s: %+v, want %s", tt.name, outs, tt.code)
			continue
		}
		if r, ok := sentMessages(outs)[0].(syncproto.Refused); !ok || r.Code != tt.code {
			t.Errorf("%s: the edge is told %+v", tt.name, sentMessages(outs))
		}
		if more := s.Frame(0, syncproto.StreamControl, newHello()); more != nil {
			t.Errorf("%s: the session goes on: %+v", tt.name, more)
		}
	}
}

func TestHubTakesOnlySoManyUpdatesAtOnce(t *testing.T) {
	s := hubInState(t, syncproto.SessionOpen)
	for i := range syncproto.MaxUpdatesInFlight {
		if outs := s.Frame(0, syncproto.StreamUpdates, newUpdates(fleet.Seq(1+i), 1)); ended(outs) != nil {
			t.Fatalf("Updates %d: %+v", i, outs)
		}
	}
	if m := sentMessages(s.AppliedTo(syncproto.Applied{Last: 1})); len(m) != 1 || m[0] != (syncproto.Applied{Last: 1}) {
		t.Errorf("answered with %+v", m)
	}
	if outs := s.Frame(0, syncproto.StreamUpdates, newUpdates(3, 1)); ended(outs) != nil {
		t.Errorf("after an answer: %+v", outs)
	}
	if end := ended(s.Frame(0, syncproto.StreamUpdates, newUpdates(4, 1))); end == nil || end.Err.Code != fleet.CodeFrameBad {
		t.Errorf("one too many: %+v", end)
	}
}

func TestReplayMayStartLowerNeverHigher(t *testing.T) {
	s := syncproto.NewHubSession(0, nodeA)
	s.Frame(0, syncproto.StreamControl, newHello())
	s.Accept(0, syncproto.Welcome{Applied: 3})
	s.Frame(0, syncproto.StreamControl, syncproto.Heartbeat{Number: 1})
	s.Acknowledge(syncproto.HeartbeatAck{Epoch: 1, Applied: 3})
	for _, first := range []fleet.Seq{4, 2} { // rows applied already are skipped later
		if outs := s.Frame(0, syncproto.StreamUpdates, newUpdates(first, 2)); ended(outs) != nil {
			t.Fatalf("rows from %d: %+v", first, outs)
		}
		s.AppliedTo(syncproto.Applied{Last: 5})
	}
	end := ended(s.Frame(0, syncproto.StreamUpdates, newUpdates(7, 1)))
	if end == nil || end.Err.Code != fleet.CodeGap || end.Applied != 5 {
		t.Errorf("rows from 7 after 5: %+v, want a gap after 5", end)
	}
}

func TestHubNoticesSilence(t *testing.T) {
	const ttl = 10 * time.Second
	late := map[syncproto.SessionState]time.Duration{
		syncproto.SessionNew: syncproto.HelloTimeout, syncproto.SessionWelcomed: syncproto.HelloTimeout,
		syncproto.SessionHeartbeat: 3 * ttl, syncproto.SessionOpen: 3 * ttl,
	}
	for _, state := range allStates {
		limit, bounded := late[state]
		if !bounded {
			limit = 24 * time.Hour // the owner is to answer a Hello, and nobody after the end
		}
		s := hubInState(t, state)
		if outs := s.Tick(limit - 1); outs != nil {
			t.Errorf("state %s: %+v within %s", state, outs, limit)
		}
		end := ended(s.Tick(limit))
		if bounded != (end != nil) || bounded && end.Err.Code != fleet.CodeTimeout {
			t.Errorf("state %s after %s: %+v", state, limit, end)
		}
	}
	s := hubInState(t, syncproto.SessionOpen)
	s.Frame(20*time.Second, syncproto.StreamControl, syncproto.Heartbeat{Number: 2})
	if outs := s.Tick(45 * time.Second); outs != nil {
		t.Errorf("25 s after a beat: %+v", outs)
	}
	s.Acknowledge(syncproto.HeartbeatAck{TTL: time.Minute}) // the fleet has grown
	if outs := s.Tick(3 * time.Minute); outs != nil {
		t.Errorf("160 s after a beat with a TTL of a minute: %+v", outs)
	}
}

func TestBeatsWhileTheSessionIsBeingCommitted(t *testing.T) {
	s := hubInState(t, syncproto.SessionHeartbeat)
	if outs := s.Frame(10*time.Second, syncproto.StreamControl, syncproto.Heartbeat{Number: 2}); outs != nil {
		t.Errorf("a second beat: %+v", outs)
	}
	m := sentMessages(s.Acknowledge(syncproto.HeartbeatAck{Epoch: 5, TTL: time.Second}))
	if ack, ok := m[0].(syncproto.HeartbeatAck); !ok || ack.Number != 2 || ack.Epoch != 5 {
		t.Errorf("acknowledged with %+v, want beat 2 in epoch 5", m)
	}
}

func TestIdleAcknowledgementsSayOnlyWhatIsNew(t *testing.T) {
	hub, edge := hubInState(t, syncproto.SessionOpen), edgeInState(t, syncproto.SessionOpen)
	hub.Frame(0, syncproto.StreamControl, syncproto.Heartbeat{Number: 2})
	edge.SendHeartbeat(0, syncproto.Heartbeat{})
	full := syncproto.HeartbeatAck{Epoch: 2, Status: fleet.NodeReady, TTL: 10 * time.Second, HubTime: 7, Applied: 9, Index: 8, Term: 1}
	ack := sentMessages(hub.Acknowledge(full))[0]
	if want := (syncproto.HeartbeatAck{Number: 2, Status: fleet.NodeReady, HubTime: 7}); ack.(syncproto.HeartbeatAck).TTL != want.TTL || ack.(syncproto.HeartbeatAck).Epoch != 0 || ack.(syncproto.HeartbeatAck).Applied != 0 {
		t.Errorf("sent %+v, want %+v", ack, want)
	}
	e := events(edge.Frame(0, syncproto.StreamControl, ack))[0].(syncproto.EventAck)
	if e.First || e.Ack.Epoch != 2 || e.Ack.TTL != 10*time.Second {
		t.Errorf("the edge hears %+v", e)
	}
}

// TestSessionOfALostJournal: it is told where the cluster stands, and no other is;
// what it says of its rows is not taken.
func TestSessionOfALostJournal(t *testing.T) {
	open := func(lost string) (*syncproto.HubSession, syncproto.HeartbeatAck) {
		s := syncproto.NewHubSession(0, nodeA)
		h := newHello()
		h.Lost = lost
		s.Frame(0, syncproto.StreamControl, h)
		s.Accept(0, syncproto.Welcome{Epoch: 2})
		s.Frame(0, syncproto.StreamControl, syncproto.Heartbeat{Number: 1})
		return s, sentMessages(s.Acknowledge(syncproto.HeartbeatAck{Epoch: 2, Applied: 40, ChainHash: []byte{7}}))[0].(syncproto.HeartbeatAck)
	}
	if _, ack := open(""); ack.ChainHash != nil {
		t.Errorf("a journal that has lost nothing is told the cluster's hash: %+v", ack)
	}
	s, ack := open("the database is gone")
	if ack.Applied != 40 || !bytes.Equal(ack.ChainHash, []byte{7}) {
		t.Errorf("acknowledged with %+v", ack)
	}
	if end := ended(s.Frame(0, syncproto.StreamUpdates, newUpdates(1, 1))); end == nil || end.Err.Code != fleet.CodeFrameBad {
		t.Errorf("updates: %+v", end)
	}
}

func TestOwnersMisstepEndsTheSessionWithAName(t *testing.T) {
	hubSteps := map[string]func(*syncproto.HubSession) []syncproto.Output{
		"accept": func(s *syncproto.HubSession) []syncproto.Output { return s.Accept(0, syncproto.Welcome{}) },
		"acknowledge": func(s *syncproto.HubSession) []syncproto.Output {
			return s.Acknowledge(syncproto.HeartbeatAck{Epoch: 1})
		},
		"applied": func(s *syncproto.HubSession) []syncproto.Output { return s.AppliedTo(syncproto.Applied{}) },
		"desire":  func(s *syncproto.HubSession) []syncproto.Output { return s.Desire(syncproto.Desired{}) },
		"probe":   func(s *syncproto.HubSession) []syncproto.Output { return s.Probe(1) },
		"resync":  func(s *syncproto.HubSession) []syncproto.Output { return s.Resync(syncproto.Resync{}) },
	}
	for name, step := range hubSteps {
		if end := ended(step(hubInState(t, syncproto.SessionNew))); end == nil || end.Err.Code != fleet.CodeInternal {
			t.Errorf("hub, %s: %+v", name, end)
		}
		if outs := step(hubInState(t, syncproto.SessionEnded)); outs != nil {
			t.Errorf("hub, %s after the end: %+v", name, outs)
		}
	}
	if end := ended(hubInState(t, syncproto.SessionHeartbeat).Acknowledge(syncproto.HeartbeatAck{})); end == nil {
		t.Error("a session was opened without an epoch")
	}
	edgeSteps := map[string]func(*syncproto.EdgeSession) []syncproto.Output{
		"beat":     func(s *syncproto.EdgeSession) []syncproto.Output { return s.SendHeartbeat(0, syncproto.Heartbeat{}) },
		"update":   func(s *syncproto.EdgeSession) []syncproto.Output { return s.Update(newUpdates(1, 1)) },
		"received": func(s *syncproto.EdgeSession) []syncproto.Output { return s.Received(syncproto.Received{}) },
		"hold":     func(s *syncproto.EdgeSession) []syncproto.Output { return s.Hold(syncproto.Holdings{}) },
	}
	for name, step := range edgeSteps {
		if end := ended(step(edgeInState(t, syncproto.SessionNew))); end == nil || end.Err.Code != fleet.CodeInternal {
			t.Errorf("edge, %s: %+v", name, end)
		}
		if outs := step(edgeInState(t, syncproto.SessionEnded)); outs != nil {
			t.Errorf("edge, %s after the end: %+v", name, outs)
		}
	}
}

func TestEdgeRefuses(t *testing.T) {
	const control, upd, des = syncproto.StreamControl, syncproto.StreamUpdates, syncproto.StreamDesired
	tests := []struct {
		name  string
		state syncproto.SessionState
		on    syncproto.Stream
		m     syncproto.Message
		code  fleet.Code
	}{
		{"a version that was not offered", syncproto.SessionHello, control, syncproto.Welcome{Version: 2}, fleet.CodeVersion},
		{"a Welcome unasked", syncproto.SessionNew, control, syncproto.Welcome{Version: 1}, fleet.CodeFrameBad},
		{"a second Welcome", syncproto.SessionOpen, control, syncproto.Welcome{Version: 1}, fleet.CodeFrameBad},
		{"an acknowledgement of nothing", syncproto.SessionWelcomed, control, syncproto.HeartbeatAck{}, fleet.CodeFrameBad},
		{"an acknowledgement of a beat to come", syncproto.SessionOpen, control, syncproto.HeartbeatAck{Number: 2}, fleet.CodeFrameBad},
		{"Applied of nothing", syncproto.SessionOpen, upd, syncproto.Applied{Last: 1}, fleet.CodeFrameBad},
		{"desired state too early", syncproto.SessionWelcomed, des, syncproto.Desired{}, fleet.CodeFrameBad},
		{"desired state on the control stream", syncproto.SessionOpen, control, syncproto.Desired{}, fleet.CodeFrameBad},
		{"a probe too early", syncproto.SessionHello, control, syncproto.Probe{}, fleet.CodeFrameBad},
		{"an edge's frame", syncproto.SessionOpen, control, newHello(), fleet.CodeFrameBad},
	}
	for _, tt := range tests {
		s := edgeInState(t, tt.state)
		outs := s.Frame(0, tt.on, tt.m)
		if end := ended(outs); end == nil || end.Err.Code != tt.code || len(events(outs)) != 1 {
			t.Errorf("%s: %+v, want %s", tt.name, outs, tt.code)
		}
		if more := s.Frame(0, control, syncproto.Probe{}); more != nil {
			t.Errorf("%s: the session goes on: %+v", tt.name, more)
		}
	}
	s := edgeInState(t, syncproto.SessionOpen)
	s.Update(newUpdates(1, 2))
	if end := ended(s.Frame(0, upd, syncproto.Applied{Last: 6})); end == nil || end.Err.Code != fleet.CodeFrameBad {
		t.Errorf("more is applied than was sent: %+v", end)
	}
}

func TestEdgeHearsWhyItIsRefused(t *testing.T) {
	r := syncproto.Refused{Code: fleet.CodeStaleSession, Message: "m", Hint: "h", RetryAfter: time.Second, Session: 9, Applied: 4}
	for _, state := range allStates[1:5] {
		end := ended(edgeInState(t, state).Frame(0, syncproto.StreamControl, r))
		if end == nil || *end.Err != (fleet.Error{Code: r.Code, Message: "m", Hint: "h"}) || end.RetryAfter != time.Second || end.Session != 9 || end.Applied != 4 {
			t.Errorf("state %s: %+v", state, end)
		}
	}
}

func TestEdgeNoticesSilence(t *testing.T) {
	s := edgeInState(t, syncproto.SessionHello)
	if outs := s.Tick(syncproto.HelloTimeout - 1); outs != nil {
		t.Errorf("%+v", outs)
	}
	if end := ended(s.Tick(syncproto.HelloTimeout)); end == nil || end.Err.Code != fleet.CodeTimeout {
		t.Errorf("no Welcome: %+v", end)
	}
	s = edgeInState(t, syncproto.SessionOpen)
	if outs := s.Tick(time.Hour); outs != nil || s.Overdue(time.Hour) != 0 {
		t.Errorf("nothing is awaited: %+v", outs)
	}
	s.SendHeartbeat(100*time.Second, syncproto.Heartbeat{})
	s.SendHeartbeat(110*time.Second, syncproto.Heartbeat{})
	if d := s.Overdue(112 * time.Second); d != 12*time.Second {
		t.Errorf("overdue for %s", d)
	}
	if outs := s.Tick(129 * time.Second); outs != nil {
		t.Errorf("29 s: %+v", outs)
	}
	if end := ended(s.Tick(130 * time.Second)); end == nil || end.Err.Code != fleet.CodeTimeout {
		t.Errorf("30 s: %+v", end)
	}
	s = edgeInState(t, syncproto.SessionOpen)
	s.SendHeartbeat(100*time.Second, syncproto.Heartbeat{}) // and no other
	if end := ended(s.Tick(130 * time.Second)); end == nil || end.Err.Code != fleet.CodeTimeout {
		t.Errorf("30 s after the only heartbeat: %+v", end)
	}
}

// An answer says how old the newest answered heartbeat is, also if an earlier answer named that heartbeat.
func TestRoundTripOfASecondAnswer(t *testing.T) {
	s := edgeInState(t, syncproto.SessionOpen)
	s.SendHeartbeat(100*time.Second, syncproto.Heartbeat{})
	s.SendHeartbeat(101*time.Second, syncproto.Heartbeat{})
	for _, c := range []struct {
		at     time.Duration
		number uint64
		want   time.Duration
	}{{104 * time.Second, 2, 4 * time.Second}, {107 * time.Second, 3, 6 * time.Second}, {109 * time.Second, 3, 8 * time.Second}} {
		e := events(s.Frame(c.at, syncproto.StreamControl, syncproto.HeartbeatAck{Number: c.number}))[0].(syncproto.EventAck)
		if e.RTT != c.want {
			t.Errorf("heartbeat %d, answered at %s: a round trip of %s, want %s", c.number, c.at, e.RTT, c.want)
		}
	}
}

func TestDesiredMayOvertakeTheAcknowledgement(t *testing.T) {
	s := edgeInState(t, syncproto.SessionHeartbeat)
	outs := s.Frame(0, syncproto.StreamDesired, syncproto.Desired{Index: 5})
	if _, ok := events(outs)[0].(syncproto.EventDesired); !ok {
		t.Fatalf("%+v", outs)
	}
	if m := sentMessages(s.Received(syncproto.Received{Index: 5})); len(m) != 1 {
		t.Errorf("%+v", m)
	}
}

// An edge offers the versions that it is told to, or the newest.
func TestOfferedVersions(t *testing.T) {
	for offered, want := range map[uint16]uint16{0: syncproto.Version, 7: 7} {
		h := newHello()
		h.Versions = nil
		if offered > 0 {
			h.Versions = []uint16{offered}
		}
		m := sentMessages(syncproto.NewEdgeSession().Start(0, h))
		if got := m[0].(syncproto.Hello).Versions; len(got) != 1 || got[0] != want {
			t.Errorf("told %d: it offers %v, want %d", offered, got, want)
		}
	}
}

func TestProbes(t *testing.T) {
	hub, edge := hubInState(t, syncproto.SessionOpen), edgeInState(t, syncproto.SessionOpen)
	if outs := hub.Frame(0, syncproto.StreamControl, syncproto.ProbeAck{}); outs != nil {
		t.Errorf("an answer that nobody asked for: %+v", outs)
	}
	old := sentMessages(edge.Frame(0, syncproto.StreamControl, sentMessages(hub.Probe(1))[0]))[0]
	answer := sentMessages(edge.Frame(0, syncproto.StreamControl, sentMessages(hub.Probe(2))[0]))[0]
	if outs := hub.Frame(0, syncproto.StreamControl, old); outs != nil {
		t.Errorf("the answer to a former probe: %+v", outs)
	}
	if e := events(hub.Frame(0, syncproto.StreamControl, answer)); len(e) != 1 || e[0] != (syncproto.EventProbeAck{Number: 2}) {
		t.Errorf("the answer: %+v", e)
	}
	if outs := hub.Frame(0, syncproto.StreamControl, answer); outs != nil {
		t.Errorf("the answer again: %+v", outs)
	}
}

func TestBadFramesAreToldToThePeer(t *testing.T) {
	bad := fleet.Errorf(fleet.CodeFrameTooLarge, "too large")
	for name, outs := range map[string][]syncproto.Output{
		"hub":  hubInState(t, syncproto.SessionOpen).Bad(bad),
		"edge": edgeInState(t, syncproto.SessionOpen).Bad(bad),
	} {
		if r, ok := sentMessages(outs)[0].(syncproto.Refused); !ok || r.Code != bad.Code || ended(outs).Err.Code != bad.Code {
			t.Errorf("%s: %+v", name, outs)
		}
	}
}

func TestNames(t *testing.T) {
	for _, s := range allStates {
		if s.String() == "" || s.String() == "invalid" {
			t.Errorf("state %d has no name", s)
		}
	}
	for ft := syncproto.FrameHello; ft <= syncproto.FrameResync; ft++ {
		if strings.Contains(ft.String(), "type") {
			t.Errorf("frame type %d has no name", ft)
		}
	}
	for got, want := range map[string]string{
		syncproto.SessionState(99).String(): "invalid", syncproto.FrameType(99).String(): "frame type 99", syncproto.Stream(9).String(): "stream 9",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestEdgeBelievesAHubWithinBounds: a faulty hub neither silences an edge for good
// nor wears it out.
func TestEdgeBelievesAHubWithinBounds(t *testing.T) {
	for _, tc := range []struct{ named, taken time.Duration }{
		{time.Nanosecond, syncproto.MinTTL},
		{15 * time.Minute, 15 * time.Minute},
		{1000 * 24 * time.Hour, syncproto.MaxTTL},
		{0, syncproto.DefaultTTL},
	} {
		s := edgeInState(t, syncproto.SessionHello)
		s.Frame(0, syncproto.StreamControl, syncproto.Welcome{Version: syncproto.Version, TTL: tc.named})
		if got := s.TTL(); got != tc.taken {
			t.Errorf("a TTL of %s is taken for %s, want %s", tc.named, got, tc.taken)
		}
	}
	s := edgeInState(t, syncproto.SessionHello)
	out := s.Frame(0, syncproto.StreamControl, syncproto.Refused{Code: fleet.CodeUnavailable, RetryAfter: 1000 * time.Hour})
	end, ok := out[len(out)-1].Event.(syncproto.EventEnd)
	if !ok || end.RetryAfter != syncproto.MaxRetryAfter {
		t.Errorf("the session ends with %+v, want a retry after %s", out, syncproto.MaxRetryAfter)
	}
}
