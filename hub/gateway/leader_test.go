package gateway_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// Without a leader nothing is lost: it is committed when there is one.
func TestNoLeaderForAWhile(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	h.SetRefusal(errNoLeader)
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc1)))
	w.expectNothing(syncproto.StreamUpdates, 300*time.Millisecond)
	other := h.mustDial(t, node2)
	other.exchangeHello(other.newHello(1, "agent-2"))
	other.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node2)})
	other.expectNothing(syncproto.StreamControl, 300*time.Millisecond)
	h.SetRefusal(nil)
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
	h.waitForState("a new session is refused", func(*state.View) bool {
		w := h.mustDial(tb, node)
		defer w.closeSilently()
		w.sendMessage(syncproto.StreamControl, w.newHello(1, "agent-2"))
		m, err := w.readMessage(syncproto.StreamControl, patience)
		r, refused := m.(syncproto.Refused)
		return err == nil && refused && r.Code == fleet.CodeUnavailable
	})
}

// A hub that is cut off from the others sends edges to them.
func TestHubWithoutALeaderLetsEdgesGo(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{ttl: time.Minute, leaderless: true, lease: 2 * time.Second})
	had := h.mustDial(t, node1)
	had.openSession(1, "agent-1")
	h.eventuallyRefuses(t, node2)
	had.expectRefused(fleet.CodeUnavailable)
}

// A hub that has just lost its leader takes no edge, and keeps those that it has: there may
// be an election.
func TestHubWithoutALeaderKeepsItsEdgesAtFirst(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{leaderless: true})
	had := h.mustDial(t, node1)
	had.openSession(1, "agent-1")
	h.eventuallyRefuses(t, node2)
	had.sendHeartbeat()
}
