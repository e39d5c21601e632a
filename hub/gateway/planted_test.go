//go:build planted

package gateway_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/planted"
	"skerry/syncproto"
)

// A session that a newer one took the place of goes on, and its rows count; without
// the bug it ends (TestNewerSessionStays).
func TestPlantedForgetFencing(t *testing.T) {
	defer planted.Plant(planted.ForgetFencing)()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	older := h.mustDial(t, node1)
	older.openSession(1, "agent-1")
	newer := h.mustDial(t, node1)
	newer.openSession(2, "agent-1")
	older.sendMessage(syncproto.StreamUpdates, older.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent}))
	expect[syncproto.Applied](older, syncproto.StreamUpdates)
}

// An edge whose rows were refused hears nothing of it; without the bug it does
// (TestForeignAllocation).
func TestPlantedRefuseSilently(t *testing.T) {
	defer planted.Plant(planted.RefuseSilently)()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustDescribe(node2)
	h.mustPlace(node2, alloc2)
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	refused := make(chan struct{})
	h.setAttempted(func(c state.Command) {
		if _, ok := c.(state.AllocUpdates); ok {
			close(refused)
		}
	})
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc2)))
	<-refused
	w.expectNothing(syncproto.StreamControl, 300*time.Millisecond)
}
