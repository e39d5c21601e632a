package state

import (
	"slices"

	"skerry/fleet"
)

// changesKept is how many changes of its allocations a deployment remembers at least. A watcher that
// missed more must read all allocations.
const changesKept = 4096

// changedAlloc names an allocation that the entry index changed in a way that concerns its deployment.
type changedAlloc struct {
	index fleet.Index
	id    fleet.AllocID
}

// noteChange adds a change for RolloutChanges, and drops old ones. Rows share the list: a newer row only
// appends after the changes that older ones see.
func (d *deploymentRow) noteChange(index fleet.Index, id fleet.AllocID) {
	if n := len(d.changed) - changesKept; n >= changesKept {
		d.forgotten = d.changed[n-1].index
		d.changed = slices.Clone(d.changed[n:])
	}
	d.changed = append(d.changed, changedAlloc{index, id})
}

// RolloutChange is an allocation that changed; Alloc is nil if it was removed.
type RolloutChange struct {
	ID    fleet.AllocID
	Alloc *fleet.Alloc
}

// RolloutChanges returns the allocations of a deployment that changed after an entry (health, status,
// desired changes), or joined or left it, each once and as it is now. known is false if some changes are
// no longer remembered: the caller must read all allocations. Nothing is watched.
func (v *View) RolloutChanges(id fleet.DeploymentID, after fleet.Index) (changes []RolloutChange, known bool) {
	quiet := &View{txn: v.txn}
	row, ok := deploymentTable.watchRow(quiet, idKey(id))
	if !ok || after < row.forgotten {
		return nil, false
	}
	seen := map[fleet.AllocID]bool{}
	for i := len(row.changed) - 1; i >= 0 && row.changed[i].index > after; i-- {
		c := row.changed[i]
		if seen[c.id] {
			continue
		}
		seen[c.id] = true
		change := RolloutChange{ID: c.id}
		if a, ok := allocTable.watchRow(quiet, idKey(c.id)); ok {
			change.Alloc = &a.Alloc
		}
		changes = append(changes, change)
	}
	return changes, true
}
