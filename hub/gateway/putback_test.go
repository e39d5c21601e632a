package gateway_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/gateway"
	"skerry/hub/state"
	"skerry/syncproto"
)

// hubWithAppliedRows is a hub that has two rows of node1 by agent-1, whose machine is silent since.
func hubWithAppliedRows(t *testing.T, head fleet.Seq) (h *hub, applied []byte) {
	t.Helper()
	return hubWithAppliedRowsIn(t, head, options{})
}

func hubWithAppliedRowsIn(t *testing.T, head fleet.Seq, opts options) (h *hub, applied []byte) {
	t.Helper()
	h = newHub(t, opts)
	w := h.mustDial(t, node1)
	hello := w.newHello(1, "agent-1")
	hello.Last, hello.ChainHash = head, []byte("announced")
	w.exchangeHello(hello)
	w.sendHeartbeat()
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent}, fleet.Transition{Kind: fleet.TransitionOperator}))
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	applied = w.chain
	if !h.gateway.PaidBack() {
		t.Error("rows that are applied still count as on their way")
	}
	w.closeSilently()
	return h, applied
}

func (w *testEdge) putBackHello(session uint64, instance fleet.InstanceID, last fleet.Seq) syncproto.Hello {
	h := w.newHello(session, instance)
	h.Last, h.ChainHash = last, []byte("an older copy")
	return h
}

// A machine that went back with its memory: the same process, and nothing is missing.
func TestRevertedMachineGoesOn(t *testing.T) {
	t.Parallel()
	h, _ := hubWithAppliedRows(t, 2)
	w := h.mustDial(t, node1)
	w.sendMessage(syncproto.StreamControl, w.putBackHello(2, "agent-1", 1))
	if r := w.expectRefused(fleet.CodePutBack); r.Applied != 2 || r.RetryAfter != 0 {
		t.Errorf("refused with %+v, want where to go on, at once", r)
	}
	if n := h.mustNode(node1); len(n.Fenced) > 0 {
		t.Errorf("fenced: %+v", n.Fenced)
	}
	again := h.mustDial(t, node1)
	hello := again.putBackHello(3, "agent-1", 1)
	hello.Lost = "an older copy"
	again.exchangeHello(hello)
	if ack := again.sendHeartbeat(); ack.Applied != 2 || len(ack.ChainHash) == 0 {
		t.Errorf("acknowledged with %+v, want where to go on", ack)
	}
}

// The former session is another hub's, which is asked.
func TestRevertedMachineOfAnotherHub(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		former gateway.Former
		want   fleet.Code
	}{
		"silent": {gateway.Former{Answered: true}, fleet.CodePutBack},
		"alive":  {gateway.Former{Answered: true, Alive: true}, fleet.CodeFork},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := hubWithAppliedRowsIn(t, 2, options{probe: func(fleet.HubID, fleet.NodeID) (gateway.Former, error) { return tt.former, nil }})
			n := h.mustNode(node1)
			h.mustApply(state.SessionOpen{
				NodeID: node1, Session: 2, Instance: n.Instance, BootID: n.BootID, Hub: "hub-2", Head: n.JournalHead, Now: time.Now().UnixNano(),
			})
			w := h.mustDial(t, node1)
			w.sendMessage(syncproto.StreamControl, w.putBackHello(3, "agent-1", 1))
			w.expectRefused(tt.want)
		})
	}
}

// The hub refuses a directory that was put back if it has no proof of that: an operator decides.
func TestPutBackDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("another process", func(t *testing.T) {
		t.Parallel()
		h, _ := hubWithAppliedRows(t, 2)
		w := h.mustDial(t, node1)
		w.sendMessage(syncproto.StreamControl, w.putBackHello(2, "agent-2", 1))
		if r := w.expectRefused(fleet.CodeFork); r.Hint == "" {
			t.Error("no hint")
		}
	})
	t.Run("rows were announced that the cluster does not have", func(t *testing.T) {
		t.Parallel()
		h, _ := hubWithAppliedRows(t, 3)
		w := h.mustDial(t, node1)
		w.sendMessage(syncproto.StreamControl, w.putBackHello(2, "agent-1", 1))
		w.expectRefused(fleet.CodeFork)
	})
	t.Run("the former session answers", func(t *testing.T) {
		t.Parallel()
		h := newHub(t, options{})
		original := h.mustDial(t, node1)
		original.openSession(1, "agent-1")
		original.sendMessage(syncproto.StreamUpdates, original.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent}))
		expect[syncproto.Applied](original, syncproto.StreamUpdates)
		alive := original.answerProbes()
		w := h.mustDial(t, node1)
		w.sendMessage(syncproto.StreamControl, w.putBackHello(2, "agent-1", 0))
		w.expectRefused(fleet.CodeFork)
		alive()
	})
}

// An operator readmits an edge whose journal is behind the applied rows, or has overtaken them. This holds for one
// session.
func TestReadmittedEdgeGoesOn(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]fleet.Seq{"behind": 1, "overtaken": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, applied := hubWithAppliedRows(t, 2)
			try := func(session uint64, code fleet.Code) {
				t.Helper()
				w := h.mustDial(t, node1)
				if last == 1 {
					w.sendMessage(syncproto.StreamControl, w.putBackHello(session, "agent-2", 1))
				} else {
					w.chain = []byte("an older copy")
					rows := w.newUpdates(3, fleet.Transition{Kind: fleet.TransitionOperator})
					w.exchangeHello(w.putBackHello(session, "agent-2", 3))
					w.sendHeartbeat()
					w.sendMessage(syncproto.StreamUpdates, rows)
				}
				w.expectRefused(code)
			}
			try(2, fleet.CodeFork)
			h.mustApply(state.NodeReadmit{NodeID: node1, Now: time.Now().UnixNano()})
			try(3, fleet.CodePutBack)
			w := h.mustDial(t, node1)
			hello := w.putBackHello(4, "agent-2", last)
			hello.Lost = "an older copy"
			w.exchangeHello(hello)
			if ack := w.sendHeartbeat(); ack.Applied != 2 || string(ack.ChainHash) != string(applied) {
				t.Errorf("acknowledged with %+v, want row 2 and its hash", ack)
			}
			if h.mustNode(node1).Readmit {
				t.Error("it is still readmitted")
			}
			w.closeSilently()
			try(5, fleet.CodeFork)
		})
	}
}

// An edge that was refused as a clone may connect after an operator readmits it, but not while the other machine
// answers.
func TestReadmittedClone(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	original := h.mustDial(t, node1)
	original.openSession(1, "agent-1")
	try := func(session uint64) *testEdge {
		alive := original.answerProbes()
		w := h.mustDial(t, node1)
		w.sendMessage(syncproto.StreamControl, w.newHello(session, "agent-2"))
		w.expectRefused(fleet.CodeCloned)
		alive()
		return w
	}
	try(2)
	h.mustApply(state.NodeReadmit{NodeID: node1, Now: time.Now().UnixNano()})
	try(3)
	original.closeSilently()
	h.mustDial(t, node1).openSession(4, "agent-2")
}
