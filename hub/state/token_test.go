package state_test

import (
	"bytes"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

func certificateBy(token, key string, id fleet.NodeID) state.Certificate {
	return state.Certificate{Serial: key + token, Subject: "edge:" + string(id), Token: token, Key: []byte(key)}
}

// What a join token says of an edge holds, whatever the edge says of itself, and
// through renewals, purges and snapshots.
func TestJoinTokenPlacesItsEdges(t *testing.T) {
	w := clustered(newT(t))
	w.must(state.Token{Token: state.JoinToken{ID: "pinned", Hash: []byte{1}, Roles: []string{"edge"}, NodePool: "tills", Site: "shop-17"}})
	w.must(state.Token{Token: state.JoinToken{ID: "free", Hash: []byte{2}, Roles: []string{"edge"}}})
	pinned := fleet.NodeID(fleet.DeriveUUID("node", "a"))
	w.must(certificateBy("pinned", "k1", pinned))
	w.node("a")
	free := fleet.NodeID(fleet.DeriveUUID("node", "b"))
	w.must(certificateBy("free", "k2", free))
	w.node("b")
	want := func(id fleet.NodeID, pool, site string) {
		t.Helper()
		if n := w.getNode(id); n.NodePool != pool || n.AtSite() != site {
			t.Fatalf("node %s is in pool %q at site %q, want %q at %q", n.Name, n.NodePool, n.AtSite(), pool, site)
		}
	}
	want(pinned, "tills", "shop-17")
	want(free, "default", "dc1")
	if _, ok := w.store.View().Pool("tills"); !ok {
		t.Fatal("its pool was not made")
	}
	for _, change := range []state.Command{
		state.Certificate{Serial: "renewed", Subject: "edge:" + string(pinned), Replaces: "k1pinned"},
		certificateBy("free", "k1", pinned), // away for too long, and back by another token
		state.Token{Token: state.JoinToken{ID: "pinned"}},
	} {
		w.must(change)
		w.must(state.NodeRegister{Node: description(pinned, "a"), Now: w.nano()})
		want(pinned, "tills", "shop-17")
	}
	reopened := state.New()
	if err := reopened.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if a, b := describe(t, w.store.View()), describe(t, reopened.View()); a != b {
		t.Fatalf("a snapshot lost something:\n%s", diff(a, b))
	}
	w.miss(pinned)
	w.must(state.NodePurge{NodeID: pinned, EvalSeed: w.seed(), Now: w.nano()})
	w.must(state.NodeRegister{Node: description(pinned, "a"), Now: w.nano()})
	want(pinned, "tills", "shop-17")

	w.must(state.Token{Token: state.JoinToken{ID: "moved", Hash: []byte{1}, Roles: []string{"edge"}, Site: "shop-18"}})
	w.must(certificateBy("moved", "k1", pinned))
	want(pinned, "tills", "shop-18")
}

// A token admits as many machines as it says. One that asks again with the same key,
// since the answer was lost, is one machine.
func TestJoinTokenIsUsedUp(t *testing.T) {
	w := clustered(newT(t))
	w.must(state.Token{Token: state.JoinToken{ID: "two", Hash: []byte{1}, Roles: []string{"edge"}, MaxUses: 2}})
	a, b, c := fleet.NodeID(fleet.DeriveUUID("n", "a")), fleet.NodeID(fleet.DeriveUUID("n", "b")), fleet.NodeID(fleet.DeriveUUID("n", "c"))
	for range 3 {
		w.must(certificateBy("two", "k1", a))
	}
	w.must(certificateBy("two", "k2", b))
	w.refused(fleet.CodeTokenExpiry, certificateBy("two", "k3", c))
	w.refused(fleet.CodeTokenExpiry, certificateBy("two", "k3", a)) // another machine that says it is the same node
	w.must(certificateBy("two", "k1", a))
	if token, _ := w.store.View().Token("two"); token.Uses != 2 {
		t.Fatalf("used %d times", token.Uses)
	}
	if n := len(w.store.View().AdmittedBy("two")); n != 2 {
		t.Fatalf("it admitted %d", n)
	}
	w.must(state.Token{Token: state.JoinToken{ID: "two"}}) // revoked while a machine asks
	w.refused(fleet.CodeTokenBad, certificateBy("two", "k1", a))
}
