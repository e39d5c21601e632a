package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/gateway"
	"skerry/hub/state"
	"skerry/syncproto"
)

// B5: an edge describes itself differently at every beat, and the hub answers each. Few of the descriptions become
// entries of the log, the newest one among them.
func TestDescriptionsAreCommittedAtARate(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	h.gateway.SetAllowance(node1, 1, 1, 1)
	before := h.EntryCount(state.KindOf(state.NodeRegister{}))
	const beats = 200
	for i := range beats {
		n := describe(node1)
		n.Meta, n.DescriptionHash = map[string]string{"n": fmt.Sprint(i)}, fmt.Sprint("n", i)
		w.beats++
		w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: w.beats, Node: n, Hash: []byte(n.DescriptionHash)})
		if ack := expect[syncproto.HeartbeatAck](w, syncproto.StreamControl); ack.NeedNode || ack.Number != w.beats {
			t.Fatalf("acknowledgement %+v of beat %d", ack, w.beats)
		}
	}
	h.waitForState("the newest description is in the state", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Meta["n"] == fmt.Sprint(beats-1)
	})
	if n := h.EntryCount(state.KindOf(state.NodeRegister{})) - before; n > beats/4 {
		t.Errorf("%d entries for %d descriptions", n, beats)
	}
}

// An edge describes its own node, whatever id its description names.
func TestNobodyDescribesAnother(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	n := describe(node2)
	n.Meta = map[string]string{"said": "by node1"}
	w.beats++
	w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: w.beats, Node: n, Hash: []byte("h2")})
	expect[syncproto.HeartbeatAck](w, syncproto.StreamControl)
	h.waitForState("the description is its own node's", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Meta["said"] == "by node1"
	})
	if _, ok := h.View().Node(node2); ok {
		t.Error("it made a node of another id")
	}
}

// B5: a hub reads all rows of an edge that sends faster than it may, but later.
func TestRowsAreReadAtARate(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	row := fleet.Transition{Kind: fleet.TransitionOperator, Message: strings.Repeat("m", 4000)}
	first, second := w.newUpdates(1, row, row), w.newUpdates(3, row)
	h.gateway.SetAllowance(node1, 20_000, 1, 1)
	start := time.Now()
	w.sendMessage(syncproto.StreamUpdates, first)
	w.sendMessage(syncproto.StreamUpdates, second)
	for _, want := range []fleet.Seq{2, 3} {
		if a := expect[syncproto.Applied](w, syncproto.StreamUpdates); a.Last != want {
			t.Errorf("applied %+v, want row %d", a, want)
		}
	}
	if took := time.Since(start); took < 550*time.Millisecond {
		t.Errorf("12,000 bytes were read within %s, at 20,000 a second", took)
	}
}

// B5: an edge that opens one session after the other waits for each.
func TestSessionsAreCommittedAtARate(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDial(t, node1).openSession(1, "agent-1")
	h.gateway.SetAllowance(node1, 1, 2, 1)
	start := time.Now()
	h.mustDial(t, node1).openSession(2, "agent-1")
	h.mustDial(t, node2).openSession(1, "agent-2") // another one does not
	if took := time.Since(start); took < 450*time.Millisecond || h.EntryCount(state.KindOf(state.SessionOpen{})) != 3 {
		t.Errorf("%d sessions after %s, want 3 after half a second", h.EntryCount(state.KindOf(state.SessionOpen{})), took)
	}
}

// A hub remembers the allowances of a bounded number of edges.
func TestAllowancesAreForgotten(t *testing.T) {
	t.Parallel()
	var nodes []fleet.NodeID
	for i := range 10_000 {
		nodes = append(nodes, fleet.NodeID(fmt.Sprintf("33333333-0000-4000-8000-%012d", i)))
	}
	if n := gateway.Allowances(nodes); n > 2048 {
		t.Errorf("%d allowances are remembered of edges that said nothing", n)
	}
}
