package state

import (
	"bytes"
	"iter"
	"slices"
	"time"

	"skerry/fleet"
)

// RootKeyStore adds a root key, which becomes the active one; the active one before becomes inactive. With Full the
// other keys that may still be in use become rekeying. With First nothing happens if there is an active key.
type RootKeyStore struct {
	command
	Key   RootKey
	Full  bool
	First bool
}

// RootKeyRetire makes a rekeying key deprecated. It is refused (conflict) while a variable is encrypted with the key.
type RootKeyRetire struct {
	command
	KeyID string
}

// RootKeyDelete removes a root key. It is refused (conflict) for the active key, while a variable is encrypted with the
// key, and while a task may have a token that the key has signed and that is valid at Now.
type RootKeyDelete struct {
	command
	KeyID string
	Now   int64 // UnixNano
}

// RootKeySigning gives a root key its signing key. One that has a signing key keeps it.
type RootKeySigning struct {
	command
	KeyID   string
	Signing SigningKey
}

// RootKey is a data key, encrypted with the state key WrappedBy (see package pki), which is not in the state.
type RootKey struct {
	fleet.RootKey
	Wrapped   []byte
	WrappedBy string
	Signing   *SigningKey // nil: nothing was signed yet
}

// SigningKey signs the identities of workloads (RS256) under the id of its root key. The private half (PKCS #8) is
// encrypted with the state key WrappedBy.
type SigningKey struct {
	Public    []byte // PKIX
	Wrapped   []byte
	WrappedBy string
}

// MaxRootKeys is how many root keys a cluster may have.
const MaxRootKeys = 1000

var rootKeyTable = table[RootKey]{
	name: "root_keys", key: func(r *RootKey) []byte { return key(r.KeyID) }, announced: true,
	records: []record[RootKey]{rowRecord[RootKey](160)},
}

// rootKeyStore applies the command RootKeyStore.
func (t *tx) rootKeyStore(c RootKeyStore) Result {
	others := slices.Collect(rootKeyTable.scanRows(t.base))
	switch {
	case c.Key.KeyID == "" || len(c.Key.Wrapped) == 0 || c.Key.WrappedBy == "":
		return refusal(fleet.CodeInvalid, "store root key %q: it has no id, or is not wrapped", c.Key.KeyID)
	case rootKeyTable.currentRow(t, key(c.Key.KeyID)) != nil:
		return refusal(fleet.CodeConflict, "store root key %s: it is known already", c.Key.KeyID)
	case c.First && slices.ContainsFunc(others, func(r *RootKey) bool { return r.State == fleet.RootKeyActive }):
		return Result{}
	case len(others) >= MaxRootKeys:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "store root key %s: there are %d already", c.Key.KeyID, MaxRootKeys).
			WithHint("remove deprecated keys: skerry operator root keyring remove KEY")}
	}
	if err := t.checkStateKey(c.Key.WrappedBy); err != nil {
		return Result{Err: err}
	}
	for _, old := range others {
		row := *old
		switch {
		case c.Full && old.State != fleet.RootKeyDeprecated:
			row.State = fleet.RootKeyRekeying
		case old.State == fleet.RootKeyActive:
			row.State = fleet.RootKeyInactive
		default:
			continue
		}
		row.ModifyIndex = t.index
		rootKeyTable.putRow(t, &row)
	}
	next := c.Key
	next.State, next.CreateIndex, next.ModifyIndex = fleet.RootKeyActive, t.index, t.index
	rootKeyTable.putRow(t, &next)
	rootKeyTable.markChanged(t)
	return Result{}
}

// rootKeyRetire applies the command RootKeyRetire. A key that is not rekeying any more stays as it is.
func (t *tx) rootKeyRetire(c RootKeyRetire) Result {
	old := rootKeyTable.currentRow(t, key(c.KeyID))
	switch {
	case old == nil:
		return refusal(fleet.CodeNotFound, "retire root key %s: there is no such key", c.KeyID)
	case old.State != fleet.RootKeyRekeying:
		return Result{}
	}
	if err := t.rootKeyInUse("retire", c.KeyID); err != nil {
		return Result{Err: err}
	}
	row := *old
	row.State, row.ModifyIndex = fleet.RootKeyDeprecated, t.index
	rootKeyTable.putRow(t, &row)
	rootKeyTable.markChanged(t)
	return Result{}
}

// rootKeySigning applies the command RootKeySigning.
func (t *tx) rootKeySigning(c RootKeySigning) Result {
	old := rootKeyTable.currentRow(t, key(c.KeyID))
	switch {
	case old == nil:
		return refusal(fleet.CodeNotFound, "give root key %s a signing key: there is no such root key", c.KeyID)
	case len(c.Signing.Public) == 0 || len(c.Signing.Wrapped) == 0 || c.Signing.WrappedBy == "":
		return refusal(fleet.CodeInvalid, "give root key %s a signing key: it has no public half, or is not wrapped", c.KeyID)
	case old.Signing != nil:
		return Result{}
	}
	if err := t.checkStateKey(c.Signing.WrappedBy); err != nil {
		return Result{Err: err}
	}
	row := *old
	row.Signing = &c.Signing
	rootKeyTable.putRow(t, &row)
	rootKeyTable.markChanged(t)
	return Result{}
}

// rootKeyDelete applies the command RootKeyDelete.
func (t *tx) rootKeyDelete(c RootKeyDelete) Result {
	old := rootKeyTable.currentRow(t, key(c.KeyID))
	switch {
	case old == nil:
		return refusal(fleet.CodeNotFound, "remove root key %s: there is no such key", c.KeyID)
	case old.State == fleet.RootKeyActive:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "remove root key %s: it is the active one", c.KeyID).
			WithHint("make another one first: skerry operator root keyring rotate")}
	}
	err := t.rootKeyInUse("remove", c.KeyID)
	if err == nil {
		err = t.signatureInUse(old, c.Now)
	}
	if err != nil {
		return Result{Err: err}
	}
	rootKeyTable.removeRow(t, key(c.KeyID))
	rootKeyTable.markChanged(t)
	return Result{}
}

// rootKeyInUse returns an error that names a variable which is encrypted with the key; nil: there is none.
func (t *tx) rootKeyInUse(verb, id string) *fleet.Error {
	for v := range variableTable.scanPrefix(t.base, indexRootKey, key(id)) {
		return fleet.Errorf(fleet.CodeConflict, "%s root key %s: variables are encrypted with it, such as %s in namespace %s", verb, id, v.Path, v.Namespace).
			WithHint("encrypt them with another key: skerry operator root keyring rotate --full; what no hub can decrypt has to be purged first")
	}
	return nil
}

// signatureInUse returns an error that names an allocation which may have a valid token that the key has signed; nil:
// there is none. Allocations that were placed after the key was replaced have no such token.
func (t *tx) signatureInUse(k *RootKey, now int64) *fleet.Error {
	if k.Signing == nil {
		return nil
	}
	var next *RootKey // the one that has replaced it, as far as that is known
	for r := range rootKeyTable.scanRows(t.base) {
		if r.CreateIndex > k.CreateIndex && (next == nil || r.CreateIndex < next.CreateIndex) {
			next = r
		}
	}
	for r := range allocTable.scanRows(t.base) {
		if next == nil || r.CreateIndex > next.CreateIndex || r.Terminal() || !mayHaveToken(&r.Alloc, time.Duration(now-next.CreateTime)) {
			continue
		}
		return fleet.Errorf(fleet.CodeConflict, "remove root key %s: it may have signed the identity of allocation %s of job %s, which has not ended", k.KeyID, r.ID, r.JobID).
			WithHint("replace the allocations that are older than the rotation first: skerry job restart --reschedule JOB")
	}
	return nil
}

// mayHaveToken reports whether a task of the allocation may have a token that is older than age, and has not expired.
func mayHaveToken(a *fleet.Alloc, age time.Duration) bool {
	g := a.Group()
	return g != nil && slices.ContainsFunc(g.DeliveredIdentities(), func(w fleet.OwnedIdentity) bool { return w.TTL == 0 || age < w.TTL })
}

// keepRootKeys keeps, after a restore, the root keys and the signing keys that the snapshot does not have, and the state keys
// with which the others are encrypted now. The snapshot's active key stays so, unless it was removed since: the state key
// that encrypts it may be forgotten. Any other active key becomes inactive.
func (t *tx) keepRootKeys(old *View) {
	active := t.rootKeyAfterRestore(old)
	for r := range rootKeyTable.scanRows(t.base) {
		if r.State == fleet.RootKeyActive && r.KeyID != active {
			next := *r
			next.State = fleet.RootKeyInactive
			rootKeyTable.putRow(t, &next)
		}
	}
	for r := range old.RootKeys() {
		next := *r
		if row := rootKeyTable.currentRow(t, key(r.KeyID)); row != nil {
			next = *row
			next.Wrapped, next.WrappedBy = r.Wrapped, r.WrappedBy
			if r.Signing != nil && (row.Signing == nil || bytes.Equal(row.Signing.Public, r.Signing.Public)) {
				next.Signing = r.Signing
			}
		}
		switch {
		case r.KeyID == active:
			next.State = fleet.RootKeyActive
		case next.State == fleet.RootKeyActive:
			next.State = fleet.RootKeyInactive
		}
		rootKeyTable.putRow(t, &next)
	}
}

// rootKeyAfterRestore returns the id of the root key that is active after a restore; "": there is none.
func (t *tx) rootKeyAfterRestore(old *View) (id string) {
	for r := range rootKeyTable.scanRows(t.base) {
		if r.State == fleet.RootKeyActive {
			id = r.KeyID
		}
	}
	live, ok := old.ActiveRootKey()
	if _, known := old.RootKey(id); ok && !known {
		return live.KeyID
	}
	return id
}

// RootKeys iterates over the root keys by id.
func (v *View) RootKeys() iter.Seq[*RootKey] { return rootKeyTable.watchRows(v) }

// RootKey returns a root key; ok is false if there is none.
func (v *View) RootKey(id string) (*RootKey, bool) { return rootKeyTable.watchRow(v, key(id)) }

// ActiveRootKey returns the key that encrypts; ok is false before the first one.
func (v *View) ActiveRootKey() (*RootKey, bool) {
	for r := range v.RootKeys() {
		if r.State == fleet.RootKeyActive {
			return r, true
		}
	}
	return nil, false
}
