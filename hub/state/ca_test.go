package state_test

import (
	"bytes"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

func caOf(number uint64) state.CA {
	n := byte(number)
	return state.CA{Number: number, Cert: []byte{n}, Forward: []byte{n, 1}, Reverse: []byte{n, 2}, Wrapped: []byte{n, 3}, WrappedBy: "k", Grace: 400 * 24 * time.Hour, CreatedAt: int64(number)}
}

// withHubs returns a harness of a cluster with three hubs.
func withHubs(w *storeHarness) *storeHarness {
	w.mustApply(state.ClusterInit{Cluster: state.Cluster{ID: "c", CACert: []byte{1}, CreatedAt: 1}})
	for _, id := range []fleet.HubID{"a", "b", "c"} {
		w.mustApply(state.Hub{Hub: state.HubAddr{ID: id, QUIC: string(id)}})
	}
	return w
}

func (w *storeHarness) mustRotate(number uint64, at int64) {
	w.mustApply(state.CAStore{CA: caOf(number)})
	for _, renewed := range []bool{false, true} {
		for _, id := range []fleet.HubID{"a", "b", "c"} {
			w.mustApply(state.CAHubStep{Number: number, Hub: id, Renewed: renewed, Now: at})
		}
	}
}

// accepted returns the numbers of the CAs whose hubs are accepted.
func accepted(w *storeHarness, now int64) (numbers []uint64) {
	for _, ca := range w.store.View().CAs().ForHubs(now) {
		numbers = append(numbers, ca.Number)
	}
	return numbers
}

// A new CA signs once every hub has stored it, and the one before is accepted of hubs until an hour after every hub has a
// certificate of the new one. Only then may another rotation begin.
func TestCARotationWaitsForEveryHub(t *testing.T) {
	w := withHubs(newTestHarness(t))
	want := func(when string, signing uint64, hubs ...uint64) {
		t.Helper()
		cas := w.store.View().CAs()
		got := accepted(w, 100)
		if cas[cas.Signing()].Number != signing || len(got) != len(hubs) {
			t.Fatalf("%s: CA %d signs, and hubs of %v are accepted", when, cas[cas.Signing()].Number, got)
		}
		for i := range hubs {
			if got[i] != hubs[i] {
				t.Fatalf("%s: hubs of %v are accepted, want %v", when, got, hubs)
			}
		}
	}
	want("before", 1, 1)
	w.mustRefuse(fleet.CodeConflict, state.CAStore{CA: caOf(3)})
	w.mustRefuse(fleet.CodeInvalid, state.CAStore{CA: state.CA{Number: 2, Cert: []byte{2}}})
	w.mustRefuse(fleet.CodeNotFound, state.CAHubStep{Number: 2, Hub: "a"})
	w.mustApply(state.CAStore{CA: caOf(2)})
	want("made", 1, 1, 2)
	w.mustRefuse(fleet.CodeConflict, state.CAStore{CA: caOf(3)})
	w.mustRefuse(fleet.CodeConflict, state.CAHubStep{Number: 2, Hub: "stranger"})
	w.mustApply(state.CAHubStep{Number: 2, Hub: "a", Now: 50})
	w.mustApply(state.CAHubStep{Number: 2, Hub: "b", Renewed: true, Now: 51}) // it cannot have a certificate yet
	want("two have it", 1, 1, 2)
	w.mustApply(state.CAHubStep{Number: 2, Hub: "c", Now: 52})
	want("all have it", 2, 2, 1)
	cas := w.store.View().CAs()
	if end := cas.GraceEnd(0); end != 52+int64(400*24*time.Hour) || cas.GraceEnd(1) != 0 || len(cas[1].Renewed) != 0 {
		t.Fatalf("the grace ends at %d; renewed %v", end, cas[1].Renewed)
	}
	w.mustApply(state.CAHubStep{Number: 2, Hub: "a", Renewed: true, Now: 60})
	w.mustApply(state.CAHubStep{Number: 2, Hub: "b", Renewed: true, Now: 61})
	w.mustRefuse(fleet.CodeConflict, state.CAStore{CA: caOf(3)})
	w.mustApply(state.Hub{Hub: state.HubAddr{ID: "c"}, Removed: true}) // it was gone for good
	w.mustApply(state.CAHubStep{Number: 2, Hub: "b", Renewed: true, Now: 70})
	want("settled", 2, 2, 1)
	if got := accepted(w, 70+int64(time.Hour)); len(got) != 1 || got[0] != 2 {
		t.Fatalf("an hour later hubs of %v are accepted", got)
	}
	w.mustApply(state.CAStore{CA: caOf(3)})
	want("the next", 2, 2, 3, 1)
}

// The CAs survive a snapshot, and its restore from a time before the rotation.
func TestCAsSurviveARestore(t *testing.T) {
	w := withHubs(newTestHarness(t))
	before := mustPersist(t, w.store)
	w.mustRotate(2, 50)
	w.mustApply(state.CAStore{CA: caOf(3)})
	w.mustApply(state.CAHubStep{Number: 3, Hub: "a", Now: 60})
	reopened := state.New()
	if err := reopened.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if a, b := describe(t, w.store.View()), describe(t, reopened.View()); a != b {
		t.Fatalf("a snapshot lost something:\n%s", diff(a, b))
	}
	w.restoreSnapshot(before)
	cas := w.store.View().CAs()
	if len(cas) != 3 || cas.Newest().Stored[0] != "a" || cas.Signing() != 1 {
		t.Fatalf("after the restore: %d CAs, %+v", len(cas), cas.Newest())
	}
}

// The oldest CA makes room for a new one only once its grace is over.
func TestOldestCAIsForgotten(t *testing.T) {
	w := withHubs(newTestHarness(t))
	for n := uint64(2); n <= state.MaxCAs; n++ {
		w.mustRotate(n, int64(n))
	}
	next := caOf(state.MaxCAs + 1)
	w.mustRefuse(fleet.CodeConflict, state.CAStore{CA: next})
	next.CreatedAt = 3 + int64(400*24*time.Hour)
	w.mustApply(state.CAStore{CA: next})
	cas := w.store.View().CAs()
	if len(cas) != state.MaxCAs-1 || cas[0].Number != 3 || cas.Newest().Number != state.MaxCAs+1 {
		t.Fatalf("%d CAs, from %d to %d", len(cas), cas[0].Number, cas.Newest().Number)
	}
	if cas.NumberFor([]byte{5}) != 5 || cas.NumberFor([]byte{1}) != 0 {
		t.Errorf("numbers %d and %d", cas.NumberFor([]byte{5}), cas.NumberFor([]byte{1}))
	}
}
