package state

import "skerry/fleet"

// allocRow is an allocation with its history. Allocations have no index by job, node or evaluation,
// because an index entry takes more memory than the allocation itself. The summaries list them instead.
type allocRow struct {
	fleet.Alloc
	history history
	// endedBeforeRestore: it ended before the cluster was restored. Older journal rows, which the edge
	// sends again after the restore, do not make it run again.
	endedBeforeRestore bool
}

// savedAlloc is an allocation in a snapshot. Its job is saved once, as a record of bodyTable.
type savedAlloc struct {
	Alloc          fleet.Alloc
	JobCreateIndex fleet.Index // with Alloc's JobHash and JobVersion it identifies the job's record
	History        savedHistory
	Over           bool // endedBeforeRestore
}

var allocTable = table[allocRow]{
	name: "allocs", key: func(r *allocRow) []byte { return idKey(r.ID) }, announced: true,
	records: []record[allocRow]{savedRecord(10,
		func(r *allocRow) *savedAlloc {
			return &savedAlloc{r.Alloc, r.Job.CreateIndex, r.history.toSavedHistory(), r.endedBeforeRestore}
		}, loadAlloc)},
	describe: func(d *describer, table string, r *allocRow) {
		a := r.Alloc
		a.Job = nil
		d.writeTableLine(table, a, r.Job.CreateIndex)
		d.describeHistory(r.history)
	},
}

// loadAlloc converts a snapshot record to an allocation. It fails if the record of its job was not read
// before.
func loadAlloc(in *loader, s *savedAlloc) (*allocRow, error) {
	job, err := in.findLoadedBody(s.Alloc.Namespace, s.Alloc.JobID,
		savedBodyRef{s.Alloc.JobHash, s.Alloc.JobVersion, s.JobCreateIndex})
	if err != nil {
		return nil, err
	}
	s.Alloc.Job = job
	return &allocRow{s.Alloc, s.History.toHistory(), s.Over}, nil
}

// desiredRow holds the newest entry that changed the desired state of a node's allocations.
type desiredRow struct {
	node  fleet.NodeID
	index fleet.Index
}

var desiredTable = table[desiredRow]{
	name: "desired", key: func(r *desiredRow) []byte { return idKey(r.node) },
	records: []record[desiredRow]{savedRecord(12,
		func(r *desiredRow) *savedIndex { return &savedIndex{string(r.node), r.index} },
		func(_ *loader, s *savedIndex) (*desiredRow, error) {
			return &desiredRow{fleet.NodeID(s.Key), s.Index}, nil
		})},
	describe: func(d *describer, table string, r *desiredRow) { d.writeTableLine(table, r.node, r.index) },
}
