package syncproto_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/syncproto"
)

// anyFrame draws a frame, with numbers near to what a session expects.
func anyFrame(t *rapid.T) syncproto.Message {
	small := rapid.Uint64Range(0, 4)
	seq := fleet.Seq(small.Draw(t, "seq"))
	return rapid.SampledFrom([]syncproto.Message{
		newHello(), newHello(), newHello(),
		syncproto.Hello{Versions: []uint16{9}, Node: nodeA, Boot: bootA, Instance: "i", Session: 1},
		syncproto.Heartbeat{Number: small.Draw(t, "beat")},
		syncproto.Heartbeat{Number: 1}, syncproto.Heartbeat{Number: 2},
		newUpdates(seq, 1), newUpdates(1, 2), syncproto.Updates{First: 1, Rows: [][]byte{{1}}, Base: true},
		syncproto.Received{Index: fleet.Index(seq)}, syncproto.Holdings{}, syncproto.ProbeAck{Number: 1},
		syncproto.Welcome{Version: 1, Applied: seq}, syncproto.HeartbeatAck{Number: small.Draw(t, "ack"), Epoch: 3},
		syncproto.HeartbeatAck{Number: 1, Epoch: 3}, syncproto.Applied{Last: seq}, syncproto.Desired{Index: fleet.Index(seq)},
		syncproto.Probe{Number: 1}, syncproto.Resync{}, syncproto.Refused{Code: fleet.CodeUnavailable}, syncproto.Request{},
	}).Draw(t, "frame")
}

// oneIn draws true once in 2ⁿ times. (Ranges prefer small numbers; coins are fair.)
func oneIn(t *rapid.T, n int, what string) bool {
	for range n {
		if !rapid.Bool().Draw(t, what) {
			return false
		}
	}
	return true
}

// rightSteps draws the number of steps in which a session goes as it should: every other session
// gets so far that rows travel.
func rightSteps(t *rapid.T) int { return rapid.SampledFrom([]int{0, 8}).Draw(t, "right steps") }

// rightFrame is what a well-behaved peer sends next, given the state and how many
// beats it has sent; else any frame is drawn, unless the step is to be right.
func rightFrame(t *rapid.T, s syncproto.SessionState, fromEdge bool, beats uint64, right bool) syncproto.Message {
	if right || !oneIn(t, 3, "wrong") {
		switch {
		case fromEdge && s == syncproto.SessionNew:
			return newHello()
		case fromEdge && s == syncproto.SessionWelcomed:
			return syncproto.Heartbeat{Number: 1}
		case fromEdge && s == syncproto.SessionOpen:
			return rapid.SampledFrom([]syncproto.Message{newUpdates(1, 1), syncproto.Heartbeat{Number: beats + 1}}).Draw(t, "frame")
		case !fromEdge && s == syncproto.SessionHello:
			return syncproto.Welcome{Version: 1, TTL: 10 * time.Second}
		case !fromEdge && s == syncproto.SessionHeartbeat:
			return syncproto.HeartbeatAck{Number: 1, Epoch: 3}
		case !fromEdge && s == syncproto.SessionOpen:
			return syncproto.Applied{Last: 1}
		}
	}
	return anyFrame(t)
}

// streamOf draws the stream of a frame: mostly the one it belongs on, always in a right step.
func streamOf(t *rapid.T, m syncproto.Message, right bool) syncproto.Stream {
	if !right && oneIn(t, 5, "stray") {
		return syncproto.Stream(rapid.IntRange(0, 2).Draw(t, "stream"))
	}
	switch m.FrameType() {
	case syncproto.FrameUpdates, syncproto.FrameApplied:
		return syncproto.StreamUpdates
	case syncproto.FrameDesired, syncproto.FrameReceived, syncproto.FrameHoldings:
		return syncproto.StreamDesired
	}
	return syncproto.StreamControl
}

// Whatever an edge sends and however its owner answers, a hub's session gives no
// EventUpdates before it has sent a HeartbeatAck, one Hello, one first beat, never
// more Updates than it allows, and nothing after its end.
func TestHubSessionUnderAnyOrder(t *testing.T) {
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		s := syncproto.NewHubSession(0, nodeA)
		now := time.Duration(0)
		var acked, over bool
		hellos, firsts, waiting, beats := 0, 0, 0, uint64(0)
		rightUntil := rightSteps(t)
		for i := range 60 {
			now += time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
			before, right := s.State(), i < rightUntil
			answer := right && before != syncproto.SessionOpen || !right && rapid.Bool().Draw(t, "answer")
			var outs []syncproto.Output
			switch {
			case !right && oneIn(t, 3, "tick"):
				outs = s.Tick(now)
			case answer && before == syncproto.SessionHello:
				outs = s.Accept(now, syncproto.Welcome{TTL: 10 * time.Second})
			case answer && before == syncproto.SessionHeartbeat:
				outs = s.Acknowledge(syncproto.HeartbeatAck{Epoch: 7})
			case answer && waiting > 0:
				outs = s.AppliedTo(syncproto.Applied{Last: 1})
				waiting--
			default:
				m := rightFrame(t, before, true, beats, right)
				outs = s.Frame(now, streamOf(t, m, right), m)
				if _, ok := m.(syncproto.Heartbeat); ok {
					beats++
				}
			}
			if over && outs != nil {
				t.Fatalf("after the end: %+v", outs)
			}
			for _, o := range outs {
				if _, ok := o.Send.(syncproto.HeartbeatAck); ok {
					acked = true
				}
				switch e := o.Event.(type) {
				case syncproto.EventUpdates:
					taken++
					if waiting++; !acked || e.Epoch != 7 || waiting > syncproto.MaxUpdatesInFlight {
						t.Fatalf("updates in state %s: acknowledged %v, epoch %d, %d waiting", before, acked, e.Epoch, waiting)
					}
				case syncproto.EventHello:
					hellos++
				case syncproto.EventHeartbeat:
					if e.First {
						firsts++
					}
				case syncproto.EventEnd:
					over = true
				}
			}
			if hellos > 1 || firsts > 1 || over != (s.State() == syncproto.SessionEnded) {
				t.Fatalf("%d Hellos, %d first beats, over %v in state %s", hellos, firsts, over, s.State())
			}
		}
	})
	if taken < leastDrawn() {
		t.Error("hardly a session came far enough to mean anything")
	}
}

// leastDrawn is how often a property must have come to its point: rapid draws a fifth as many
// cases where tests are short.
func leastDrawn() int {
	if testing.Short() {
		return 4
	}
	return 20
}

// Whatever a hub sends, an edge's session sends no Updates before it has heard an
// acknowledgement, and nothing after its end.
func TestEdgeSessionUnderAnyOrder(t *testing.T) {
	sent := 0
	rapid.Check(t, func(t *rapid.T) {
		s := syncproto.NewEdgeSession()
		now := time.Duration(0)
		s.Start(now, newHello())
		var acked, over bool
		rightUntil := rightSteps(t)
		for i := range 60 {
			now += time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
			right := i < rightUntil
			speak := right || rapid.Bool().Draw(t, "speak")
			var outs []syncproto.Output
			switch {
			case !right && oneIn(t, 3, "tick"):
				outs = s.Tick(now)
			case speak && s.State() == syncproto.SessionWelcomed, speak && oneIn(t, 2, "beat") && s.State() == syncproto.SessionOpen:
				outs = s.SendHeartbeat(now, syncproto.Heartbeat{})
			case speak && s.MaySend():
				outs = s.Update(newUpdates(1, 1))
				sent++
			default:
				m := rightFrame(t, s.State(), false, 0, right)
				outs = s.Frame(now, streamOf(t, m, right), m)
			}
			if over && outs != nil {
				t.Fatalf("after the end: %+v", outs)
			}
			for _, o := range outs {
				// E5: an edge says nothing of its allocations before a hub has answered its beat.
				if _, ok := o.Send.(syncproto.Updates); ok && !acked {
					t.Fatal("updates before an acknowledgement")
				}
				switch o.Event.(type) {
				case syncproto.EventAck:
					acked = true
				case syncproto.EventEnd:
					over = true
				}
			}
			if s.InFlight() > syncproto.MaxUpdatesInFlight || over != (s.State() == syncproto.SessionEnded) {
				t.Fatalf("%d in flight, over %v in state %s", s.InFlight(), over, s.State())
			}
		}
	})
	if sent < leastDrawn() {
		t.Error("hardly a session came far enough to mean anything")
	}
}

// pair is both halves, with what is on the way between them by stream.
type pair struct {
	t       *rapid.T
	now     time.Duration
	hub     *syncproto.HubSession
	edge    *syncproto.EdgeSession
	toHub   [3][]syncproto.Message
	toEdge  [3][]syncproto.Message
	pending []syncproto.Updates // the cluster is to apply
	applied fleet.Seq
	cursor  fleet.Seq
	desired fleet.Index
	got     []fleet.Index
}

func (p *pair) fromEdge(outs []syncproto.Output) {
	for _, o := range outs {
		if o.Send != nil {
			p.toHub[o.Stream] = append(p.toHub[o.Stream], o.Send)
		}
		switch e := o.Event.(type) {
		case syncproto.EventWelcome:
			p.fromEdge(p.edge.SendHeartbeat(p.now, syncproto.Heartbeat{}))
		case syncproto.EventDesired:
			p.got = append(p.got, e.Desired.Index)
			p.fromEdge(p.edge.Received(syncproto.Received{Index: e.Desired.Index}))
		case syncproto.EventEnd:
			p.t.Fatalf("the edge's half ended: %v", e.Err)
		}
	}
}

func (p *pair) fromHub(outs []syncproto.Output) {
	for _, o := range outs {
		if o.Send != nil {
			p.toEdge[o.Stream] = append(p.toEdge[o.Stream], o.Send)
		}
		switch e := o.Event.(type) {
		case syncproto.EventHello:
			p.fromHub(p.hub.Accept(p.now, syncproto.Welcome{Applied: p.applied, TTL: 10 * time.Second}))
		case syncproto.EventHeartbeat:
			p.fromHub(p.hub.Acknowledge(syncproto.HeartbeatAck{Epoch: 1, TTL: 10 * time.Second, Applied: p.applied}))
		case syncproto.EventUpdates:
			p.pending = append(p.pending, e.Updates)
		case syncproto.EventEnd:
			p.t.Fatalf("the hub's half ended: %v", e.Err)
		}
	}
}

// deliverFrame takes one frame off the way, if there is one.
func (p *pair) deliverFrame(way *[3][]syncproto.Message, on int, take func(syncproto.Stream, syncproto.Message) []syncproto.Output, next func([]syncproto.Output)) {
	if len(way[on]) == 0 {
		return
	}
	m := way[on][0]
	way[on] = way[on][1:]
	next(take(syncproto.Stream(on), m))
}

// Two halves whose streams are delivered in any interleaving never end, and every
// row and delivery arrives in order.
func TestHalvesUnderstandEachOther(t *testing.T) {
	finished := 0
	rapid.Check(t, func(t *rapid.T) {
		const rows = 40
		p := &pair{t: t, hub: syncproto.NewHubSession(0, nodeA), edge: syncproto.NewEdgeSession(), cursor: 1}
		h := newHello()
		h.Last = rows
		p.fromEdge(p.edge.Start(0, h))
		toHub := func(s syncproto.Stream, m syncproto.Message) []syncproto.Output { return p.hub.Frame(p.now, s, m) }
		toEdge := func(s syncproto.Stream, m syncproto.Message) []syncproto.Output { return p.edge.Frame(p.now, s, m) }
		for range 3000 {
			if p.applied == rows && len(p.got) >= 5 {
				finished++
				break
			}
			p.now += 10 * time.Millisecond
			switch on := rapid.IntRange(0, 2).Draw(t, "stream"); rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				p.deliverFrame(&p.toHub, on, toHub, p.fromHub)
			case 1:
				p.deliverFrame(&p.toEdge, on, toEdge, p.fromEdge)
			case 2:
				if p.edge.MaySend() && p.cursor <= rows {
					n := min(rapid.IntRange(1, 9).Draw(t, "rows"), int(rows-p.cursor)+1)
					p.fromEdge(p.edge.Update(newUpdates(p.cursor, n)))
					p.cursor += fleet.Seq(n)
				}
			case 3:
				if len(p.pending) > 0 {
					u := p.pending[0]
					p.pending = p.pending[1:]
					if u.First != p.applied+1 {
						t.Fatalf("rows from %d after %d", u.First, p.applied)
					}
					p.applied += fleet.Seq(len(u.Rows))
					p.fromHub(p.hub.AppliedTo(syncproto.Applied{Last: p.applied}))
				}
			case 4:
				if p.hub.State() == syncproto.SessionOpen && p.desired < 5 {
					p.desired++
					p.fromHub(p.hub.Desire(syncproto.Desired{Index: p.desired}))
				}
			case 5:
				if p.edge.State() == syncproto.SessionOpen && p.edge.Overdue(p.now) == 0 {
					p.fromEdge(p.edge.SendHeartbeat(p.now, syncproto.Heartbeat{}))
				}
			case 6:
				p.fromHub(p.hub.Tick(p.now))
				p.fromEdge(p.edge.Tick(p.now))
			}
		}
		for i, index := range p.got {
			if index != fleet.Index(i+1) {
				t.Fatalf("deliveries came as %v", p.got)
			}
		}
	})
	if finished < 20 {
		t.Errorf("%d pairs got everything across", finished)
	}
}
