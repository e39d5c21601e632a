package gateway_test

import (
	"bytes"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/syncproto"
)

const damage = "rows went up to 2, 0 is the newest"

// TestDamagedJournal: an edge that has lost rows which the cluster has is told where
// to go on, where it says so, and is ready when it did.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	before := h.mustDial(t, node1)
	before.openSession(1, "agent-1")
	before.sendMessage(syncproto.StreamUpdates, before.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent}, fleet.Transition{Kind: fleet.TransitionOperator}))
	expect[syncproto.Applied](before, syncproto.StreamUpdates)
	applied := before.chain

	t.Run("not while its former session answers", func(t *testing.T) {
		alive := before.answerProbes()
		clone := h.mustDial(t, node1)
		hello := clone.newHello(2, "agent-2")
		hello.Lost = damage
		clone.sendMessage(syncproto.StreamControl, hello)
		clone.expectRefused(fleet.CodeCloned)
		alive()
	})
	before.closeSilently()

	first := h.mustDial(t, node1)
	hello := first.newHello(3, "agent-3")
	hello.Last, hello.ChainHash, hello.Lost = 1, []byte("another chain"), damage
	if w := first.exchangeHello(hello); w.Applied != 2 {
		t.Fatalf("welcomed with %+v", w)
	}
	ack := first.sendHeartbeat()
	if ack.Applied != 2 || !bytes.Equal(ack.ChainHash, applied) || ack.Status != fleet.NodeInitializing {
		t.Fatalf("acknowledged with %+v, want row 2 and its hash %x", ack, applied)
	}
	first.closeSilently()

	again := h.mustDial(t, node1)
	again.chain = ack.ChainHash
	rows := again.newUpdates(3, fleet.Transition{Kind: fleet.TransitionGap, Dropped: 4, Message: "the journal was damaged"})
	hello = again.newHello(4, "agent-3")
	hello.First, hello.Last, hello.ChainHash = 3, 3, again.chain
	again.exchangeHello(hello)
	if ack := again.sendHeartbeat(); len(ack.ChainHash) > 0 {
		t.Errorf("the hash is told unasked: %+v", ack)
	}
	again.sendMessage(syncproto.StreamUpdates, rows)
	if a := expect[syncproto.Applied](again, syncproto.StreamUpdates); a.Last != 3 || a.Status != fleet.NodeReady {
		t.Errorf("applied: %+v", a)
	}
	n := h.mustNode(node1)
	if len(n.Fenced) != 1 || n.Fenced[0].Code != fleet.CodeCloned {
		t.Errorf("fenced: %+v", n.Fenced)
	}
	var told, gap bool
	for _, e := range h.View().NodeHistory(node1) {
		told = told || e.Event == "journal damaged" && e.Message == damage
		gap = gap || e.Transition != nil && e.Transition.Kind == fleet.TransitionGap && e.Transition.Dropped == 4
	}
	if !told || !gap {
		t.Errorf("the node's record tells of the damage: %v, of the gap: %v", told, gap)
	}
	if e := n.Events[len(n.Events)-1]; !strings.Contains(e.Message, damage) {
		t.Errorf("the newest event: %+v", e)
	}
}

// TestDesiredOfABareEdge: an edge that lost all its state is told which allocations it may still have to stop, with
// the record and the job of each.
func TestDesiredOfABareEdge(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, "a1")
	w := h.mustDial(t, node1)
	hello := w.newHello(1, "agent-1")
	w.exchangeHello(hello)
	w.sendHeartbeat()
	held := expect[syncproto.Desired](w, syncproto.StreamDesired)
	w.sendMessage(syncproto.StreamDesired, syncproto.Received{Index: held.Index})
	w.closeSilently()
	h.mustStop("a1", "not needed")

	for _, desired := range []fleet.Index{0, held.Index} {
		w := h.mustDial(t, node1)
		hello := w.newHello(uint64(2+desired), "agent-1")
		hello.Desired = desired
		w.exchangeHello(hello)
		w.sendHeartbeat()
		d := expect[syncproto.Desired](w, syncproto.StreamDesired)
		bare := desired == 0
		if len(d.Stop) != 1 || bare != (len(d.Run) == 1) || bare != (len(d.Bodies) == 1) {
			t.Errorf("holding desired state %d it is told %+v", desired, d)
		}
		w.closeSilently()
	}
}
