package state

import (
	"strings"

	"skerry/fleet"
)

// DeletedVariable says that a variable was deleted which tasks may have read. An edge that was away is told so by it: that
// a hub does not have a variable proves nothing, because the hub may have been restored from an older snapshot.
type DeletedVariable struct {
	Namespace string
	Path      string
	Index     fleet.Index // of the deletion
	Number    uint64      // greater than those of earlier deletions
}

// maxDeletedVariables bounds the records of deleted variables. The oldest are forgotten first; an edge that was away since
// keeps those variables until the allocations that may read them have ended.
const maxDeletedVariables = 10_000

const indexNumber = "number"

var deletedVariableTable = table[DeletedVariable]{
	name: "deleted_variables", key: func(r *DeletedVariable) []byte { return key(r.Namespace, r.Path) },
	indexes: []tableIndex[DeletedVariable]{
		{indexNumber, func(r *DeletedVariable) []byte { return append(indexKey(r.Number), key(r.Namespace, r.Path)...) }, nil},
	},
	records: []record[DeletedVariable]{rowRecord[DeletedVariable](186)},
}

// isReadByTasks reports whether tasks may read variables of a path.
func isReadByTasks(path string) bool {
	return path == fleet.VariablesOfJobs || strings.HasPrefix(path, fleet.VariablesOfJobs+"/")
}

// recordDeletedVariable records that tasks cannot read a variable any more, and forgets the oldest such record.
func (t *tx) recordDeletedVariable(ns, path string, index fleet.Index) {
	if !isReadByTasks(path) {
		return
	}
	number := uint64(1)
	if last := deletedVariableTable.lastRow(t.base, indexNumber); last != nil {
		number = last.Number + 1
	}
	for r := range deletedVariableTable.scanPrefix(t.base, indexNumber, nil) {
		if r.Number+maxDeletedVariables > number {
			break
		}
		deletedVariableTable.removeRow(t, key(r.Namespace, r.Path))
	}
	deletedVariableTable.putRow(t, &DeletedVariable{ns, path, index, number})
}

// keepDeletedVariables keeps the records of variables that were deleted after the snapshot, unless it has them.
func (t *tx) keepDeletedVariables(old *View) {
	for r := range deletedVariableTable.scanPrefix(old.txn, indexNumber, nil) {
		k := key(r.Namespace, r.Path)
		if variableTable.currentRow(t, k) == nil && deletedVariableTable.currentRow(t, k) == nil {
			deletedVariableTable.putRow(t, r)
		}
	}
}

// DeletedVariable returns when a variable was deleted, and has v watch that; ok is false if it is there, never was, or was
// deleted so long ago that the record is gone.
func (v *View) DeletedVariable(ns, path string) (*DeletedVariable, bool) {
	return deletedVariableTable.watchRow(v, key(ns, path))
}
