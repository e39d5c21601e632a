package state

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strconv"
	"time"

	"skerry/fleet"
)

// StateKey is the record of a state key (see package pki): the key itself is in no state. There is one from the first
// rotation on. A new key is active once everything else may be encrypted with it; the one before is kept for a time, and
// forgotten once every hub has the active one and nothing is encrypted with it any more.
type StateKey struct {
	ID          string
	Number      uint64        // 1 for the cluster's first
	Keep        time.Duration // how long the key before is kept
	Held        []fleet.HubID // hubs that have it, durably
	CreatedAt   int64         // UnixNano, like the other times
	ActiveSince int64         // 0: not yet
	KeptUntil   int64         // 0: no other key has replaced it
	ForgottenAt int64         // 0: not yet
	Erased      []fleet.HubID // hubs that do not have it any more

	CreateIndex, ModifyIndex fleet.Index
}

// StateKeyStore begins a rotation to a state key that the hubs in Key.Held have. It is refused (conflict) while another
// key is not active yet.
type StateKeyStore struct {
	command
	Key StateKey
}

// StateKeyHubStep says that a hub has a state key, durably, or with Erased that it does not have a forgotten one any more.
type StateKeyHubStep struct {
	command
	ID     string
	Hub    fleet.HubID
	Erased bool
}

// StateKeyRewrap replaces keys and secrets by the same ones, encrypted with the state key ID. What was replaced meanwhile
// stays as it is. With Sealed, the cluster's secrets, it makes the key the active one.
type StateKeyRewrap struct {
	command
	ID     string
	Sealed []byte
	Rows   []RewrappedSecret
	Now    int64
}

// StateKeyExpire ends the time for which a state key that was replaced is kept.
type StateKeyExpire struct {
	command
	ID  string
	Now int64
}

// StateKeyForget has the hubs erase a state key. It is refused (conflict) while something is encrypted with the key, or a
// hub does not have the active one.
type StateKeyForget struct {
	command
	ID  string
	Now int64
}

// Kinds of a RewrappedSecret.
const (
	WrappedCA         = "ca"
	WrappedRootKey    = "root key"
	WrappedSigningKey = "signing key"
	WrappedAuthMethod = "auth method"
)

// RewrappedSecret is a secret of the state that is encrypted with a state key, before and after a rotation.
type RewrappedSecret struct {
	Kind   string // WrappedCA, …
	Name   string // of its CA, root key or auth method
	Before []byte
	After  []byte
}

// MaxStateKeys is how many state keys are kept at once.
const MaxStateKeys = 8

var stateKeyTable = table[StateKey]{
	name: "state_keys", key: func(r *StateKey) []byte { return key(r.ID) }, announced: true,
	records: []record[StateKey]{rowRecord[StateKey](200)},
}

// stateKeyStore applies the command StateKeyStore. The first one also records the key that it replaces.
func (t *tx) stateKeyStore(c StateKeyStore) Result {
	cluster := clusterTable.currentRow(t, onlyKey)
	known := sortedStateKeys(stateKeyTable.scanRows(t.base))
	switch {
	case cluster == nil || cluster.SealKey == "" || c.Key.ID == "" || len(c.Key.Held) == 0:
		return refusal(fleet.CodeInvalid, "rotate the state key: the cluster's secrets are not encrypted, or no hub has the key")
	case stateKeyTable.currentRow(t, key(c.Key.ID)) != nil || c.Key.ID == cluster.SealKey:
		return refusal(fleet.CodeConflict, "rotate the state key: the key %s is known already", c.Key.ID)
	}
	if len(known) == 0 {
		first := StateKey{ID: cluster.SealKey, Number: 1, CreatedAt: cluster.CreatedAt, ActiveSince: max(cluster.CreatedAt, 1)}
		t.putStateKey(&first, nil)
		known = append(known, &first)
	}
	newest := known[len(known)-1]
	if err := newest.UnderWay(hubTable.scanRows(t.base)); err != nil {
		return Result{Err: err}
	}
	var kept, gone []*StateKey
	for i, k := range known {
		switch {
		case k.ForgottenAt == 0 && k.ActiveSince != 0:
			kept = append(kept, k)
		case k.ForgottenAt == 0 || i < len(known)-MaxStateKeys && t.areAllHubs(k.Erased):
			gone = append(gone, k)
		}
	}
	if len(kept) >= MaxStateKeys {
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "rotate the state key: %d keys are kept already", len(kept)).
			WithHint("forget the oldest: skerry operator state-key forget %s", kept[0].ID)}
	}
	for _, k := range gone {
		stateKeyTable.removeRow(t, key(k.ID))
	}
	next := StateKey{ID: c.Key.ID, Number: newest.Number + 1, Keep: c.Key.Keep, Held: c.Key.Held, CreatedAt: c.Key.CreatedAt}
	t.putStateKey(&next, nil)
	stateKeyTable.markChanged(t)
	return Result{}
}

// UnderWay returns an error if the key is not active yet. One that none of the hubs has never will be.
func (k *StateKey) UnderWay(hubs iter.Seq[*HubAddr]) *fleet.Error {
	lost := true
	for h := range hubs {
		lost = lost && !slices.Contains(k.Held, h.ID)
	}
	if k.ActiveSince != 0 || lost {
		return nil
	}
	return fleet.Errorf(fleet.CodeConflict, "rotate the state key: the rotation to the key %s is still under way", k.ID).
		WithHint("it goes on once most hubs have the key: skerry operator state-key status shows which have it")
}

// putStateKey stores a record, as changed by this entry.
func (t *tx) putStateKey(row, old *StateKey) {
	row.CreateIndex, row.ModifyIndex = t.index, t.index
	if old != nil {
		row.CreateIndex = old.CreateIndex
	}
	stateKeyTable.putRow(t, row)
	stateKeyTable.markChanged(t)
}

// stateKeyHubStep applies the command StateKeyHubStep. A step that is known already changes nothing.
func (t *tx) stateKeyHubStep(c StateKeyHubStep) Result {
	old := stateKeyTable.currentRow(t, key(c.ID))
	switch {
	case old == nil:
		return refusal(fleet.CodeNotFound, "record that hub %s has the state key %s: there is no such key", c.Hub, c.ID)
	case hubTable.currentRow(t, idKey(c.Hub)) == nil:
		return refusal(fleet.CodeConflict, "record that hub %s has the state key %s: the cluster does not know the hub", c.Hub, c.ID)
	case c.Erased && old.ForgottenAt == 0:
		return refusal(fleet.CodeConflict, "record that hub %s has erased the state key %s: it is not forgotten", c.Hub, c.ID)
	}
	row := *old
	if c.Erased {
		row.Erased = withHub(row.Erased, c.Hub)
	} else {
		row.Held = withHub(row.Held, c.Hub)
	}
	if len(row.Held) != len(old.Held) || len(row.Erased) != len(old.Erased) {
		t.putStateKey(&row, old)
	}
	return Result{}
}

// stateKeyRewrap applies the command StateKeyRewrap.
func (t *tx) stateKeyRewrap(c StateKeyRewrap) Result {
	cluster, row := clusterTable.currentRow(t, onlyKey), stateKeyTable.currentRow(t, key(c.ID))
	switch {
	case cluster == nil || row == nil || row.ForgottenAt != 0 || row.KeptUntil != 0:
		return refusal(fleet.CodeConflict, "encrypt the state's keys with the state key %s: it is not the newest one", c.ID)
	case len(c.Sealed) == 0 && cluster.SealKey != c.ID:
		return refusal(fleet.CodeConflict, "encrypt the state's keys with the state key %s: the active one is %s", c.ID, cluster.SealKey)
	}
	if len(c.Sealed) > 0 && cluster.SealKey != c.ID {
		if before := stateKeyTable.currentRow(t, key(cluster.SealKey)); before != nil {
			former := *before
			former.KeptUntil = max(c.Now, 1) + int64(row.Keep)
			t.putStateKey(&former, before)
		}
		active := *row
		active.ActiveSince = max(c.Now, 1)
		t.putStateKey(&active, row)
		clusterTable.putRow(t, &clusterRow{cluster.WithSeal(ClusterSeal{Sealed: c.Sealed, SealKey: c.ID})})
		clusterTable.markChanged(t)
	}
	for _, r := range c.Rows {
		t.rewrapSecret(r, c.ID)
	}
	return Result{}
}

// rewrapSecret replaces a secret that is still as it was before, by the same one encrypted with the state key by.
func (t *tx) rewrapSecret(r RewrappedSecret, by string) {
	switch r.Kind {
	case WrappedCA:
		number, err := strconv.ParseUint(r.Name, 10, 64)
		if old := caTable.currentRow(t, indexKey(number)); err == nil && old != nil && bytes.Equal(old.Wrapped, r.Before) {
			row := *old
			row.Wrapped, row.WrappedBy = r.After, by
			caTable.putRow(t, &row)
			caTable.markChanged(t)
		}
	case WrappedRootKey, WrappedSigningKey:
		old := rootKeyTable.currentRow(t, key(r.Name))
		if old == nil {
			return
		}
		row := *old
		switch {
		case r.Kind == WrappedRootKey && bytes.Equal(old.Wrapped, r.Before):
			row.Wrapped, row.WrappedBy = r.After, by
		case r.Kind == WrappedSigningKey && old.Signing != nil && bytes.Equal(old.Signing.Wrapped, r.Before):
			row.Signing = &SigningKey{Public: old.Signing.Public, Wrapped: r.After, WrappedBy: by}
		default:
			return
		}
		rootKeyTable.putRow(t, &row)
		rootKeyTable.markChanged(t)
	case WrappedAuthMethod:
		if old := authMethodTable.currentRow(t, key(r.Name)); old != nil && bytes.Equal(old.Secret.Data, r.Before) {
			row := *old
			row.Secret = WrappedSecret{Data: r.After, By: by}
			authMethodTable.putRow(t, &row)
			authMethodTable.markChanged(t)
		}
	}
}

// stateKeyExpire applies the command StateKeyExpire.
func (t *tx) stateKeyExpire(c StateKeyExpire) Result {
	old := stateKeyTable.currentRow(t, key(c.ID))
	switch {
	case old == nil:
		return refusal(fleet.CodeNotFound, "forget the state key %s: there is no such key", c.ID)
	case old.KeptUntil == 0:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "forget the state key %s: no other key has replaced it", c.ID).
			WithHint("make another one first: skerry operator state-key rotate")}
	case old.KeptUntil <= max(c.Now, 1):
		return Result{}
	}
	row := *old
	row.KeptUntil = max(c.Now, 1)
	t.putStateKey(&row, old)
	return Result{}
}

// stateKeyForget applies the command StateKeyForget.
func (t *tx) stateKeyForget(c StateKeyForget) Result {
	cluster, old := clusterTable.currentRow(t, onlyKey), stateKeyTable.currentRow(t, key(c.ID))
	switch {
	case old == nil || cluster == nil:
		return refusal(fleet.CodeNotFound, "forget the state key %s: there is no such key", c.ID)
	case old.ForgottenAt != 0:
		return Result{}
	case old.KeptUntil == 0 || old.KeptUntil > c.Now:
		return refusal(fleet.CodeConflict, "forget the state key %s: it is kept", c.ID)
	}
	if active := stateKeyTable.currentRow(t, key(cluster.SealKey)); active == nil || !t.areAllHubs(active.Held) {
		return refusal(fleet.CodeConflict, "forget the state key %s: not every hub has the key %s", c.ID, cluster.SealKey)
	}
	for what, by := range wrappedSecrets(caTable.scanRows(t.base), rootKeyTable.scanRows(t.base), authMethodTable.scanRows(t.base)) {
		if by == c.ID {
			return refusal(fleet.CodeConflict, "forget the state key %s: the %s %s is encrypted with it", c.ID, what.Kind, what.Name)
		}
	}
	row := *old
	row.ForgottenAt = max(c.Now, 1)
	t.putStateKey(&row, old)
	return Result{}
}

// checkStateKey returns an error if a secret that is to be stored is encrypted with a state key that was forgotten.
func (t *tx) checkStateKey(by string) *fleet.Error {
	if k := stateKeyTable.currentRow(t, key(by)); k == nil || k.ForgottenAt == 0 {
		return nil
	}
	return fleet.Errorf(fleet.CodeUnavailable, "store a secret: the state key %s, with which it is encrypted, was replaced meanwhile", by).WithHint("repeat it")
}

// wrappedSecrets iterates over the secrets that are encrypted with a state key, apart from those of the cluster itself, and
// over the names of their keys. Before has the secret.
func wrappedSecrets(cas iter.Seq[*CA], rootKeys iter.Seq[*RootKey], methods iter.Seq[*ACLAuthMethodRecord]) iter.Seq2[RewrappedSecret, string] {
	return func(yield func(RewrappedSecret, string) bool) {
		for r := range cas {
			if !yield(RewrappedSecret{Kind: WrappedCA, Name: strconv.FormatUint(r.Number, 10), Before: r.Wrapped}, r.WrappedBy) {
				return
			}
		}
		for r := range rootKeys {
			if !yield(RewrappedSecret{Kind: WrappedRootKey, Name: r.KeyID, Before: r.Wrapped}, r.WrappedBy) {
				return
			}
			if r.Signing != nil && !yield(RewrappedSecret{Kind: WrappedSigningKey, Name: r.KeyID, Before: r.Signing.Wrapped}, r.Signing.WrappedBy) {
				return
			}
		}
		for r := range methods {
			if len(r.Secret.Data) > 0 && !yield(RewrappedSecret{Kind: WrappedAuthMethod, Name: r.Name, Before: r.Secret.Data}, r.Secret.By) {
				return
			}
		}
	}
}

// WrappedSecrets iterates over the secrets that are encrypted with a state key, apart from those of the cluster itself, and
// over the names of their keys. Before has the secret, After nothing.
func (v *View) WrappedSecrets() iter.Seq2[RewrappedSecret, string] {
	return wrappedSecrets(caTable.watchRows(v), rootKeyTable.watchRows(v), authMethodTable.watchRows(v))
}

// StateKeyUnderWay returns an error if the newest state key is not active yet.
func (v *View) StateKeyUnderWay() *fleet.Error {
	known := v.StateKeys()
	if len(known) == 0 {
		return nil
	}
	return known[len(known)-1].UnderWay(hubTable.watchRows(v))
}

// StateKeys returns the records of the state keys, the oldest first; none before the first rotation.
func (v *View) StateKeys() []*StateKey { return sortedStateKeys(stateKeyTable.watchRows(v)) }

func sortedStateKeys(rows iter.Seq[*StateKey]) []*StateKey {
	return slices.SortedFunc(rows, func(a, b *StateKey) int { return cmp.Compare(a.Number, b.Number) })
}
