package state

import "skerry/fleet"

// allocRow is an allocation with its history. Allocations have no index by job, node or
// evaluation: an entry in such an index takes more memory than all that an allocation
// says. The summaries list them.
type allocRow struct {
	fleet.Alloc
	history            history
	endedBeforeRestore bool // it had ended before a restore: rows of before that are read again do not revive it
}

type savedAlloc struct {
	Alloc          fleet.Alloc
	JobCreateIndex fleet.Index
	History        savedHistory
	Over           bool
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

func loadAlloc(in *loader, s *savedAlloc) (*allocRow, error) {
	job, err := in.findLoadedBody(s.Alloc.Namespace, s.Alloc.JobID,
		savedBodyRef{s.Alloc.JobHash, s.Alloc.JobVersion, s.JobCreateIndex})
	if err != nil {
		return nil, err
	}
	s.Alloc.Job = job
	return &allocRow{s.Alloc, s.History.toHistory(), s.Over}, nil
}

// desiredRow is the newest entry that a node's edge has to be told of.
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
