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

// The pool and site of a join token hold, whatever its edges say of themselves, and through renewals, purges and
// snapshots.
func TestJoinTokenPlacesItsEdges(t *testing.T) {
	w := clustered(newTestHarness(t))
	w.mustApply(state.Token{Token: state.JoinToken{ID: "pinned", Hash: []byte{1}, Roles: []string{"edge"}, NodePool: "tills", Site: "shop-17"}})
	w.mustApply(state.Token{Token: state.JoinToken{ID: "free", Hash: []byte{2}, Roles: []string{"edge"}}})
	pinned := fleet.NodeID(fleet.DeriveUUID("node", "a"))
	w.mustApply(certificateBy("pinned", "k1", pinned))
	w.addReadyNode("a")
	free := fleet.NodeID(fleet.DeriveUUID("node", "b"))
	w.mustApply(certificateBy("free", "k2", free))
	w.addReadyNode("b")
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
		w.mustApply(change)
		w.mustApply(state.NodeRegister{Node: description(pinned, "a"), Now: w.nowNanos()})
		want(pinned, "tills", "shop-17")
	}
	reopened := state.New()
	if err := reopened.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if a, b := describe(t, w.store.View()), describe(t, reopened.View()); a != b {
		t.Fatalf("a snapshot lost something:\n%s", diff(a, b))
	}
	w.missHeartbeats(pinned)
	w.mustApply(state.NodePurge{NodeID: pinned, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.mustApply(state.NodeRegister{Node: description(pinned, "a"), Now: w.nowNanos()})
	want(pinned, "tills", "shop-17")

	w.mustApply(state.Token{Token: state.JoinToken{ID: "moved", Hash: []byte{1}, Roles: []string{"edge"}, Site: "shop-18"}})
	w.mustApply(certificateBy("moved", "k1", pinned))
	want(pinned, "tills", "shop-18")
}

// A token admits as many machines as it says. One that asks again with the same key,
// since the answer was lost, is one machine.
func TestJoinTokenIsUsedUp(t *testing.T) {
	w := clustered(newTestHarness(t))
	w.mustApply(state.Token{Token: state.JoinToken{ID: "two", Hash: []byte{1}, Roles: []string{"edge"}, MaxUses: 2}})
	a, b, c := fleet.NodeID(fleet.DeriveUUID("n", "a")), fleet.NodeID(fleet.DeriveUUID("n", "b")), fleet.NodeID(fleet.DeriveUUID("n", "c"))
	for range 3 {
		w.mustApply(certificateBy("two", "k1", a))
	}
	w.mustApply(certificateBy("two", "k2", b))
	w.mustRefuse(fleet.CodeTokenExpiry, certificateBy("two", "k3", c))
	w.mustRefuse(fleet.CodeTokenExpiry, certificateBy("two", "k3", a)) // another machine that says it is the same node
	w.mustApply(certificateBy("two", "k1", a))
	if token, _ := w.store.View().Token("two"); token.Uses != 2 {
		t.Fatalf("used %d times", token.Uses)
	}
	if n := len(w.store.View().AdmittedBy("two")); n != 2 {
		t.Fatalf("it admitted %d", n)
	}
	w.mustApply(state.Token{Token: state.JoinToken{ID: "two"}}) // revoked while a machine asks
	w.mustRefuse(fleet.CodeTokenBad, certificateBy("two", "k1", a))
}

// A token with a list of keys admits the machines of the list, each once for each node, and nobody else.
func TestJoinTokenOfListedKeys(t *testing.T) {
	w := clustered(newTestHarness(t))
	hash := func(n byte) string { return string(bytes.Repeat([]byte{n}, 32)) }
	w.mustApply(state.Token{Token: state.JoinToken{ID: "batch", Hash: []byte{1}, Roles: []string{"edge"}, AllowKeys: []byte(hash(3) + hash(5) + hash(9))}})
	for n := byte(1); n <= 10; n++ {
		c := certificateBy("batch", hash(n), fleet.NodeID(fleet.DeriveUUID("n", string(n))))
		if n == 3 || n == 5 || n == 9 {
			w.mustApply(c)
		} else {
			w.mustRefuse(fleet.CodeForbidden, c)
		}
	}
	for name, key := range map[string]string{"no key": "", "half a key": hash(3)[:16], "two keys": hash(3) + hash(5)} {
		if w.mustRefuse(fleet.CodeForbidden, certificateBy("batch", key, fleet.NodeID(fleet.DeriveUUID("n", name)))); t.Failed() {
			t.Fatal(name)
		}
	}
	if token, _ := w.store.View().Token("batch"); token.Uses != 3 {
		t.Fatalf("used %d times", token.Uses)
	}
}
