package gateway_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// An edge is told that a stop skips its shutdown_delay, also if it is stopping already, and again in a later session.
func TestStopsWithoutTheirDelay(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.exchangeHello(w.newHello(1, "agent-1"))
	w.sendHeartbeat()
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
	later.exchangeHello(later.newHello(2, "agent-1"))
	later.sendHeartbeat()
	if d := expect[syncproto.Desired](later, syncproto.StreamDesired); !d.Full || len(d.Stop) != 1 || !d.Stop[0].NoDelay {
		t.Fatalf("desired in a later session %+v", d)
	}
}

// A new session tells the edge again of all allocations that have not ended, without the jobs
// that the edge has.
func TestFullDesiredOfALaterSession(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	h.mustPlace(node1, alloc2)
	w := h.mustDial(t, node1)
	_, d := w.openSession(1, "agent-1")
	if len(d.Run) != 2 || len(d.Bodies) != 1 {
		t.Fatalf("first full desired: %d to run with %d bodies, want 2 with the one that they share", len(d.Run), len(d.Bodies))
	}
	w.sendMessage(syncproto.StreamDesired, syncproto.Received{Index: d.Index})
	ended := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: alloc2, ClientStatus: fleet.ClientComplete}
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc1), ended))
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	h.waitForState("the received index is in the state", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Received == d.Index
	})

	again := h.mustDial(t, node1)
	hello := again.newHello(2, "agent-1")
	hello.Last, hello.ChainHash, hello.Desired = 2, w.chain, d.Index
	again.exchangeHello(hello)
	again.sendHeartbeat()
	d = expect[syncproto.Desired](again, syncproto.StreamDesired)
	if !d.Full || len(d.Run) != 1 || d.Run[0].ID != alloc1 {
		t.Errorf("second full desired %+v, want allocation 1 alone: the other one has ended out there", d)
	}
	if len(d.Bodies) != 0 {
		t.Error("a job's body travelled twice")
	}
	w.expectRefused(fleet.CodeStaleEpoch)

	again.sendMessage(syncproto.StreamDesired, syncproto.Received{Index: d.Index, Missing: []string{d.Run[0].JobHash}})
	if d := expect[syncproto.Desired](again, syncproto.StreamDesired); len(d.Bodies) != 1 {
		t.Errorf("the missing body was not sent: %+v", d)
	}
}

// An edge that lacks the body of a job does not act on the newest version: the state does not say that it has it.
func TestReceivedWithoutABody(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	_, d := w.openSession(1, "agent-1")
	w.sendMessage(syncproto.StreamDesired, syncproto.Received{Index: d.Index, Missing: []string{d.Run[0].JobHash}})
	expect[syncproto.Desired](w, syncproto.StreamDesired) // the body again
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc1)))
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	h.waitForState("the row is in the state", func(v *state.View) bool {
		n, _ := v.Node(node1)
		if n.Received >= d.Index {
			t.Errorf("received %d without a body", n.Received)
		}
		return n.Applied == 1
	})
	w.sendMessage(syncproto.StreamDesired, syncproto.Received{Index: d.Index})
	h.waitForState("the received index is in the state", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Received == d.Index
	})
}

// An edge tells the hub which allocations it holds: the hub names those to stop, and shows the unknown ones as
// orphans.
func TestHoldings(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustDescribe(node2)
	h.mustPlace(node1, alloc1)
	h.mustPlace(node2, alloc2)
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	h.mustStop(alloc1, "job stopped")
	expect[syncproto.Desired](w, syncproto.StreamDesired)

	const unknown = fleet.AllocID("aaaaaaaa-0000-4000-8000-00000000dead")
	w.sendMessage(syncproto.StreamDesired, syncproto.Holdings{Allocs: []fleet.AllocID{alloc1, alloc2, unknown}})
	d := expect[syncproto.Desired](w, syncproto.StreamDesired)
	if len(d.Stop) != 1 || d.Stop[0].ID != alloc1 || len(d.Run) != 0 {
		t.Errorf("the answer to the holdings is %+v, want allocation 1 stopped and nothing else mentioned", d)
	}
	h.waitForState("the orphans are shown", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return slices.Equal(n.Orphans, []fleet.AllocID{alloc2, unknown}) && n.StatusDescription == "" &&
			strings.Contains(n.Events[len(n.Events)-1].Message, "Node keeps 2 allocations that the cluster does not know")
	})
}

// Orphans that could not be committed while nobody led are committed later in the same session.
func TestOrphansAreNotedLater(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	tried := make(chan struct{}, 1)
	h.setAttempted(func(c state.Command) {
		if _, ok := c.(state.NodeResync); ok {
			select {
			case tried <- struct{}{}:
			default:
			}
		}
	})
	h.SetRefusal(errNoLeader)
	const unknown = fleet.AllocID("aaaaaaaa-0000-4000-8000-00000000dead")
	w.sendMessage(syncproto.StreamDesired, syncproto.Holdings{Allocs: []fleet.AllocID{alloc1, unknown}})
	<-tried
	h.SetRefusal(nil)
	h.mustStop(alloc1, "job stopped")
	h.waitForState("the orphan is shown", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return slices.Equal(n.Orphans, []fleet.AllocID{unknown})
	})
}

// An edge that does not read holds up nobody but itself.
func TestSlowEdge(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	slow := h.mustDial(t, node1)
	slow.openSession(1, "agent-1")
	for i := range 200 { // far more than its windows take
		h.mustPlaceLarge(node1, i)
	}
	quick := h.mustDial(t, node2)
	quick.openSession(1, "agent-2")
	h.mustPlace(node2, alloc2)
	if d := expect[syncproto.Desired](quick, syncproto.StreamDesired); len(d.Run) != 1 {
		t.Errorf("desired %+v, want allocation 2", d)
	}
	// And its own heartbeats are answered.
	if ack := slow.sendHeartbeat(); ack.Number != 2 {
		t.Errorf("acknowledgement %+v", ack)
	}
	seen := 0
	for seen < 200 {
		seen += len(expect[syncproto.Desired](slow, syncproto.StreamDesired).Run)
	}
}
