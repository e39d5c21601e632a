package gateway_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

const (
	alloc1 = fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000001")
	alloc2 = fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000002")
)

func (h *hub) mustDescribe(node fleet.NodeID) {
	h.tb.Helper()
	h.mustApply(state.NodeRegister{Node: *describe(node), Now: time.Now().UnixNano()})
}

// A session from its Hello to an allocation that runs.
func TestSession(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	welcome := w.welcomed(w.hello(1, "agent-1"))
	if welcome.Epoch != 1 || welcome.Applied != 0 || welcome.TTL != time.Minute || welcome.Hub != "hub-1" || welcome.Term != 7 || welcome.Cluster == "" {
		t.Errorf("welcome %+v", welcome)
	}
	if _, known := h.View().Node(node1); known {
		t.Error("the node is in the state before its first heartbeat")
	}
	ack := w.beat()
	if ack.Epoch != 1 || ack.Status != fleet.NodeReady || ack.NeedNode {
		t.Errorf("first acknowledgement %+v, want epoch 1, ready", ack)
	}
	first := expect[syncproto.Desired](w, syncproto.StreamDesired)
	if !first.Full || len(first.Run)+len(first.Stop) > 0 || first.Cluster != welcome.Cluster {
		t.Errorf("first desired %+v, want a full and empty one", first)
	}
	if n := h.mustNode(node1); n.Name != "edge-11111111" || n.Hub != "hub-1" || n.Instance != "agent-1" || n.Address == "" {
		t.Errorf("node %+v", n)
	}

	h.mustPlace(node1, alloc1)
	d := expect[syncproto.Desired](w, syncproto.StreamDesired)
	if d.Full || d.From != first.Index || d.From == 0 || len(d.Run) != 1 || d.Run[0].ID != alloc1 || len(d.Bodies) != 1 || d.Bodies[0].Hash != d.Run[0].JobHash {
		t.Fatalf("desired %+v, want allocation 1 with its job", d)
	}
	if job, err := syncproto.DecodeJob(d.Bodies[0].Job); err != nil || job.ID != "job-aaaaaaaa" || len(job.TaskGroups) != 1 {
		t.Errorf("the body is %+v (%v)", job, err)
	}
	w.send(syncproto.StreamDesired, syncproto.Received{Index: d.Index})
	w.send(syncproto.StreamUpdates, w.updates(1, running(alloc1)))
	if a := expect[syncproto.Applied](w, syncproto.StreamUpdates); a.Last != 1 {
		t.Errorf("applied %+v, want row 1", a)
	}
	if a, _ := h.View().Alloc(alloc1); a.ClientStatus != fleet.ClientRunning {
		t.Errorf("allocation is %s, want running", a.ClientStatus)
	}
	h.eventually("the received index is in the state", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Received == d.Index
	})

	h.mustStop(alloc1, "not needed")
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); len(d.Stop) != 1 || d.Stop[0].ID != alloc1 || d.Stop[0].Reason != "not needed" || len(d.Run) > 0 {
		t.Errorf("desired %+v, want allocation 1 stopped", d)
	}
	before := h.count(state.KindNodeRegister)
	w.beats++
	w.send(syncproto.StreamControl, syncproto.Heartbeat{Number: w.beats, Uptime: time.Hour})
	if ack := expect[syncproto.HeartbeatAck](w, syncproto.StreamControl); ack.Number != 2 || ack.Status != fleet.NodeReady || len(ack.Hubs) > 0 {
		t.Errorf("second acknowledgement %+v", ack)
	}
	if h.count(state.KindNodeRegister) != before || h.count(state.KindSessionOpen) != 1 {
		t.Error("a heartbeat became an entry of the log")
	}
}

// An edge is told that a stop is without its shutdown_delay, also when it stops already,
// and again in a later session.
func TestStopsWithoutTheirDelay(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.welcomed(w.hello(1, "agent-1"))
	w.beat()
	expect[syncproto.Desired](w, syncproto.StreamDesired)
	h.mustPlace(node1, alloc1)
	expect[syncproto.Desired](w, syncproto.StreamDesired)
	h.mustStop(alloc1, "not needed")
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); len(d.Stop) != 1 || d.Stop[0].NoDelay {
		t.Fatalf("desired %+v, want a stop with its delay", d)
	}
	h.mustApply(state.AllocStop{Allocs: []fleet.AllocID{alloc1}, EvalSeed: "s", Now: time.Now().UnixNano(), NoShutdownDelay: true})
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); len(d.Stop) != 1 || !d.Stop[0].NoDelay {
		t.Fatalf("desired %+v, want a stop without it", d)
	}
	later := h.mustDial(t, node1)
	later.welcomed(later.hello(2, "agent-1"))
	later.beat()
	if d := expect[syncproto.Desired](later, syncproto.StreamDesired); !d.Full || len(d.Stop) != 1 || !d.Stop[0].NoDelay {
		t.Fatalf("desired in a later session %+v", d)
	}
}

// What the edge is told again in a new session.
func TestFullDesiredOfALaterSession(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	h.mustPlace(node1, alloc2)
	w := h.mustDial(t, node1)
	_, d := w.open(1, "agent-1")
	if len(d.Run) != 2 || len(d.Bodies) != 1 {
		t.Fatalf("first full desired: %d to run with %d bodies, want 2 with the one that they share", len(d.Run), len(d.Bodies))
	}
	w.send(syncproto.StreamDesired, syncproto.Received{Index: d.Index})
	ended := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: alloc2, ClientStatus: fleet.ClientComplete}
	w.send(syncproto.StreamUpdates, w.updates(1, running(alloc1), ended))
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	h.eventually("the received index is in the state", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Received == d.Index
	})

	again := h.mustDial(t, node1)
	hello := again.hello(2, "agent-1")
	hello.Last, hello.ChainHash, hello.Desired = 2, w.chain, d.Index
	again.welcomed(hello)
	again.beat()
	d = expect[syncproto.Desired](again, syncproto.StreamDesired)
	if !d.Full || len(d.Run) != 1 || d.Run[0].ID != alloc1 {
		t.Errorf("second full desired %+v, want allocation 1 alone: the other one has ended out there", d)
	}
	if len(d.Bodies) != 0 {
		t.Error("a job's body travelled twice")
	}
	w.expectRefused(fleet.CodeStaleEpoch)

	again.send(syncproto.StreamDesired, syncproto.Received{Index: d.Index, Missing: []string{d.Run[0].JobHash}})
	if d := expect[syncproto.Desired](again, syncproto.StreamDesired); len(d.Bodies) != 1 {
		t.Errorf("the missing body was not sent: %+v", d)
	}
}

// The two sides compare what the edge holds and the hub did not mention.
func TestHoldings(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustDescribe(node2)
	h.mustPlace(node1, alloc1)
	h.mustPlace(node2, alloc2)
	w := h.mustDial(t, node1)
	w.open(1, "agent-1")
	h.mustStop(alloc1, "job stopped")
	expect[syncproto.Desired](w, syncproto.StreamDesired)

	const unknown = fleet.AllocID("aaaaaaaa-0000-4000-8000-00000000dead")
	w.send(syncproto.StreamDesired, syncproto.Holdings{Allocs: []fleet.AllocID{alloc1, alloc2, unknown}})
	d := expect[syncproto.Desired](w, syncproto.StreamDesired)
	if len(d.Stop) != 1 || d.Stop[0].ID != alloc1 || len(d.Run) != 0 {
		t.Errorf("the answer to the holdings is %+v, want allocation 1 stopped and nothing else mentioned", d)
	}
	h.eventually("the orphans are shown", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return slices.Equal(n.Orphans, []fleet.AllocID{alloc2, unknown}) && n.StatusDescription == "" &&
			strings.Contains(n.Events[len(n.Events)-1].Message, "Node keeps 2 allocations that the cluster does not know")
	})
}

// What could not be committed while nobody led is noted later in the same session.
func TestOrphansAreNotedLater(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	w.open(1, "agent-1")
	tried := make(chan struct{}, 1)
	h.setApplied(func(c state.Command) {
		if _, ok := c.(state.NodeResync); ok {
			select {
			case tried <- struct{}{}:
			default:
			}
		}
	})
	h.setBroken(true)
	const unknown = fleet.AllocID("aaaaaaaa-0000-4000-8000-00000000dead")
	w.send(syncproto.StreamDesired, syncproto.Holdings{Allocs: []fleet.AllocID{alloc1, unknown}})
	<-tried
	h.setBroken(false)
	h.mustStop(alloc1, "job stopped")
	h.eventually("the orphan is shown", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return slices.Equal(n.Orphans, []fleet.AllocID{unknown})
	})
}

// A hub that has just started may apply for a while what the cluster did long ago.
func TestAHubThatLagsOpensNoSession(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{lags: true})
	h.mustDescribe(node1)
	h.setBehind(true)
	h.mustApply(state.NodeEligibility{NodeID: node1, Eligibility: fleet.NodeIneligible, Now: time.Now().UnixNano()})
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	w.welcomed(w.hello(1, "agent-1"))
	w.send(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Uptime: time.Hour, Node: describe(node1), Hash: []byte("h1")})
	h.eventually("the session is committed", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Epoch == 1
	})
	w.expectNothing(syncproto.StreamControl, 100*time.Millisecond)
	h.catchUpOne() // which changes the node, and is not its session
	w.expectNothing(syncproto.StreamControl, 100*time.Millisecond)
	h.setBehind(false)
	if ack := expect[syncproto.HeartbeatAck](w, syncproto.StreamControl); ack.Index < h.View().Index() {
		t.Errorf("the session begins at entry %d, though it was committed by entry %d", ack.Index, h.View().Index())
	}
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); len(d.Run) != 1 {
		t.Errorf("the edge is told of %d allocations, not of the one that was placed before its session", len(d.Run))
	}
}

// Row 3 of the issue: the wire driven by hand.
func TestUpdateBeforeHeartbeat(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	before := h.describe()
	t.Run("right after the welcome", func(t *testing.T) {
		w := h.mustDial(t, node1)
		w.welcomed(w.hello(1, "agent-1"))
		w.send(syncproto.StreamUpdates, w.updates(1, running(alloc1)))
		w.expectRefused(fleet.CodeHeartbeatFirst)
	})
	t.Run("before the heartbeat's acknowledgement", func(t *testing.T) {
		h.setBroken(true) // it cannot be committed
		defer h.setBroken(false)
		w := h.mustDial(t, node1)
		w.welcomed(w.hello(2, "agent-1"))
		w.send(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node1)})
		w.expectNothing(syncproto.StreamControl, 100*time.Millisecond)
		w.send(syncproto.StreamUpdates, w.updates(1, running(alloc1)))
		w.expectRefused(fleet.CodeHeartbeatFirst)
	})
	h.expectUnchanged(t, before)
}

func TestForeignAllocation(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustDescribe(node2)
	h.mustPlace(node1, alloc1)
	h.mustPlace(node2, alloc2)
	w := h.mustDial(t, node1)
	w.open(1, "agent-1")
	before := h.describe()
	w.send(syncproto.StreamUpdates, w.updates(1, running(alloc1), running(alloc2)))
	w.expectRefused(fleet.CodeForeignAlloc)
	h.expectUnchanged(t, before)
}

func TestStaleEpoch(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	t.Run("a newer session through another hub", func(t *testing.T) {
		w := h.mustDial(t, node1)
		w.open(1, "agent-1")
		h.mustApply(state.SessionOpen{NodeID: node1, Session: 2, Instance: "agent-1", BootID: "boot-1", Hub: "hub-2", Now: time.Now().UnixNano()})
		before := h.describe()
		w.send(syncproto.StreamUpdates, w.updates(1, running(alloc1)))
		w.expectRefused(fleet.CodeStaleEpoch)
		h.expectUnchanged(t, before)
	})
	t.Run("a session counter that does not grow", func(t *testing.T) {
		before := h.describe()
		w := h.mustDial(t, node1)
		w.welcomed(w.hello(2, "agent-1"))
		w.send(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node1)})
		if r := w.expectRefused(fleet.CodeStaleSession); r.Session != 2 {
			t.Errorf("refused with session %d, want the one to exceed: 2", r.Session)
		}
		h.expectUnchanged(t, before)
	})
}

func TestGapAndFrameRules(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	for i, c := range []struct {
		name string
		do   func(w *wire)
		code fleet.Code
	}{
		{"a gap", func(w *wire) { w.send(syncproto.StreamUpdates, w.updates(3, running(alloc1))) }, fleet.CodeGap},
		{"a frame on the wrong stream", func(w *wire) { w.send(syncproto.StreamControl, w.updates(1, running(alloc1))) }, fleet.CodeFrameBad},
		{"a hub's frame", func(w *wire) { w.send(syncproto.StreamControl, syncproto.Welcome{}) }, fleet.CodeFrameBad},
		{"bytes that are no frame", func(w *wire) {
			if _, err := w.streams[syncproto.StreamUpdates].Write([]byte{0xee, 0, 0}); err != nil {
				w.tb.Fatal(err)
			}
		}, fleet.CodeFrameBad},
		{"a length over the bound", func(w *wire) {
			if _, err := w.streams[syncproto.StreamUpdates].Write([]byte{byte(syncproto.FrameUpdates), 0xff, 0xff, 0x7f}); err != nil {
				w.tb.Fatal(err)
			}
		}, fleet.CodeFrameTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := h.mustDial(t, node1)
			w.open(uint64(i+1), "agent-1")
			before := h.mustNode(node1).Applied
			c.do(w)
			w.expectRefused(c.code)
			if after := h.mustNode(node1).Applied; after != before {
				t.Errorf("applied went from %d to %d", before, after)
			}
		})
	}
}

func TestCertificateMustNameTheNode(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	hello := w.hello(1, "agent-1")
	hello.Node = node2
	w.send(syncproto.StreamControl, hello)
	w.expectRefused(fleet.CodeForbidden)
}

// A node that the cluster has no description of is asked for it.
func TestUnknownNodeMustDescribeItself(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.welcomed(w.hello(1, "agent-1"))
	w.send(syncproto.StreamControl, syncproto.Heartbeat{Number: 1})
	if ack := expect[syncproto.HeartbeatAck](w, syncproto.StreamControl); !ack.NeedNode {
		t.Errorf("acknowledgement %+v, want NeedNode", ack)
	}
	w.beats = 1
	if ack := w.beat(); ack.NeedNode {
		t.Errorf("acknowledgement %+v after the description", ack)
	}
	if n := h.mustNode(node1); n.Name != "edge-11111111" || !n.Drivers["raw_exec"].Healthy {
		t.Errorf("node %+v, want it described", n)
	}
}

// A node that was away becomes ready only with its history in.
func TestReadyComesAfterHistory(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	first := w.updates(1, running(alloc1))
	second := w.updates(2, fleet.Transition{Kind: fleet.TransitionDisconnect}, fleet.Transition{Kind: fleet.TransitionReconnect})
	hello := w.hello(1, "agent-1")
	hello.Last, hello.ChainHash = 3, w.chain
	w.welcomed(hello)
	if ack := w.beat(); ack.Status != fleet.NodeInitializing || ack.Applied != 0 {
		t.Errorf("acknowledgement %+v, want initializing", ack)
	}
	w.send(syncproto.StreamUpdates, first)
	w.send(syncproto.StreamUpdates, second)
	if a := expect[syncproto.Applied](w, syncproto.StreamUpdates); a.Last != 1 || a.Status != "" {
		t.Errorf("applied %+v, want row 1 and nothing else changed", a)
	}
	if a := expect[syncproto.Applied](w, syncproto.StreamUpdates); a.Last != 3 || a.Status != fleet.NodeReady {
		t.Errorf("applied %+v, want row 3 and ready", a)
	}
}

// An edge that stays half-way is asked for everything again, and people see why.
func TestHalfWay(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{ttl: 500 * time.Millisecond})
	h.mustDescribe(node1)
	w := h.mustDial(t, node1)
	rows := w.updates(1, fleet.Transition{Kind: fleet.TransitionAgent})
	hello := w.hello(1, "agent-1")
	hello.Last, hello.ChainHash = 1, w.chain
	w.welcomed(hello)
	w.beat()
	stop := w.keepBeating(200 * time.Millisecond)
	defer stop()
	r := w.expectResync()
	if r.Applied != 0 || r.Reason == "" {
		t.Errorf("resync %+v", r)
	}
	if n := h.mustNode(node1); n.StatusDescription != r.Reason || n.Status != fleet.NodeInitializing {
		t.Errorf("node is %s: %q, want initializing and the reason %q", n.Status, n.StatusDescription, r.Reason)
	}
	w.send(syncproto.StreamUpdates, rows)
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	if n := h.mustNode(node1); n.Status != fleet.NodeReady {
		t.Errorf("node is %s after the resync, want ready", n.Status)
	}
}

// Without a leader nothing is lost: it is committed when there is one.
func TestNoLeaderForAWhile(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	w.open(1, "agent-1")
	h.setBroken(true)
	w.send(syncproto.StreamUpdates, w.updates(1, running(alloc1)))
	w.expectNothing(syncproto.StreamUpdates, 300*time.Millisecond)
	other := h.mustDial(t, node2)
	other.welcomed(other.hello(1, "agent-2"))
	other.send(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node2)})
	other.expectNothing(syncproto.StreamControl, 300*time.Millisecond)
	h.setBroken(false)
	if a := expect[syncproto.Applied](w, syncproto.StreamUpdates); a.Last != 1 {
		t.Errorf("applied %+v, want row 1", a)
	}
	if ack := expect[syncproto.HeartbeatAck](other, syncproto.StreamControl); ack.Epoch != 1 {
		t.Errorf("acknowledgement %+v, want epoch 1", ack)
	}
}

// eventuallyRefuses waits until the hub takes no new session.
func (h *hub) eventuallyRefuses(tb testing.TB, node fleet.NodeID) {
	tb.Helper()
	h.eventually("a new session is refused", func(*state.View) bool {
		w := h.mustDial(tb, node)
		defer w.vanish()
		w.send(syncproto.StreamControl, w.hello(1, "agent-2"))
		m, err := w.read(syncproto.StreamControl, patience)
		r, refused := m.(syncproto.Refused)
		return err == nil && refused && r.Code == fleet.CodeUnavailable
	})
}

// A hub that is cut off from the others sends edges to them.
func TestHubWithoutALeaderLetsEdgesGo(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{ttl: time.Minute, leaderless: true, lease: 2 * time.Second})
	had := h.mustDial(t, node1)
	had.open(1, "agent-1")
	h.eventuallyRefuses(t, node2)
	had.expectRefused(fleet.CodeUnavailable)
}

// A hub that has just lost its leader takes no edge, and keeps those that it has: there may
// be an election.
func TestHubWithoutALeaderKeepsItsEdgesAtFirst(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{leaderless: true})
	had := h.mustDial(t, node1)
	had.open(1, "agent-1")
	h.eventuallyRefuses(t, node2)
	had.beat()
}

// A session counts as open until it ends.
func TestSessionThatEndsIsNotCounted(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.open(1, "agent-1")
	if n := h.gateway.Stats().Open; n != 1 {
		t.Errorf("%d sessions are open, want 1", n)
	}
	w.vanish()
	h.eventually("no session is open", func(*state.View) bool { return h.gateway.Stats().Open == 0 })
}

// A node that missed its deadline comes back through a new session alone.
func TestSessionEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	ack, _ := w.open(1, "agent-1")
	h.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node1, Epoch: ack.Epoch, Reason: "missed"}}, Now: time.Now().UnixNano()})
	w.expectRefused(fleet.CodeNodeNotReady)
}

// What many edges say within 50 ms is few entries.
// E8: what many edges say at once is few entries, and each hears of its own.
func TestUpdatesAreFolded(t *testing.T) {
	t.Parallel()
	const edges = 40
	h := newHub(t, options{})
	var wires []*wire
	for i := range edges {
		w := h.mustDial(t, fleet.NodeID(fmt.Sprintf("33333333-0000-4000-8000-%012d", i)))
		w.open(1, "agent-1")
		wires = append(wires, w)
	}
	for _, w := range wires {
		w.send(syncproto.StreamUpdates, w.updates(1, fleet.Transition{Kind: fleet.TransitionAgent}))
		w.send(syncproto.StreamUpdates, w.updates(2, fleet.Transition{Kind: fleet.TransitionOperator, Message: "m"}))
	}
	for _, w := range wires {
		for _, want := range []fleet.Seq{1, 2} {
			if a := expect[syncproto.Applied](w, syncproto.StreamUpdates); a.Last != want {
				t.Errorf("node %s: applied %d, want %d", w.node, a.Last, want)
			}
		}
	}
	if n := h.count(state.KindAllocUpdates); n > edges/2 {
		t.Errorf("%d entries for %d batches", n, 2*edges)
	}
}

// An edge that does not read holds up nobody but itself.
func TestSlowEdge(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	slow := h.mustDial(t, node1)
	slow.open(1, "agent-1")
	for i := range 200 { // far more than its windows take
		h.mustPlaceLarge(node1, i)
	}
	quick := h.mustDial(t, node2)
	quick.open(1, "agent-2")
	h.mustPlace(node2, alloc2)
	if d := expect[syncproto.Desired](quick, syncproto.StreamDesired); len(d.Run) != 1 {
		t.Errorf("desired %+v, want allocation 2", d)
	}
	// And its own heartbeats are answered.
	if ack := slow.beat(); ack.Number != 2 {
		t.Errorf("acknowledgement %+v", ack)
	}
	seen := 0
	for seen < 200 {
		seen += len(expect[syncproto.Desired](slow, syncproto.StreamDesired).Run)
	}
}

// mustPlaceLarge places an allocation whose job is about 30 KB.
func (h *hub) mustPlaceLarge(node fleet.NodeID, i int) {
	h.tb.Helper()
	id := fleet.AllocID(fmt.Sprintf("bbbb%04d-0000-4000-8000-000000000000", i))
	noise := make(map[string]string)
	for k := range 30 {
		noise[fmt.Sprint("k", k)] = fmt.Sprintf("%0*d", 1000, i*k)
	}
	job := &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: fleet.JobID(fmt.Sprint("large-", i)), Name: "large", Type: fleet.JobTypeService, Meta: noise,
		Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec"}}}},
	}
	h.mustApply(state.JobRegister{Job: job, Now: time.Now().UnixNano()})
	stored, _ := h.View().Job(job.Namespace, job.ID)
	h.mustPlan(node, fleet.Alloc{
		ID: id, Namespace: job.Namespace, Name: string(job.ID) + ".g[0]", NodeID: node, JobID: job.ID, Job: stored,
		JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "g",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	})
}

// Logs come over the edge's own connection.
func TestLogs(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	req := syncproto.Request{Kind: syncproto.RequestLogs, Alloc: alloc1, Task: "t", Stream: "stdout", Origin: "start"}
	if _, err := h.gateway.Logs(t.Context(), node1, req); fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Errorf("logs of a node that is not connected: %v, want unavailable", err)
	}
	w := h.mustDial(t, node1)
	w.open(1, "agent-1")
	served := make(chan error, 1)
	go func() { served <- w.serveLogs("hello\nworld\n") }()
	out, err := h.gateway.Logs(t.Context(), node1, req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil || string(text) != "hello\nworld\n" {
		t.Errorf("read %q (%v)", text, err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}

	go func() { served <- w.serveLogs("") }()
	ctx, cancel := context.WithCancel(t.Context())
	out, err = h.gateway.Logs(ctx, node1, req)
	if err != nil {
		t.Fatal(err)
	}
	cancel() // the reader went away: so does the stream
	if _, err := io.ReadAll(out); err == nil {
		t.Error("reading went on after the context ended")
	}
	<-served
}

// An edge whose link has vanished, and that is not known to be away yet, is not waited for.
func TestLogsOfSilentEdge(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.open(1, "agent-1") // and answers nothing from now on
	began := time.Now()
	req := syncproto.Request{Kind: syncproto.RequestLogs, Alloc: alloc1, Task: "t", Stream: "stdout", Origin: "start"}
	_, err := h.gateway.Logs(t.Context(), node1, req)
	if fleet.CodeOf(err) != fleet.CodeUnavailable || fleet.AsError(err).Hint == "" {
		t.Errorf("logs of an edge that is silent: %v, want unavailable and a hint", err)
	}
	if took := time.Since(began); took > 15*time.Second { // 1.5 s, and 30 s before
		t.Errorf("it took %s", took)
	}
}

// serveLogs answers one request with text; an empty text is a task that says
// nothing, followed for as long as the hub reads.
func (w *wire) serveLogs(text string) error {
	stream, err := w.conn.Accept(context.Background())
	if err != nil {
		return err
	}
	r := syncproto.NewReader(stream)
	if m, err := r.Read(); err != nil {
		return err
	} else if q, ok := m.(syncproto.Request); !ok || q.Kind != syncproto.RequestLogs || q.Alloc != alloc1 {
		return fmt.Errorf("the request is %+v", m)
	}
	if err := syncproto.NewWriter(stream).Write(syncproto.Reply{}); err != nil {
		return err
	}
	if text == "" {
		_, err := io.Copy(io.Discard, stream)
		return err
	}
	if _, err := io.WriteString(stream, text); err != nil {
		return err
	}
	return stream.CloseWrite()
}

// keepBeating sends bare heartbeats, and leaves their answers to others.
func (w *wire) keepBeating(every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			w.beats++
			if syncproto.NewWriter(w.streams[syncproto.StreamControl]).Write(syncproto.Heartbeat{Number: w.beats}) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (w *wire) expectResync() syncproto.Resync {
	w.tb.Helper()
	for {
		m, err := w.read(syncproto.StreamControl, patience)
		if err != nil {
			w.tb.Fatalf("expected a resync: %v", err)
		}
		if r, ok := m.(syncproto.Resync); ok {
			return r
		}
	}
}
