package state_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

func rootKey(id string) state.RootKey {
	return state.RootKey{
		RootKey: fleet.RootKey{KeyID: id, Algorithm: fleet.AlgorithmAES256GCM, CreateTime: 160}, Wrapped: []byte{1, 2}, WrappedBy: "s",
	}
}

// sealedWith is what a hub might have encrypted with a key: the state does not look into it.
func sealedWith(key string) state.SealedItems {
	return state.SealedItems{KeyID: key, Nonce: bytes.Repeat([]byte{7}, 12), Data: []byte{8, 9}}
}

func lockOf(id string) fleet.VariableLock {
	return fleet.VariableLock{ID: id, TTL: time.Minute, LockDelay: 15 * time.Second}
}

func (w *storeHarness) storeVariable(path, key string) {
	w.Helper()
	w.mustApply(state.VariableStore{Namespace: fleet.DefaultNamespace, Path: path, Sealed: sealedWith(key), Now: w.nowNanos()})
}

func (w *storeHarness) variable(path string) *state.Variable {
	w.Helper()
	v, ok := w.store.View().Variable(fleet.DefaultNamespace, path)
	if !ok {
		w.Fatalf("there is no variable %s", path)
	}
	return v
}

// wantRefused applies a command that must be refused with a code and a text.
func (w *storeHarness) wantRefused(c state.Command, code fleet.Code, text string) {
	w.Helper()
	if res := w.applyAndCheck(c); res.Err == nil || res.Err.Code != code || !strings.Contains(res.Err.Error(), text) {
		w.Fatalf("%T: %v, want %s and %q", c, res.Err, code, text)
	}
}

func TestVariableCheckAndSet(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	set := func(index fleet.Index) state.VariableStore {
		return state.VariableStore{Namespace: "default", Path: "app/db", Sealed: sealedWith("k1"), Check: true, CheckIndex: index, Now: w.nowNanos()}
	}
	w.wantRefused(set(7), fleet.CodeConflict, "does not exist")
	w.mustApply(set(0))
	made := w.variable("app/db")
	w.wantRefused(set(0), fleet.CodeConflict, "its index is")
	w.wantRefused(set(made.ModifyIndex+1), fleet.CodeConflict, "its index is")
	w.mustApply(set(made.ModifyIndex))
	if now := w.variable("app/db"); now.CreateIndex != made.CreateIndex || now.CreateTime != made.CreateTime || now.ModifyIndex <= made.ModifyIndex {
		t.Fatalf("%+v after %+v", now, made)
	}
	w.wantRefused(state.VariableStore{Namespace: "none", Path: "x", Sealed: sealedWith("k1")}, fleet.CodeInvalid, "no namespace")
	w.wantRefused(state.VariableStore{Namespace: "default", Path: "nomad", Sealed: sealedWith("k1")}, fleet.CodeInvalid, "reserved")
	w.wantRefused(state.VariableStore{Namespace: "default", Path: "x", Sealed: sealedWith("k2")}, fleet.CodeUnavailable, "root key k2")
	w.wantRefused(state.VariableDelete{Namespace: "default", Path: "app/db", Check: true, CheckIndex: made.ModifyIndex}, fleet.CodeConflict, "its index is")
	w.mustApply(state.VariableDelete{Namespace: "default", Path: "app/db", Check: true, CheckIndex: w.variable("app/db").ModifyIndex})
	w.mustApply(state.VariableDelete{Namespace: "default", Path: "app/db"})
	if _, ok := w.store.View().Variable("default", "app/db"); ok {
		t.Fatal("a deleted variable is there")
	}
}

func TestVariableLock(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	w.storeVariable("app/lock", "k1")
	acquire := func(id string) state.VariableLock {
		return state.VariableLock{Namespace: "default", Path: "app/lock", Lock: lockOf(id), Sealed: sealedWith("k1"), KeepItems: true, Now: w.nowNanos()}
	}
	unlock := func(id string, expired bool) state.VariableUnlock {
		return state.VariableUnlock{Namespace: "default", Path: "app/lock", LockID: id, Expired: expired, Now: w.nowNanos()}
	}
	store := func(id string) state.VariableStore {
		return state.VariableStore{Namespace: "default", Path: "app/lock", Sealed: sealedWith("k1"), LockID: id, Now: w.nowNanos()}
	}
	w.mustApply(acquire("one"))
	held := w.variable("app/lock").ModifyIndex
	w.mustApply(acquire("one")) // repeated: the answer was lost
	if now := w.variable("app/lock"); now.ModifyIndex != held {
		t.Fatalf("acquired twice: %+v", now)
	}
	w.wantRefused(acquire("two"), fleet.CodeConflict, "is locked")
	w.wantRefused(store(""), fleet.CodeConflict, "is locked")
	w.wantRefused(store("two"), fleet.CodeConflict, "does not have the lock two")
	w.wantRefused(state.VariableDelete{Namespace: "default", Path: "app/lock"}, fleet.CodeConflict, "is locked")
	w.wantRefused(unlock("two", false), fleet.CodeConflict, "does not have the lock two")
	w.mustApply(store("one"))
	if lock := w.variable("app/lock").Lock; lock == nil || lock.ID != "one" {
		t.Fatalf("the holder's change left the lock %+v", lock)
	}
	w.mustApply(unlock("one", false))
	w.mustApply(acquire("two"))

	w.mustApply(unlock("two", true)) // its holder has died: the delay begins
	w.wantRefused(acquire("three"), fleet.CodeConflict, "is locked")
	w.wantRefused(store("two"), fleet.CodeConflict, "does not have the lock two")
	late := unlock("", true)
	late.CheckIndex = held
	w.wantRefused(late, fleet.CodeConflict, "any more")
	w.mustApply(unlock("", true))
	w.mustApply(acquire("three"))
	if n := len(slices.Collect(w.store.View().LockedVariables())); n != 1 {
		t.Fatalf("%d variables are locked", n)
	}
}

// wantRootKeys checks the states of all root keys.
func (w *storeHarness) wantRootKeys(want string) {
	w.Helper()
	var got []string
	for k := range w.store.View().RootKeys() {
		got = append(got, k.KeyID+" "+k.State)
	}
	if text := strings.Join(got, ", "); text != want {
		w.Fatalf("keys: %s, want %s", text, want)
	}
}

func TestRootKeyStates(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.RootKeyStore{Key: rootKey("k1"), First: true})
	w.mustApply(state.RootKeyStore{Key: rootKey("k0"), First: true}) // another hub was faster
	w.storeVariable("a", "k1")
	w.mustApply(state.RootKeyStore{Key: rootKey("k2")})
	w.wantRootKeys("k1 inactive, k2 active")
	w.mustApply(state.RootKeyStore{Key: rootKey("k3"), Full: true})
	w.wantRootKeys("k1 rekeying, k2 rekeying, k3 active")
	w.wantRefused(state.RootKeyStore{Key: rootKey("k3")}, fleet.CodeConflict, "known already")
	w.wantRefused(state.RootKeyDelete{KeyID: "k3"}, fleet.CodeConflict, "active")
	w.wantRefused(state.RootKeyDelete{KeyID: "k1"}, fleet.CodeConflict, "such as a in namespace default")
	w.wantRefused(state.RootKeyRetire{KeyID: "k1"}, fleet.CodeConflict, "such as a in namespace default")
	before := w.variable("a")
	rekey := state.RekeyedVariable{Namespace: "default", Path: "a", ModifyIndex: before.ModifyIndex, Sealed: sealedWith("k3")}
	stale, inactive := rekey, rekey
	stale.ModifyIndex, inactive.Sealed = stale.ModifyIndex-1, sealedWith("k2")
	w.mustApply(state.VariablesRekey{Rows: []state.RekeyedVariable{stale, inactive, {Namespace: "default", Path: "gone"}}})
	if now := w.variable("a"); now.Sealed.KeyID != "k1" {
		t.Fatalf("encrypted with %s", now.Sealed.KeyID)
	}
	w.mustApply(state.VariablesRekey{Rows: []state.RekeyedVariable{rekey}})
	if now := w.variable("a"); now.Sealed.KeyID != "k3" || now.ModifyIndex != before.ModifyIndex {
		t.Fatalf("%+v after %+v", now, before)
	}
	w.mustApply(state.RootKeyRetire{KeyID: "k1"})
	w.mustApply(state.RootKeyDelete{KeyID: "k2"})
	w.wantRootKeys("k1 deprecated, k3 active")
}

// TestVariableEvents: they have neither items nor the ID of a lock, and a new encryption is no event.
func TestVariableEvents(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	w.storeVariable("a", "k1")
	w.mustApply(state.VariableLock{Namespace: "default", Path: "a", Lock: lockOf("one"), KeepItems: true})
	w.mustApply(state.VariableUnlock{Namespace: "default", Path: "a", LockID: "one"})
	w.mustApply(state.RootKeyStore{Key: rootKey("k2"), Full: true})
	w.mustApply(state.VariablesRekey{Rows: []state.RekeyedVariable{{Namespace: "default", Path: "a", ModifyIndex: w.variable("a").ModifyIndex, Sealed: sealedWith("k2")}}})
	w.mustApply(state.VariableDelete{Namespace: "default", Path: "a"})
	var got []string
	for _, events := range w.store.View().EventsAfter(0) {
		for _, e := range events {
			if e.Topic != state.TopicVariable {
				continue
			}
			locked := ""
			if e.Variable.Lock != nil {
				locked = " locked" + e.Variable.Lock.ID
			}
			got = append(got, e.Type+" "+e.Namespace+" "+e.Key+locked)
		}
	}
	want := []string{"VariableUpserted default a", "VariableUpserted default a locked", "VariableUpserted default a", "VariableDeleted default a"}
	if !slices.Equal(got, want) {
		t.Fatalf("events %q", got)
	}
}

func TestNamespaceWithVariables(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	w.mustApply(state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships"}})
	w.mustApply(state.VariableStore{Namespace: "ships", Path: "a/b", Sealed: sealedWith("k1")})
	w.wantRefused(state.NamespaceDelete{Name: "ships"}, fleet.CodeConflict, "variable a/b")
	w.mustApply(state.VariableDelete{Namespace: "ships", Path: "a/b"})
	w.mustApply(state.NamespaceDelete{Name: "ships"})
}

// TestDeletedVariables: the deletion of a variable that tasks may read is recorded until there is another one of its
// path. A restore of a snapshot from before makes no such record, and keeps one of a variable that the snapshot lacks.
func TestDeletedVariables(t *testing.T) {
	w := furnished(t)
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	deleted := func(path string) fleet.Index {
		t.Helper()
		d, ok := w.store.View().DeletedVariable(fleet.DefaultNamespace, path)
		if !ok {
			return 0
		}
		return d.Index
	}
	remove := func(path string) fleet.Index {
		t.Helper()
		return w.mustApply(state.VariableDelete{Namespace: fleet.DefaultNamespace, Path: path, TellEdges: true}).Index
	}
	for _, path := range []string{"app/db", "nomad/jobs", "nomad/jobs/shop/web", "nomad/job-templates/a"} {
		for _, exists := range []bool{false, true} { // edges may have one that does not exist, from before a restore
			if exists {
				w.storeVariable(path, "k1")
			}
			want := remove(path)
			if !strings.HasPrefix(path, "nomad/jobs") {
				want = 0
			}
			if got := deleted(path); got != want {
				t.Errorf("%s (exists: %t) was deleted at %d, recorded is %d", path, exists, want, got)
			}
		}
	}
	w.storeVariable("nomad/jobs", "k1")
	if got := deleted("nomad/jobs"); got != 0 {
		t.Errorf("nomad/jobs is there again, and was deleted at %d", got)
	}
	snapshot := mustPersist(t, w.store)
	w.storeVariable("nomad/jobs/later", "k1")
	w.storeVariable("nomad/jobs/gone", "k1")
	at := remove("nomad/jobs/gone")
	remove("nomad/jobs")
	w.restoreSnapshot(snapshot)
	if deleted("nomad/jobs/later") != 0 || deleted("nomad/jobs") != 0 {
		t.Error("the restore says that variables were deleted")
	}
	if deleted("nomad/jobs/gone") != at || deleted("nomad/jobs/shop/web") == 0 {
		t.Errorf("after the restore nomad/jobs/gone was deleted at %d, want %d", deleted("nomad/jobs/gone"), at)
	}
}

// TestDeletedVariablesAreBounded forgets the oldest records.
func TestDeletedVariablesAreBounded(t *testing.T) {
	store, index := state.New(), fleet.Index(0)
	apply := func(c state.Command) {
		index++
		if res := store.Apply(index, c); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	apply(state.RootKeyStore{Key: rootKey("k1")})
	path := func(i int) string { return fmt.Sprintf("nomad/jobs/j%d", i) }
	for i := range state.MaxDeletedVariables + 3 {
		apply(state.VariableStore{Namespace: fleet.DefaultNamespace, Path: path(i), Sealed: sealedWith("k1")})
		apply(state.VariableDelete{Namespace: fleet.DefaultNamespace, Path: path(i), TellEdges: true})
	}
	for i, want := range map[int]bool{0: false, 2: false, 3: true, state.MaxDeletedVariables + 2: true} {
		if _, ok := store.View().DeletedVariable(fleet.DefaultNamespace, path(i)); ok != want {
			t.Errorf("the deletion of %s is recorded: %v, want %v", path(i), ok, want)
		}
	}
}
