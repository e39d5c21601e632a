package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// A second machine with the identity of one that is connected (row 11).
func TestCloneOfALiveEdge(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	original := h.mustDial(t, node1)
	original.openSession(1, "agent-1")
	alive := original.answerProbes()
	clone := h.mustDial(t, node1)
	clone.sendMessage(syncproto.StreamControl, clone.newHello(2, "agent-2"))
	if r := clone.expectRefused(fleet.CodeCloned); r.Hint == "" || r.RetryAfter == 0 {
		t.Errorf("refused with %+v, want a hint and when to come back", r)
	}
	alive()
	original.closeSilently()
	again := h.mustDial(t, node1)
	again.sendMessage(syncproto.StreamControl, again.newHello(3, "agent-2"))
	again.expectRefused(fleet.CodeCloned) // the first one is away: still its place
	original = h.mustDial(t, node1)
	original.openSession(4, "agent-1")
	n := h.mustNode(node1)
	if len(n.Fenced) != 1 || n.Fenced[0].Code != fleet.CodeCloned || n.Fenced[0].Instance != "agent-2" {
		t.Errorf("fenced %+v, want the clone", n.Fenced)
	}
	if n.Instance != "agent-1" || n.Status != fleet.NodeReady {
		t.Errorf("node is %s with %s, want the first one to go on", n.Status, n.Instance)
	}
	original.sendMessage(syncproto.StreamUpdates, original.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent}))
	expect[syncproto.Applied](original, syncproto.StreamUpdates)
}

func TestRestartedEdgeIsNoClone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *testEdge){
		"killed":       func(w *testEdge) { w.closeSilently() },
		"still silent": func(*testEdge) {},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, options{})
			before := h.mustDial(t, node1)
			before.openSession(1, "agent-1")
			end(before)
			after := h.mustDial(t, node1)
			after.openSession(2, "agent-2")
			if n := h.mustNode(node1); n.Instance != "agent-2" || len(n.Fenced) > 0 || n.Epoch != 2 {
				t.Errorf("node %+v, want the second start's session", n)
			}
		})
	}
}

// Two sessions of one edge that are committed one after the other: the newer one
// stays, also where the older one hears of its own later.
func TestNewerSessionStays(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	committed, release := make(chan struct{}), make(chan struct{})
	h.setAttempted(func(c state.Command) {
		if open, ok := c.(state.SessionOpen); ok && open.Session == 1 {
			close(committed)
			<-release
		}
	})
	ghost := h.mustDial(t, node1)
	ghost.exchangeHello(ghost.newHello(1, "agent-1"))
	ghost.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node1), Hash: []byte("h1")})
	<-committed
	newer := h.mustDial(t, node1)
	if ack, _ := newer.openSession(2, "agent-1"); ack.Epoch != 2 {
		t.Fatalf("the newer session has epoch %d, want 2", ack.Epoch)
	}
	close(release)
	ghost.expectRefused(fleet.CodeStaleEpoch)
	newer.sendMessage(syncproto.StreamUpdates, newer.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent}))
	expect[syncproto.Applied](newer, syncproto.StreamUpdates)
	newer.sendHeartbeat()
	alive := newer.answerProbes()
	if !h.gateway.Probe(t.Context(), node1) {
		t.Error("the newer session is not the node's own")
	}
	alive()
}

// The journal of an edge does not continue the rows that the cluster has applied.
func TestForkedJournal(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent}, fleet.Transition{Kind: fleet.TransitionOperator}))
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	applied := slices.Clone(w.chain)

	t.Run("noticed at its Hello", func(t *testing.T) {
		for _, last := range []fleet.Seq{0, 1, 2} { // empty; behind; as long, but another one
			clone := h.mustDial(t, node1)
			hello := clone.newHello(2+uint64(last), "agent-9")
			hello.Last, hello.ChainHash = last, []byte("another chain")
			clone.sendMessage(syncproto.StreamControl, hello)
			if r := clone.expectRefused(fleet.CodeFork); r.Applied != 2 {
				t.Errorf("refused with %+v, want to hear that row 2 is applied", r)
			}
		}
	})
	t.Run("noticed by its rows", func(t *testing.T) {
		clone := h.mustDial(t, node1)
		clone.chain = []byte("another chain")
		rows := clone.newUpdates(3, fleet.Transition{Kind: fleet.TransitionOperator, Message: "elsewhere"})
		hello := clone.newHello(9, "agent-2")
		hello.Last, hello.ChainHash = 3, clone.chain
		clone.exchangeHello(hello)
		clone.sendHeartbeat()
		clone.sendMessage(syncproto.StreamUpdates, rows)
		clone.expectRefused(fleet.CodeFork)
		n := h.mustNode(node1)
		if n.Applied != 2 || !slices.Equal(n.ChainHash, applied) {
			t.Errorf("applied up to %d, chain %x; want 2 and %x", n.Applied, n.ChainHash, applied)
		}
		kept := h.View().Fenced(node1)
		if len(kept) == 0 || len(kept[len(kept)-1].Rows) != 1 {
			t.Errorf("kept %+v, want the forked row", kept)
		}
	})
}

// answerProbes answers what comes on the control stream until the returned
// function is called, which waits for one answered probe.
func (w *testEdge) answerProbes() (wait func()) {
	probed := make(chan error, 1)
	go func() {
		m, err := w.readMessage(syncproto.StreamControl, patience)
		if err == nil {
			p, ok := m.(syncproto.Probe)
			if !ok {
				err = fmt.Errorf("expected a probe, got %s", m.FrameType())
			} else {
				err = syncproto.NewWriter(w.streams[syncproto.StreamControl]).Write(syncproto.ProbeAck(p))
			}
		}
		probed <- err
	}()
	return func() {
		w.tb.Helper()
		if err := <-probed; err != nil {
			w.tb.Fatal(err)
		}
	}
}

// The session of a node that is revoked ends at once, and no other one is opened.
func TestSessionOfARevokedNodeEnds(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	h.mustApply(state.NodeRevoke{NodeID: node1, Reason: "stolen", EvalSeed: "s", Now: time.Now().UnixNano()})
	if r := w.expectRefused(fleet.CodeRevoked); !strings.Contains(r.Message, "stolen") || r.Hint == "" {
		t.Errorf("told %+v", r)
	}
	again := h.mustDial(t, node1)
	again.exchangeHello(again.newHello(2, "agent-1"))
	again.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1})
	again.expectRefused(fleet.CodeRevoked)
}
