package gateway_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// Row 3 of the issue: the wire driven by hand.
func TestUpdateBeforeHeartbeat(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	before := h.describeState()
	t.Run("right after the welcome", func(t *testing.T) {
		w := h.mustDial(t, node1)
		w.exchangeHello(w.newHello(1, "agent-1"))
		w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc1)))
		w.expectRefused(fleet.CodeHeartbeatFirst)
	})
	t.Run("before the heartbeat's acknowledgement", func(t *testing.T) {
		h.SetRefusal(errNoLeader) // it cannot be committed
		defer h.SetRefusal(nil)
		w := h.mustDial(t, node1)
		w.exchangeHello(w.newHello(2, "agent-1"))
		w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node1)})
		w.expectNothing(syncproto.StreamControl, 100*time.Millisecond)
		w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc1)))
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
	w.openSession(1, "agent-1")
	before := h.describeState()
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc1), running(alloc2)))
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
		w.openSession(1, "agent-1")
		h.mustApply(state.SessionOpen{NodeID: node1, Session: 2, Instance: "agent-1", BootID: "boot-1", Hub: "hub-2", Now: time.Now().UnixNano()})
		before := h.describeState()
		w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc1)))
		w.expectRefused(fleet.CodeStaleEpoch)
		h.expectUnchanged(t, before)
	})
	t.Run("a session counter that does not grow", func(t *testing.T) {
		before := h.describeState()
		w := h.mustDial(t, node1)
		w.exchangeHello(w.newHello(2, "agent-1"))
		w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node1)})
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
		do   func(w *testEdge)
		code fleet.Code
	}{
		{"a gap", func(w *testEdge) { w.sendMessage(syncproto.StreamUpdates, w.newUpdates(3, running(alloc1))) }, fleet.CodeGap},
		{"a frame on the wrong stream", func(w *testEdge) { w.sendMessage(syncproto.StreamControl, w.newUpdates(1, running(alloc1))) }, fleet.CodeFrameBad},
		{"a hub's frame", func(w *testEdge) { w.sendMessage(syncproto.StreamControl, syncproto.Welcome{}) }, fleet.CodeFrameBad},
		{"bytes that are no frame", func(w *testEdge) {
			if _, err := w.streams[syncproto.StreamUpdates].Write([]byte{0xee, 0, 0}); err != nil {
				w.tb.Fatal(err)
			}
		}, fleet.CodeFrameBad},
		{"a length over the bound", func(w *testEdge) {
			if _, err := w.streams[syncproto.StreamUpdates].Write([]byte{byte(syncproto.FrameUpdates), 0xff, 0xff, 0x7f}); err != nil {
				w.tb.Fatal(err)
			}
		}, fleet.CodeFrameTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := h.mustDial(t, node1)
			w.openSession(uint64(i+1), "agent-1")
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
	hello := w.newHello(1, "agent-1")
	hello.Node = node2
	w.sendMessage(syncproto.StreamControl, hello)
	w.expectRefused(fleet.CodeForbidden)
}
