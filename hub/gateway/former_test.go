package gateway_test

import (
	"errors"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/gateway"
	"skerry/hub/state"
	"skerry/syncproto"
)

// hubWithFormerSession is a hub where hub-2 has node1's session of agent-1, and ask answers for hub-2
// and the leader.
func hubWithFormerSession(t *testing.T, ask func() (gateway.Former, error)) *hub {
	t.Helper()
	h := newHub(t, options{probe: func(hub fleet.HubID, node fleet.NodeID) (gateway.Former, error) {
		if hub != "hub-2" || node != node1 {
			t.Errorf("asked for node %s at %s, want %s at hub-2", node, hub, node1)
		}
		return ask()
	}})
	h.mustApply(state.SessionOpen{
		NodeID: node1, Session: 1, Instance: "agent-1", BootID: "boot-1", Hub: "hub-2", Node: describe(node1), Now: time.Now().UnixNano(),
	})
	return h
}

func formerAnswers(list ...gateway.Former) func() (gateway.Former, error) {
	return func() (gateway.Former, error) {
		f := list[0]
		list = list[min(1, len(list)-1):]
		return f, nil
	}
}

func TestCloneOfAnEdgeOnAnotherHub(t *testing.T) {
	t.Parallel()
	h := hubWithFormerSession(t, formerAnswers(gateway.Former{Answered: true, Alive: true}, gateway.Former{Answered: true}))
	clone := h.mustDial(t, node1)
	clone.sendMessage(syncproto.StreamControl, clone.newHello(2, "agent-2"))
	clone.expectRefused(fleet.CodeCloned)
	h.mustDial(t, node1).openSession(3, "agent-3")
	if n := h.mustNode(node1); n.Instance != "agent-3" {
		t.Errorf("the session is of %s: the first one's is over", n.Instance)
	}
}

// A hub that is cut off may have the living edge: its silence lets nobody else in before
// it must have ended its sessions itself.
func TestNewcomerWaitsForTheFormerHub(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		silence time.Duration
		status  fleet.NodeStatus
	}{
		"which was heard of just now":        {0, fleet.NodeReady},
		"silent for a moment less":           {gateway.FormerWait - time.Second, fleet.NodeReady},
		"and its node missed its deadline":   {gateway.SessionLease, fleet.NodeDown},
		"and its lease is over, by a moment": {gateway.SessionLease + time.Second, fleet.NodeReady},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hubWithFormerSession(t, formerAnswers(gateway.Former{Silence: c.silence}))
			if c.status == fleet.NodeDown {
				h.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node1, Epoch: 1, Reason: "missed"}}, Now: time.Now().UnixNano()})
			}
			for session := range uint64(2) {
				newcomer := h.mustDial(t, node1)
				newcomer.sendMessage(syncproto.StreamControl, newcomer.newHello(2+session, "agent-2"))
				r := newcomer.expectRefused(fleet.CodeFormerSession)
				if r.Hint == "" || r.RetryAfter <= 0 || r.RetryAfter > gateway.FormerWait-c.silence {
					t.Errorf("refused with %+v, want a hint and when to come back", r)
				}
			}
			n := h.mustNode(node1)
			if n.Instance != "agent-1" || n.Epoch != 1 || len(n.Fenced) > 0 {
				t.Errorf("node %+v, want the first one's session and nobody fenced", n)
			}
			if n.Newcomer == nil || n.Newcomer.Instance != "agent-2" || n.Newcomer.Code != fleet.CodeFormerSession {
				t.Errorf("newcomer %+v, want agent-2 shown as waiting", n.Newcomer)
			}
			if got := h.EntryCount(state.KindOf(state.Fence{})); got != 1 {
				t.Errorf("%d entries tell of the newcomer, want 1 of all its tries", got)
			}
			h.mustDial(t, node1).openSession(9, "agent-1") // the same process: nobody is asked
			if n := h.mustNode(node1); n.Epoch != 2 || n.Newcomer != nil {
				t.Errorf("node %+v, want the first process's new session and no newcomer", n)
			}
		})
	}
}

func TestFormerHubIsSilentForLong(t *testing.T) {
	t.Parallel()
	h := hubWithFormerSession(t, formerAnswers(gateway.Former{Silence: gateway.SessionLease}, gateway.Former{Silence: gateway.FormerWait}))
	newcomer := h.mustDial(t, node1)
	newcomer.sendMessage(syncproto.StreamControl, newcomer.newHello(2, "agent-2"))
	newcomer.expectRefused(fleet.CodeFormerSession)
	h.mustDial(t, node1).openSession(3, "agent-2")
	if n := h.mustNode(node1); n.Instance != "agent-2" || n.Newcomer != nil {
		t.Errorf("node %+v, want the newcomer's session: a dead hub keeps nobody out", n)
	}
}

// Neither the former hub nor the leader answers at first: the hub that asks is cut off
// itself, or there is an election.
func TestFormerHubIsAskedAgain(t *testing.T) {
	t.Parallel()
	unreachable := true
	h := hubWithFormerSession(t, func() (gateway.Former, error) {
		if unreachable {
			unreachable = false
			return gateway.Former{}, errors.New("no way there")
		}
		return gateway.Former{Answered: true, Alive: true}, nil
	})
	clone := h.mustDial(t, node1)
	clone.exchangeHello(clone.newHello(2, "agent-2"))
	clone.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node1), Hash: []byte("h1")})
	clone.expectRefused(fleet.CodeCloned)
	if n := h.mustNode(node1); n.Instance != "agent-1" || len(n.Fenced) != 1 {
		t.Errorf("node %+v, want the first machine's session and the clone fenced", n)
	}
}

// The hub holds a newcomer, and admits it if the former hub answers within an election's time.
func TestNewcomerIsHeldUntilTheFormerHubAnswers(t *testing.T) {
	t.Parallel()
	tries := 0
	h := hubWithFormerSession(t, func() (gateway.Former, error) {
		if tries++; tries < 4 {
			return gateway.Former{}, errors.New("no way there")
		}
		return gateway.Former{Answered: true}, nil
	})
	h.mustDial(t, node1).openSession(2, "agent-2")
	if n := h.mustNode(node1); n.Instance != "agent-2" {
		t.Errorf("the session is of %s, want it to be the newcomer's", n.Instance)
	}
}

// The hub refuses a newcomer if it cannot reach the former hub for long.
func TestNobodyToAskOfTheFormerSession(t *testing.T) {
	t.Parallel()
	h := hubWithFormerSession(t, func() (gateway.Former, error) { return gateway.Former{}, errors.New("no way there") })
	newcomer := h.mustDial(t, node1)
	newcomer.exchangeHello(newcomer.newHello(2, "agent-2"))
	newcomer.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node1), Hash: []byte("h1")})
	newcomer.expectRefused(fleet.CodeFormerSession)
	if n := h.mustNode(node1); n.Instance != "agent-1" {
		t.Errorf("the session is of %s, want it to stay the first one's", n.Instance)
	}
}

// The answer about one session does not count for the next session.
func TestFormerSessionChangesMeanwhile(t *testing.T) {
	t.Parallel()
	var h *hub
	asked := 0
	h = newHub(t, options{probe: func(hub fleet.HubID, _ fleet.NodeID) (gateway.Former, error) {
		if asked++; asked > 1 {
			return gateway.Former{Answered: true, Alive: hub == "hub-3"}, nil
		}
		h.mustApply(state.SessionOpen{NodeID: node1, Session: 2, Instance: "agent-2", BootID: "boot-1", Hub: "hub-3", Now: time.Now().UnixNano()})
		return gateway.Former{Answered: true}, nil
	}})
	h.mustApply(state.SessionOpen{
		NodeID: node1, Session: 1, Instance: "agent-1", BootID: "boot-1", Hub: "hub-2", Node: describe(node1), Now: time.Now().UnixNano(),
	})
	clone := h.mustDial(t, node1)
	clone.exchangeHello(clone.newHello(3, "agent-3"))
	clone.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: 1, Node: describe(node1), Hash: []byte("h1")})
	clone.expectRefused(fleet.CodeCloned)
	if n := h.mustNode(node1); n.Instance != "agent-2" || n.Epoch != 2 {
		t.Errorf("node has a session of %s, epoch %d; want agent-2's of epoch 2", n.Instance, n.Epoch)
	}
}

// TestSessionThatItsLeaderEnded opens a session of a restarted agent: the hub that had the former
// one led, decided that its deadline had passed, and then died. Nobody has to be asked.
func TestSessionThatItsLeaderEnded(t *testing.T) {
	t.Parallel()
	h := hubWithFormerSession(t, func() (gateway.Former, error) { return gateway.Former{}, errors.New("no way there") })
	h.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node1, Epoch: h.mustNode(node1).Epoch, SessionOver: true}}, Now: time.Now().UnixNano()})
	h.mustDial(t, node1).openSession(2, "agent-2")
	if n := h.mustNode(node1); n.Instance != "agent-2" || n.SessionOver {
		t.Errorf("node %+v, want the session of agent-2", n)
	}
}
