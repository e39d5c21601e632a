package state_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

func signingKey() state.SigningKey {
	return state.SigningKey{Public: []byte{3}, Wrapped: []byte{4}, WrappedBy: "s"}
}

// TestSigningKeys: a root key keeps its first signing key. The key is not removed while a task may have a token of it that
// is valid: one without an end until its allocation ends, another until its time is over.
func TestSigningKeys(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	w.wantRefused(state.RootKeySigning{KeyID: "none", Signing: signingKey()}, fleet.CodeNotFound, "no such root key")
	w.wantRefused(state.RootKeySigning{KeyID: "k1"}, fleet.CodeInvalid, "not wrapped")
	w.mustApply(state.RootKeySigning{KeyID: "k1", Signing: signingKey()})
	second := signingKey()
	second.Public = []byte{5}
	w.mustApply(state.RootKeySigning{KeyID: "k1", Signing: second})
	if k, _ := w.store.View().RootKey("k1"); k.Signing == nil || k.Signing.Public[0] != 3 {
		t.Fatalf("the signing key: %+v", k.Signing)
	}
	place := func(id string, identities ...fleet.WorkloadIdentity) fleet.AllocID {
		j := job(fleet.JobID(id), fleet.JobTypeService, 1)
		if id == "vault" {
			j.TaskGroups[0].Tasks[0].Vault = &fleet.Vault{}
		}
		j.TaskGroups[0].Tasks[0].Identities = identities
		w.registerJob(j)
		return w.placeAllocs(j.ID, node, 1)[0]
	}
	forever := place("forever", fleet.WorkloadIdentity{Name: "a", File: true})
	place("hidden", fleet.WorkloadIdentity{Name: "a"})
	hour := place("hour", fleet.WorkloadIdentity{Name: "a", File: true, TTL: time.Hour})
	vault := place("vault", fleet.WorkloadIdentity{Name: fleet.VaultIdentity, TTL: 2 * time.Hour})
	next := rootKey("k2")
	next.CreateTime = w.nowNanos()
	w.mustApply(state.RootKeyStore{Key: next})
	place("later", fleet.WorkloadIdentity{Name: "a", File: true})
	remove := func(after time.Duration) state.RootKeyDelete {
		return state.RootKeyDelete{KeyID: "k1", Now: next.CreateTime + int64(after)}
	}
	w.wantRefused(remove(1000*time.Hour), fleet.CodeConflict, string(forever))
	w.reportStatus(node, fleet.ClientComplete, forever)
	w.wantRefused(remove(2*time.Hour-1), fleet.CodeConflict, string(vault))
	w.reportStatus(node, fleet.ClientComplete, vault)
	w.wantRefused(remove(time.Hour-1), fleet.CodeConflict, string(hour))
	w.mustApply(remove(time.Hour))
}

// A restore keeps the keys that have signed since: their tokens are in use.
func TestSigningKeysOutliveARestore(t *testing.T) {
	w := furnished(t)
	w.mustApply(state.RootKeyStore{Key: rootKey("k1")})
	file := mustPersist(t, w.store)
	w.mustApply(state.RootKeySigning{KeyID: "k1", Signing: signingKey()})
	second, signing := rootKey("k2"), signingKey()
	second.Signing = &signing
	w.mustApply(state.RootKeyStore{Key: second})
	w.restoreSnapshot(file)
	for id, want := range map[string]string{"k1": fleet.RootKeyActive, "k2": fleet.RootKeyInactive} {
		if k, ok := w.store.View().RootKey(id); !ok || k.State != want || k.Signing == nil {
			t.Errorf("%s is %+v", id, k)
		}
	}
}
