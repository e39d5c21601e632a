package state

import (
	"iter"
	"slices"

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

// RootKeyDelete removes a root key. It is refused (conflict) for the active key, and while a variable is encrypted
// with the key.
type RootKeyDelete struct {
	command
	KeyID string
}

// RootKey is a data key, encrypted with the state key WrappedBy (see package pki), which is not in the state.
type RootKey struct {
	fleet.RootKey
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
	if err := t.rootKeyInUse("remove", c.KeyID); err != nil {
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
