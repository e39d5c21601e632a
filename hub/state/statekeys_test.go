package state_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// stateKeyOf is a state key that hubs have stored.
func stateKeyOf(id string, held ...fleet.HubID) state.StateKey {
	return state.StateKey{ID: id, Keep: time.Hour, Held: held, CreatedAt: 100}
}

// withSealedSecrets returns a harness of a cluster with three hubs, whose secrets are encrypted with the state key k1.
func withSealedSecrets(t *testing.T) *storeHarness {
	w := withHubs(newTestHarness(t))
	w.mustApply(state.ClusterSeal{ClusterID: "c", Sealed: []byte{1}, SealKey: "k1"})
	w.mustRotate(2, 50)
	key := rootKey("r1")
	key.WrappedBy = "k1"
	w.mustApply(state.RootKeyStore{Key: key})
	signing := signingKey()
	signing.WrappedBy = "k1"
	w.mustApply(state.RootKeySigning{KeyID: "r1", Signing: signing})
	w.mustApply(state.ACLAuthMethodStore{Method: sealedMethod("k1")})
	return w
}

// sealedMethod is an auth method whose client secret is encrypted with a state key.
func sealedMethod(by string) state.ACLAuthMethodRecord {
	return state.ACLAuthMethodRecord{
		ACLAuthMethod: fleet.ACLAuthMethod{Name: "sso", Type: fleet.ACLAuthMethodOIDC, Config: &fleet.ACLAuthMethodConfig{}},
		Secret:        state.WrappedSecret{Data: []byte{9}, By: by},
	}
}

// rewrapAll returns the command that encrypts everything with a key, but for what has that key already.
func (w *storeHarness) rewrapAll(by string) state.StateKeyRewrap {
	c := state.StateKeyRewrap{ID: by, Now: 300}
	for secret, before := range w.store.View().WrappedSecrets() {
		if before != by {
			secret.After = append(slices.Clone(secret.Before), []byte(by)...)
			c.Rows = append(c.Rows, secret)
		}
	}
	return c
}

// wantWrapped checks how many secrets are encrypted with each state key, and with which one the cluster's own are.
func (w *storeHarness) wantWrapped(active string, want map[string]int) {
	w.Helper()
	got := map[string]int{}
	for _, by := range w.store.View().WrappedSecrets() {
		got[by]++
	}
	if c, _ := w.store.View().Cluster(); c.SealKey != active || fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("the cluster's secrets are encrypted with %s, others with %v; want %s, %v", c.SealKey, got, active, want)
	}
}

func (w *storeHarness) stateKey(id string) *state.StateKey {
	w.Helper()
	for _, k := range w.store.View().StateKeys() {
		if k.ID == id {
			return k
		}
	}
	w.Fatalf("there is no state key %s", id)
	return nil
}

// TestStateKeyRotation: the steps of a rotation, and what is refused before and after each.
func TestStateKeyRotation(t *testing.T) {
	w := withSealedSecrets(t)
	w.mustRefuse(fleet.CodeInvalid, state.StateKeyStore{Key: stateKeyOf("k2")})
	w.mustRefuse(fleet.CodeInvalid, state.StateKeyStore{Key: stateKeyOf("", "a")})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyStore{Key: stateKeyOf("k1", "a")})
	w.mustRefuse(fleet.CodeNotFound, state.StateKeyHubStep{ID: "k2", Hub: "a"})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyRewrap{ID: "k2", Sealed: []byte{2}})
	w.mustRefuse(fleet.CodeNotFound, state.StateKeyExpire{ID: "k1", Now: 1})
	w.mustRefuse(fleet.CodeNotFound, state.StateKeyForget{ID: "k1", Now: 1})

	w.mustApply(state.StateKeyStore{Key: stateKeyOf("k2", "a", "b")})
	if k := w.stateKey("k1"); k.Number != 1 || k.ActiveSince == 0 || w.stateKey("k2").Number != 2 {
		t.Errorf("the first key: %+v", k)
	}
	w.mustRefuse(fleet.CodeConflict, state.StateKeyStore{Key: stateKeyOf("k3", "a")})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyHubStep{ID: "k2", Hub: "stranger"})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyHubStep{ID: "k1", Hub: "a", Erased: true})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyExpire{ID: "k1", Now: 1})
	w.mustRefuse(fleet.CodeConflict, w.rewrapAll("k2")) // not active yet
	w.wantWrapped("k1", map[string]int{"k": 1, "k1": 3})

	w.mustApply(state.StateKeyRewrap{ID: "k2", Sealed: []byte{2}, Now: 200})
	w.wantWrapped("k2", map[string]int{"k": 1, "k1": 3})
	if k := w.stateKey("k1"); k.KeptUntil != 200+int64(time.Hour) || w.stateKey("k2").ActiveSince != 200 {
		t.Errorf("the former key is kept until %d", k.KeptUntil)
	}
	late := 200 + int64(time.Hour)
	w.mustApply(state.StateKeyHubStep{ID: "k2", Hub: "c"})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyForget{ID: "k1", Now: late}) // secrets are encrypted with it
	w.mustApply(w.rewrapAll("k2"))
	w.wantWrapped("k2", map[string]int{"k2": 4})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyForget{ID: "k1", Now: late - 1})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyForget{ID: "k2", Now: late})
	w.mustApply(state.StateKeyForget{ID: "k1", Now: late})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyRewrap{ID: "k1", Sealed: []byte{1}})

	// A hub that was slow may still commit what it has encrypted with the key.
	key := rootKey("r2")
	key.WrappedBy = "k1"
	w.mustRefuse(fleet.CodeUnavailable, state.RootKeyStore{Key: key})
	key.WrappedBy = "k2"
	w.mustApply(state.RootKeyStore{Key: key})
	signing := signingKey()
	signing.WrappedBy = "k1"
	w.mustRefuse(fleet.CodeUnavailable, state.RootKeySigning{KeyID: "r2", Signing: signing})
	w.mustRefuse(fleet.CodeUnavailable, state.ACLAuthMethodStore{Method: sealedMethod("k1")})
	ca := caOf(3)
	ca.WrappedBy = "k1"
	w.mustRefuse(fleet.CodeUnavailable, state.CAStore{CA: ca})

	for _, hub := range []fleet.HubID{"c", "a", "a"} {
		w.mustApply(state.StateKeyHubStep{ID: "k1", Hub: hub, Erased: true})
	}
	if k := w.stateKey("k1"); len(k.Erased) != 2 || k.Erased[0] != "a" {
		t.Errorf("erased by %v", k.Erased)
	}
}

// TestStateKeyIsForgottenByAllHubs: no key is forgotten while a hub does not have the active one, unless the hub was removed.
func TestStateKeyIsForgottenByAllHubs(t *testing.T) {
	w := withSealedSecrets(t)
	w.mustApply(state.StateKeyStore{Key: stateKeyOf("k2", "a", "b")})
	w.mustApply(state.StateKeyRewrap{ID: "k2", Sealed: []byte{2}, Now: 200})
	w.mustApply(w.rewrapAll("k2"))
	w.mustApply(state.StateKeyExpire{ID: "k1", Now: 201})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyForget{ID: "k1", Now: 202})
	w.mustApply(state.Hub{Hub: state.HubAddr{ID: "c"}, Removed: true})
	w.mustApply(state.StateKeyForget{ID: "k1", Now: 202})
}

// TestLostStateKeyIsGivenUp: a key that no hub has any more, and that never became active, makes room for another one.
func TestLostStateKeyIsGivenUp(t *testing.T) {
	w := withSealedSecrets(t)
	w.mustApply(state.StateKeyStore{Key: stateKeyOf("k2", "b", "c")})
	w.mustApply(state.Hub{Hub: state.HubAddr{ID: "b"}, Removed: true})
	w.mustRefuse(fleet.CodeConflict, state.StateKeyStore{Key: stateKeyOf("k3", "a")})
	w.mustApply(state.Hub{Hub: state.HubAddr{ID: "c"}, Removed: true})
	w.mustApply(state.StateKeyStore{Key: stateKeyOf("k3", "a")})
	if keys := w.store.View().StateKeys(); len(keys) != 2 || keys[1].ID != "k3" || keys[1].Number != 3 {
		t.Errorf("the keys are %+v", keys)
	}
}

// TestRewrapKeepsWhatChanged: what was replaced while a hub encrypted it again stays as it is, with the former key's name.
func TestRewrapKeepsWhatChanged(t *testing.T) {
	w := withSealedSecrets(t)
	w.mustApply(state.StateKeyStore{Key: stateKeyOf("k2", "a", "b", "c")})
	w.mustApply(state.StateKeyRewrap{ID: "k2", Sealed: []byte{2}, Now: 200})
	c := w.rewrapAll("k2")
	next := sealedMethod("k1")
	next.Secret.Data = []byte{10}
	w.mustApply(state.ACLAuthMethodStore{Method: next})
	for i := range c.Rows {
		if c.Rows[i].Kind == state.WrappedSigningKey {
			c.Rows[i].Before = []byte{99}
		}
	}
	c.Rows = append(c.Rows, state.RewrappedSecret{Kind: state.WrappedCA, Name: "9", After: []byte{1}}, state.RewrappedSecret{Kind: state.WrappedCA, Name: "x", After: []byte{1}},
		state.RewrappedSecret{Kind: state.WrappedRootKey, Name: "none", After: []byte{1}}, state.RewrappedSecret{Kind: state.WrappedAuthMethod, Name: "none", After: []byte{1}},
		state.RewrappedSecret{Kind: "another kind", Name: "sso", After: []byte{1}})
	w.mustApply(c)
	w.wantWrapped("k2", map[string]int{"k1": 2, "k2": 2})
	if m, _ := w.store.View().ACLAuthMethod("sso"); m.Secret.By != "k1" || !bytes.Equal(m.Secret.Data, []byte{10}) {
		t.Errorf("the new secret became %+v", m.Secret)
	}
}

// TestStateKeysAreBounded: at most MaxStateKeys are kept; those that every hub has erased make room.
func TestStateKeysAreBounded(t *testing.T) {
	w := withSealedSecrets(t)
	rotate := func(n int) state.Result {
		id := fmt.Sprintf("k%d", n)
		res := w.applyAndCheck(state.StateKeyStore{Key: stateKeyOf(id, "a", "b", "c")})
		if res.Err == nil {
			w.mustApply(state.StateKeyRewrap{ID: id, Sealed: []byte{byte(n)}, Now: 200})
			w.mustApply(w.rewrapAll(id))
		}
		return res
	}
	for n := 2; n <= state.MaxStateKeys; n++ {
		if res := rotate(n); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	if res := rotate(9); res.Err == nil || res.Err.Code != fleet.CodeConflict || res.Err.Hint != "forget the oldest: skerry operator state-key forget k1" {
		t.Errorf("one more: %v", res.Err)
	}
	for n := 1; n < 20; n++ {
		id := fmt.Sprintf("k%d", n)
		w.mustApply(state.StateKeyExpire{ID: id, Now: 300})
		w.mustApply(state.StateKeyForget{ID: id, Now: 300})
		for _, hub := range []fleet.HubID{"a", "b", "c"} {
			w.mustApply(state.StateKeyHubStep{ID: id, Hub: hub, Erased: true})
		}
		if res := rotate(n + state.MaxStateKeys); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	if keys := w.store.View().StateKeys(); len(keys) > 2*state.MaxStateKeys || keys[0].ForgottenAt == 0 || keys[len(keys)-1].ID != "k27" {
		t.Errorf("%d keys, from %+v", len(keys), keys[0])
	}
}

// TestRestoreKeepsStateKeys: a snapshot from before a rotation brings nothing back that is encrypted with the key from before,
// but for what is not there any more.
func TestRestoreKeepsStateKeys(t *testing.T) {
	w := withSealedSecrets(t)
	gone := rootKey("gone")
	gone.WrappedBy = "k1"
	w.mustApply(state.RootKeyStore{Key: gone})
	key := rootKey("r2")
	key.WrappedBy = "k1"
	w.mustApply(state.RootKeyStore{Key: key})
	before := mustPersist(t, w.store)
	w.mustApply(state.RootKeyDelete{KeyID: "gone", Now: 1})
	w.mustApply(state.StateKeyStore{Key: stateKeyOf("k2", "a", "b")})
	w.mustApply(state.StateKeyRewrap{ID: "k2", Sealed: []byte{2}, Now: 200})
	w.mustApply(w.rewrapAll("k2"))
	reopened := state.New()
	if err := reopened.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if a, b := describe(t, w.store.View()), describe(t, reopened.View()); a != b {
		t.Fatalf("a snapshot lost something:\n%s", diff(a, b))
	}
	w.restoreSnapshot(before)
	w.wantWrapped("k2", map[string]int{"k1": 2, "k2": 4}) // the auth method and the root key that is gone
	if keys := w.store.View().StateKeys(); len(keys) != 2 || keys[1].ActiveSince != 200 {
		t.Errorf("after the restore: %+v", keys)
	}
	w.mustApply(w.rewrapAll("k2"))
	w.wantWrapped("k2", map[string]int{"k2": 6})
}

// TestRestoreKeepsTheActiveRootKey: the active root key of a snapshot that was removed since becomes inactive, and the one of
// the cluster stays active, also where the snapshot has it as an inactive one. A key that is still there is active again.
func TestRestoreKeepsTheActiveRootKey(t *testing.T) {
	for removed, want := range map[string]string{
		"r1": "r1 inactive, r2 active, r3 inactive", "r2": "r1 inactive, r2 inactive, r3 active",
	} {
		t.Run(removed+" was removed", func(t *testing.T) {
			w := withHubs(newTestHarness(t))
			w.mustApply(state.RootKeyStore{Key: rootKey("r1")})
			w.mustApply(state.RootKeyStore{Key: rootKey("r2")})
			before := mustPersist(t, w.store)
			w.mustApply(state.RootKeyStore{Key: rootKey("r3")})
			w.mustApply(state.RootKeyDelete{KeyID: removed, Now: 1})
			w.restoreSnapshot(before)
			w.wantRootKeys(want)
		})
	}
	t.Run("the cluster's key is inactive in the snapshot", func(t *testing.T) {
		w := withHubs(newTestHarness(t))
		w.mustApply(state.RootKeyStore{Key: rootKey("r1")})
		first := mustPersist(t, w.store)
		w.mustApply(state.RootKeyStore{Key: rootKey("r2")})
		second := mustPersist(t, w.store)
		w.restoreSnapshot(first)
		w.wantRootKeys("r1 active, r2 inactive")
		w.mustApply(state.RootKeyDelete{KeyID: "r2", Now: 1})
		w.restoreSnapshot(second)
		w.wantRootKeys("r1 active, r2 inactive")
	})
}
