package state

import (
	"slices"

	"skerry/fleet"
)

// changesKept is how many changes of its allocations a deployment's row remembers at
// least: those of several entries. A watcher that missed more reads all allocations.
const changesKept = 4096

// changedAlloc is an allocation that an entry changed in a way that concerns its
// deployment.
type changedAlloc struct {
	index fleet.Index
	id    fleet.AllocID
}

// noteChange remembers a change for RolloutChanges. Rows share the list: a newer one
// only appends behind what older ones can see.
func (d *deploymentRow) noteChange(index fleet.Index, id fleet.AllocID) {
	if n := len(d.changed) - changesKept; n >= changesKept {
		d.forgotten = d.changed[n-1].index
		d.changed = slices.Clone(d.changed[n:])
	}
	d.changed = append(d.changed, changedAlloc{index, id})
}

// RolloutChange is an allocation that changed; Alloc is nil where it is gone.
type RolloutChange struct {
	ID    fleet.AllocID
	Alloc *fleet.Alloc
}

// RolloutChanges lists what changed after an entry of a deployment's allocations, as it is
// now, each once: of what concerns its rollout (health, status, what is asked of it), and
// what joined or left it. known is false where the state does not remember all of it.
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
