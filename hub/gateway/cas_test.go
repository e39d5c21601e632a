package gateway_test

import (
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// sendHeartbeatWith sends the next heartbeat with a node that says which CAs the edge has.
func (w *testEdge) sendHeartbeatWith(cas string) syncproto.HeartbeatAck {
	w.tb.Helper()
	w.beats++
	node := describe(w.node)
	node.Attributes = map[string]string{fleet.AttributeCAs: cas}
	w.sendMessage(syncproto.StreamControl, syncproto.Heartbeat{Number: w.beats, Node: node, Hash: []byte("h1")})
	return expect[syncproto.HeartbeatAck](w, syncproto.StreamControl)
}

// An edge is told of the cluster's CAs in the first answer of a session, unless it says that it has them and its
// certificate is of the one that signs; and again when they change.
func TestEdgesAreToldOfCAs(t *testing.T) {
	t.Parallel()
	two := &state.AcceptedCAs{Certs: [][]byte{{2}, {1}}, Held: "one,two", Signer: []byte("another")}
	settled := &state.AcceptedCAs{Certs: [][]byte{{2}}, Held: "two"}
	for name, try := range map[string]struct {
		now   *state.AcceptedCAs
		holds string
		told  bool
	}{
		"the CA was never replaced":            {holds: "one"},
		"it knows one of two":                  {now: two, holds: "one", told: true},
		"it is of an older release":            {now: two, told: true},
		"it has both, and an old certificate":  {now: two, holds: "one,two", told: true},
		"it has what it needs":                 {now: settled, holds: "two"},
		"it has one more than it needs":        {now: settled, holds: "one,two", told: true},
		"its own node says nothing of the CAs": {now: settled, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, options{})
			h.cas.Store(try.now)
			if try.now == settled { // of the CA of this hub
				same := *settled
				same.Signer = h.mustIssue(fleet.RoleEdge, string(node1)).Cert.AuthorityKeyId
				h.cas.Store(&same)
			}
			w := h.mustDial(t, node1)
			w.exchangeHello(w.newHello(1, "agent-1"))
			ack := w.sendHeartbeatWith(try.holds)
			if got := len(ack.CAs) > 0; got != try.told {
				t.Fatalf("told %v", ack.CAs)
			}
			if again := w.sendHeartbeatWith(try.holds); len(again.CAs) > 0 { // the edge is storing them
				t.Fatalf("told twice: %v", again.CAs)
			}
			next := &state.AcceptedCAs{Certs: [][]byte{{3}, {2}}, Held: "three,two"}
			h.cas.Store(next)
			if changed := w.sendHeartbeatWith(try.holds); !slices.EqualFunc(changed.CAs, next.Certs, slices.Equal) {
				t.Fatalf("a change: told %v", changed.CAs)
			}
		})
	}
}
