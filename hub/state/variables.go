package state

import (
	"iter"
	"strings"

	"skerry/fleet"
	"skerry/fleet/admission"
)

// VariableStore creates or replaces a variable. It is refused (conflict) with Check unless the variable's ModifyIndex
// is CheckIndex (0: there is no such variable), and while the variable is locked with another lock than LockID. It is
// refused (unavailable) if the key of Sealed is not the active one.
type VariableStore struct {
	command
	Namespace  string
	Path       string
	Sealed     SealedItems
	Check      bool
	CheckIndex fleet.Index
	LockID     string
	Now        int64 // UnixNano
}

// VariableDelete removes a variable, if there is one. Check, CheckIndex and LockID are those of VariableStore. With TellEdges
// a DeletedVariable is recorded; entries of older releases lack it.
type VariableDelete struct {
	command
	Namespace  string
	Path       string
	Check      bool
	CheckIndex fleet.Index
	LockID     string
	TellEdges  bool
}

// VariableLock acquires the lock of a variable, which is created if there is none. It is refused (conflict) while the
// variable has a lock. With KeepItems an existing variable keeps its items.
type VariableLock struct {
	command
	Namespace string
	Path      string
	Lock      fleet.VariableLock
	Sealed    SealedItems
	KeepItems bool
	Now       int64
}

// VariableUnlock ends the lock LockID of a variable. With Expired the lock's delay begins, which a command with an
// empty LockID ends. CheckIndex is the variable's ModifyIndex (0: any). It is refused (conflict) if the variable does
// not have that lock.
type VariableUnlock struct {
	command
	Namespace  string
	Path       string
	LockID     string
	Expired    bool
	CheckIndex fleet.Index
	Now        int64
}

// VariablesRekey replaces the encryption of variables, whose items and indexes stay. A variable that has changed since,
// or a key that is no longer the active one, is left out.
type VariablesRekey struct {
	command
	Rows []RekeyedVariable
}

// RekeyedVariable has the items of a variable, encrypted with another key.
type RekeyedVariable struct {
	Namespace   string
	Path        string
	ModifyIndex fleet.Index
	Sealed      SealedItems
}

// SealedItems are the items of a variable, encrypted with the root key KeyID (see package secrets).
type SealedItems struct {
	KeyID string
	Nonce []byte
	Data  []byte
}

// Variable is a variable with its encrypted items.
type Variable struct {
	fleet.VariableMeta
	Sealed SealedItems
}

// maxSealed bounds the encrypted items of a variable, in bytes.
const maxSealed = 4 * admission.MaxVariableBytes

const (
	indexRootKey = "root_key"
	indexLocked  = "locked"
)

var variableTable = table[Variable]{
	name: "variables", key: variableRowKey, announced: true,
	indexes: []tableIndex[Variable]{
		{indexRootKey, func(r *Variable) []byte { return key(r.Sealed.KeyID, r.Namespace, r.Path) }, nil},
		{indexLocked, variableRowKey, func(r *Variable) bool { return r.Lock != nil }},
	},
	records: []record[Variable]{rowRecord[Variable](161)},
}

func variableRowKey(r *Variable) []byte { return key(r.Namespace, r.Path) }

// variableStore applies the command VariableStore.
func (t *tx) variableStore(c VariableStore) Result {
	old, err := t.changeableVariable("store", c.Namespace, c.Path, c.LockID)
	if err == nil {
		err = checkVariableIndex("store", c.Path, old, c.Check, c.CheckIndex)
	}
	if err == nil {
		err = t.checkSealed(c.Path, c.Sealed)
	}
	if err != nil {
		return Result{Err: err}
	}
	t.putVariable(old, Variable{VariableMeta: fleet.VariableMeta{Namespace: c.Namespace, Path: c.Path, Lock: lockOf(old)}, Sealed: c.Sealed}, c.Now)
	return Result{}
}

// lockOf returns the lock of a variable that may be nil.
func lockOf(v *Variable) *fleet.VariableLock {
	if v == nil {
		return nil
	}
	return v.Lock
}

// putVariable stores the new row of a variable, with the entry's index and time; old is the row before, or nil.
func (t *tx) putVariable(old *Variable, next Variable, now int64) {
	next.CreateIndex, next.CreateTime, next.ModifyIndex, next.ModifyTime = t.index, now, t.index, now
	if old != nil {
		next.CreateIndex, next.CreateTime = old.CreateIndex, old.CreateTime
	}
	variableTable.putRow(t, &next)
	if old == nil {
		deletedVariableTable.removeRow(t, variableRowKey(&next))
	}
	variableTable.markChanged(t)
}

// changeableVariable returns a variable, nil if there is none. It fails if there cannot be one, or if it is locked with
// another lock than lockID.
func (t *tx) changeableVariable(verb, ns, path, lockID string) (*Variable, *fleet.Error) {
	if err := admission.CheckVariablePath(path); err != nil {
		return nil, fleet.AsError(err)
	}
	if t.findNamespace(ns) == nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%s variable %s: there is no namespace %q", verb, path, ns)
	}
	old := variableTable.currentRow(t, key(ns, path))
	if old == nil && lockID != "" || old != nil && lockID != "" && (old.Lock == nil || old.Lock.ID != lockID) {
		return nil, fleet.Errorf(fleet.CodeConflict, "%s variable %s: it does not have the lock %s any more", verb, path, lockID)
	}
	if old != nil && old.Lock != nil && lockID == "" {
		return nil, fleet.Errorf(fleet.CodeConflict, "%s variable %s: it is locked", verb, path).
			WithHint("only the holder of its lock may change it, with the lock's ID")
	}
	return old, nil
}

// checkVariableIndex returns an error if check is set and the variable's ModifyIndex is not index.
func checkVariableIndex(verb, path string, old *Variable, check bool, index fleet.Index) *fleet.Error {
	switch {
	case !check:
	case old == nil && index != 0:
		return fleet.Errorf(fleet.CodeConflict, "%s variable %s: it does not exist, expected was index %d", verb, path, index)
	case old != nil && old.ModifyIndex != index:
		return fleet.Errorf(fleet.CodeConflict, "%s variable %s: its index is %d, expected was %d", verb, path, old.ModifyIndex, index)
	}
	return nil
}

// checkSealed returns an error if the items are not encrypted with the active root key.
func (t *tx) checkSealed(path string, s SealedItems) *fleet.Error {
	r := rootKeyTable.currentRow(t, key(s.KeyID))
	switch {
	case r == nil || r.State != fleet.RootKeyActive:
		return fleet.Errorf(fleet.CodeUnavailable, "store variable %s: the root key %s was replaced meanwhile", path, s.KeyID).WithHint("repeat it")
	case len(s.Nonce) == 0 || len(s.Data) == 0 || len(s.Data) > maxSealed:
		return fleet.Errorf(fleet.CodeInvalid, "store variable %s: its encrypted items have %d bytes, allowed are 1 to %d", path, len(s.Data), maxSealed)
	}
	return nil
}

// variableDelete applies the command VariableDelete.
func (t *tx) variableDelete(c VariableDelete) Result {
	old, err := t.changeableVariable("delete", c.Namespace, c.Path, c.LockID)
	if err == nil {
		err = checkVariableIndex("delete", c.Path, old, c.Check, c.CheckIndex)
	}
	if err != nil {
		return Result{Err: err}
	}
	if old != nil {
		variableTable.removeRow(t, variableRowKey(old))
		variableTable.markChanged(t)
	}
	if c.TellEdges { // also of one that is not there: edges may have it from before a restore
		t.recordDeletedVariable(c.Namespace, c.Path, t.index)
	}
	return Result{}
}

// variableLock applies the command VariableLock. Acquiring a lock twice with the same ID changes nothing.
func (t *tx) variableLock(c VariableLock) Result {
	if old := variableTable.currentRow(t, key(c.Namespace, c.Path)); old != nil && old.Lock != nil && old.Lock.ID == c.Lock.ID && c.Lock.ID != "" {
		return Result{}
	}
	old, err := t.changeableVariable("lock", c.Namespace, c.Path, "")
	if err == nil && c.Lock.ID == "" {
		err = fleet.Errorf(fleet.CodeInvalid, "lock variable %s: the lock has no ID", c.Path)
	}
	if err == nil {
		lock := c.Lock
		if invalid := admission.CheckVariableLock(c.Path, &lock); invalid != nil {
			err = fleet.AsError(invalid)
		}
	}
	next := Variable{VariableMeta: fleet.VariableMeta{Namespace: c.Namespace, Path: c.Path, Lock: &c.Lock}, Sealed: c.Sealed}
	if err == nil && c.KeepItems && old != nil {
		next.Sealed = old.Sealed
	} else if err == nil {
		err = t.checkSealed(c.Path, c.Sealed)
	}
	if err != nil {
		return Result{Err: err}
	}
	t.putVariable(old, next, c.Now)
	return Result{}
}

// variableUnlock applies the command VariableUnlock.
func (t *tx) variableUnlock(c VariableUnlock) Result {
	old := variableTable.currentRow(t, key(c.Namespace, c.Path))
	if old == nil || old.Lock == nil || old.Lock.ID != c.LockID || c.CheckIndex != 0 && old.ModifyIndex != c.CheckIndex {
		return refusal(fleet.CodeConflict, "unlock variable %s: it does not have the lock %s any more", c.Path, c.LockID)
	}
	next := *old
	next.Lock = nil
	if c.Expired && c.LockID != "" && old.Lock.LockDelay > 0 {
		next.Lock = &fleet.VariableLock{TTL: old.Lock.TTL, LockDelay: old.Lock.LockDelay}
	}
	t.putVariable(old, next, c.Now)
	return Result{}
}

// variablesRekey applies the command VariablesRekey.
func (t *tx) variablesRekey(c VariablesRekey) Result {
	for _, r := range c.Rows {
		old := variableTable.currentRow(t, key(r.Namespace, r.Path))
		if old == nil || old.ModifyIndex != r.ModifyIndex || t.checkSealed(r.Path, r.Sealed) != nil {
			continue
		}
		next := *old
		next.Sealed = r.Sealed
		variableTable.putRow(t, &next)
	}
	return Result{}
}

// appendVariableEvents appends an event for each variable that this entry stored, locked or removed. It has no items,
// and not the ID of a lock.
func (t *tx) appendVariableEvents(row *eventsRow) {
	for k, now := range variableTable.changesInOrder(t) {
		e := Event{Topic: TopicVariable, Type: EventVariableStored}
		switch old := variableTable.rowBeforeEntry(t, []byte(k)); {
		case now == nil && old == nil:
			continue
		case now == nil:
			now, e.Type = old, EventVariableDeleted
		case now.ModifyIndex != t.index:
			continue // only its encryption changed
		}
		meta := now.WithoutID()
		e.Variable, e.Key, e.Namespace = &meta, meta.Path, meta.Namespace
		row.addEvent(128, e)
	}
}

// Variable returns a variable; ok is false if there is none.
func (v *View) Variable(ns, path string) (*Variable, bool) {
	return variableTable.watchRow(v, key(ns, path))
}

// Variables iterates over the variables of a namespace ("*": all) whose path begins with prefix, by namespace and path.
func (v *View) Variables(ns, prefix string) iter.Seq[*Variable] {
	rows := variableTable.watchTable(v, indexID, namespacePrefix(ns, prefix))
	return func(yield func(*Variable) bool) {
		for r := range rows {
			if strings.HasPrefix(r.Path, prefix) && !yield(r) {
				return
			}
		}
	}
}

// LockedVariables iterates over the variables that have a lock, and watches them alone.
func (v *View) LockedVariables() iter.Seq[*Variable] {
	return variableTable.watchPrefix(v, indexLocked, nil)
}

// VariablesByRootKey iterates over the variables that are encrypted with a root key, without watching them.
func (v *View) VariablesByRootKey(id string) iter.Seq[*Variable] {
	return variableTable.scanPrefix(v.txn, indexRootKey, key(id))
}
