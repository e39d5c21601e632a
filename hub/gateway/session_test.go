package gateway_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// A session from its Hello to an allocation that runs.
func TestSession(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	welcome := w.exchangeHello(w.newHello(1, "agent-1"))
	if welcome.Epoch != 1 || welcome.Applied != 0 || welcome.TTL != time.Minute || welcome.Hub != "hub-1" || welcome.Term != 7 || welcome.Cluster == "" {
		t.Errorf("welcome %+v", welcome)
	}
	if _, known := h.View().Node(node1); known {
		t.Error("the node is in the state before its first heartbeat")
	}
	ack := w.sendHeartbeat()
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
	w.sendMessage(syncproto.StreamDesired, syncproto.Received{Index: d.Index})
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, running(alloc1)))
	if a := expect[syncproto.Applied](w, syncproto.StreamUpdates); a.Last != 1 {
		t.Errorf("applied %+v, want row 1", a)
	}
	if a, _ := h.View().Alloc(alloc1); a.ClientStatus != fleet.ClientRunning {
		t.Errorf("allocation is %s, want running", a.ClientStatus)
	}
	if rows := h.gateway.Stats().Updates; rows != 1 {
		t.Errorf("%d rows are counted, want 1", rows)
	}
	h.waitForState("the received index is in the state", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Received == d.Index
	})

	h.mustStop(alloc1, "not needed")
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); len(d.Stop) != 1 || d.Stop[0].ID != alloc1 || d.Stop[0].Reason != "not needed" || len(d.Run) > 0 {
		t.Errorf("desired %+v, want allocation 1 stopped", d)
	}
	before := h.EntryCount(state.KindOf(state.NodeRegister{}))
	w.beats++
	w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: w.beats, Uptime: time.Hour})
	if ack := expect[syncproto.HeartbeatAck](w, syncproto.StreamControl); ack.Number != 2 || ack.Status != fleet.NodeReady || len(ack.Hubs) > 0 {
		t.Errorf("second acknowledgement %+v", ack)
	}
	if h.EntryCount(state.KindOf(state.NodeRegister{})) != before || h.EntryCount(state.KindOf(state.SessionOpen{})) != 1 {
		t.Error("a heartbeat became an entry of the log")
	}
}

// A hub that has just started may be behind the log for a while: it opens no session before it
// has applied the session's own entry.
func TestAHubThatLagsOpensNoSession(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{lags: true})
	h.mustDescribe(node1)
	h.setBehind(true)
	h.mustApply(state.NodeEligibility{NodeID: node1, Eligibility: fleet.NodeIneligible, Now: time.Now().UnixNano()})
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	w.exchangeHello(w.newHello(1, "agent-1"))
	w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Uptime: time.Hour, Node: describe(node1), Hash: []byte("h1")})
	h.waitForState("the session is committed", func(v *state.View) bool {
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

// TestAHubThatLagsKeepsADescription opens a session on a hub that has not applied the node's
// registration yet: the description that the cluster has stays.
func TestAHubThatLagsKeepsADescription(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{lags: true})
	h.setBehind(true)
	h.mustDescribe(node1)
	before := h.mustNode(node1)
	w := h.mustDial(t, node1)
	w.exchangeHello(w.newHello(1, "agent-1"))
	w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Uptime: time.Hour, Hash: []byte("h1")})
	h.waitForState("the session is committed", func(v *state.View) bool {
		n, _ := v.Node(node1)
		return n.Epoch == 1
	})
	if n := h.mustNode(node1); n.Name != before.Name || n.Resources != before.Resources {
		t.Errorf("node %s with %+v, want %s with %+v", n.Name, n.Resources, before.Name, before.Resources)
	}
	h.setBehind(false)
	expect[syncproto.HeartbeatAck](w, syncproto.StreamControl)
}

// A node that the cluster has no description of is asked for it.
func TestUnknownNodeMustDescribeItself(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.exchangeHello(w.newHello(1, "agent-1"))
	w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1})
	if ack := expect[syncproto.HeartbeatAck](w, syncproto.StreamControl); !ack.NeedNode {
		t.Errorf("acknowledgement %+v, want NeedNode", ack)
	}
	w.beats = 1
	if ack := w.sendHeartbeat(); ack.NeedNode {
		t.Errorf("acknowledgement %+v after the description", ack)
	}
	if n := h.mustNode(node1); n.Name != "edge-11111111" || !n.Drivers["raw_exec"].Healthy {
		t.Errorf("node %+v, want it described", n)
	}
}

// TestNodeWithoutANameIsNamedByItsID opens a session of an edge that describes itself by its drivers only.
func TestNodeWithoutANameIsNamedByItsID(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.exchangeHello(w.newHello(1, "agent-1"))
	bare := &fleet.Node{Drivers: describe(node1).Drivers}
	w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: bare, Hash: []byte{0xab}})
	expect[syncproto.HeartbeatAck](w, syncproto.StreamControl)
	n := h.mustNode(node1)
	if n.ID != node1 || n.Name != "11111111" || n.NodePool != fleet.DefaultPool || n.DescriptionHash != "ab" {
		t.Errorf("node %s has the name %q, the pool %q and the hash %q, want 11111111, %s and ab", n.ID, n.Name, n.NodePool, n.DescriptionHash, fleet.DefaultPool)
	}
}

// A node that was away becomes ready only with its history in.
func TestReadyComesAfterHistory(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustDescribe(node1)
	h.mustPlace(node1, alloc1)
	w := h.mustDial(t, node1)
	first := w.newUpdates(1, running(alloc1))
	second := w.newUpdates(2, fleet.Transition{Kind: fleet.TransitionDisconnect}, fleet.Transition{Kind: fleet.TransitionReconnect})
	hello := w.newHello(1, "agent-1")
	hello.Last, hello.ChainHash = 3, w.chain
	w.exchangeHello(hello)
	if ack := w.sendHeartbeat(); ack.Status != fleet.NodeInitializing || ack.Applied != 0 {
		t.Errorf("acknowledgement %+v, want initializing", ack)
	}
	w.sendMessage(syncproto.StreamUpdates, first)
	w.sendMessage(syncproto.StreamUpdates, second)
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
	rows := w.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent})
	hello := w.newHello(1, "agent-1")
	hello.Last, hello.ChainHash = 1, w.chain
	w.exchangeHello(hello)
	w.sendHeartbeat()
	expect[syncproto.Desired](w, syncproto.StreamDesired)
	stop := w.keepBeating(200 * time.Millisecond)
	defer stop()
	r := w.expectResync()
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); !d.Full {
		t.Errorf("desired after the resync %+v, want all of it once more", d)
	}
	if r.Applied != 0 || r.Reason == "" {
		t.Errorf("resync %+v", r)
	}
	if n := h.mustNode(node1); n.StatusDescription != r.Reason || n.Status != fleet.NodeInitializing {
		t.Errorf("node is %s: %q, want initializing and the reason %q", n.Status, n.StatusDescription, r.Reason)
	}
	w.sendMessage(syncproto.StreamUpdates, rows)
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	if n := h.mustNode(node1); n.Status != fleet.NodeReady {
		t.Errorf("node is %s after the resync, want ready", n.Status)
	}
}

// A session counts as open until it ends.
func TestSessionThatEndsIsNotCounted(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	if n := h.gateway.Stats().Open; n != 1 {
		t.Errorf("%d sessions are open, want 1", n)
	}
	w.closeSilently()
	h.waitForState("no session is open", func(*state.View) bool { return h.gateway.Stats().Open == 0 })
}

// A node that missed its deadline comes back through a new session alone.
func TestSessionEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	ack, _ := w.openSession(1, "agent-1")
	h.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node1, Epoch: ack.Epoch, Reason: "missed"}}, Now: time.Now().UnixNano()})
	w.expectRefused(fleet.CodeNodeNotReady)
}
