package state

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// Tables. Those that TableIndex knows carry the name that callers use.
const (
	tableMeta          = "meta" // applied entry, and the newest entry of each table
	tableCluster       = "cluster"
	tableTokens        = "tokens"
	tableHubs          = "hubs"
	tablePools         = "pools"
	tableCertificates  = "certificates"
	tableRevocations   = "revocations"
	tableAdmissions    = "admissions"
	tableJobs          = "jobs"
	tableBodies        = "bodies"
	tableNodes         = "nodes"
	tableAllocs        = "allocs"
	tableEvals         = "evals"
	tableJobSummaries  = "job rosters"
	tableNodeSummaries = "node rosters"
	tableDesired       = "desired"
	tableCapacity      = "capacity"
	tableDeployments   = "deployments"
	tableScheduler     = "scheduler"
	tableEvents        = "events"
	tableWindow        = "window"
	tableNamespaces    = "namespaces"
	tableParts         = "snapshot parts"
	tableRestored      = "restored"
)

const (
	indexID      = "id"
	indexJob     = "job"
	indexChanged = "changed"
	indexCreated = "created"

	indexDraining = "draining"
	indexPeriodic = "periodic"
	indexAwaiting = "awaiting"
)

// metaApplied is the row of tableMeta that every entry writes; the others are
// named as their tables.
const metaApplied = "applied"

// metaRollouts is the row of tableMeta that the beginning of a deployment writes.
const metaRollouts = "rollouts"

// Rows. They are never changed once inserted.
type (
	metaRow struct {
		name  string
		index fleet.Index
	}
	clusterRow struct{ Cluster }
	// jobRow is a job with its kept versions, newest first. The newest version and
	// job share a specification; status and stop are job's alone.
	jobRow struct {
		job       *fleet.Job
		versions  []*fleet.Job
		queued    map[string]int                  // by group, as the newest evaluation said
		evaluated bool                            // it had an evaluation or an allocation once
		launched  int64                           // up to when a periodic job is launched (UnixNano)
		scaled    map[string][]fleet.ScalingEvent // by group, newest first
		tags      []taggedVersion
		sources   []versionSource
		stable    []uint64 // kept versions that a deployment brought to success, newest first
	}
	// bodyRow is a version of a job that is kept because refs versions or
	// allocations point to it.
	bodyRow struct {
		job  *fleet.Job
		refs int
	}
	nodeRow struct {
		fleet.Node
		lastSessionOpen fleet.Index // the entry of the last SessionOpen
		linkDown        bool        // by its journal so far, its link is gone
		history         history
		fenced          []FencedRows
	}
	allocRow struct {
		fleet.Alloc
		history            history
		endedBeforeRestore bool // it had ended before a restore: rows of before that are read again do not revive it
	}
	// deploymentRow is a deployment with its allocations. The row is written with
	// every change of one of them that a rollout has to know of.
	deploymentRow struct {
		fleet.Deployment
		allocs []fleet.AllocID // sorted; shared with older rows

		// Of the entry that works on it.
		added   []fleet.AllocID
		removed map[fleet.AllocID]bool

		// changed are the newest changes of its allocations that concern its watcher, those
		// after entry forgotten; shared with older rows. They are in no snapshot.
		changed   []changedAlloc `digest:"-"`
		forgotten fleet.Index    `digest:"-"`
	}
	desiredRow struct {
		node  fleet.NodeID
		index fleet.Index
	}
	capacityRow struct {
		class string
		index fleet.Index
	}
)

// key appends parts as an index key: each ends with a zero byte, so that no key
// is another one's prefix. Names with a zero byte in them are not valid.
func key(parts ...string) []byte {
	n := 0
	for _, p := range parts {
		n += len(p) + 1
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = append(append(b, p...), 0)
	}
	return b
}

func jobKeyOf(ns string, id fleet.JobID) []byte { return key(ns, string(id)) }

func jobRowKey(r *jobRow) []byte { return jobKeyOf(r.job.Namespace, r.job.ID) }

func evalKey(e *fleet.Evaluation) []byte { return key(string(e.ID)) }

func nodeRowKey(r *nodeRow) []byte { return key(string(r.ID)) }

func bodyKey(j *fleet.Job) []byte {
	b := key(j.SpecHash, j.Namespace, string(j.ID))
	b = binary.BigEndian.AppendUint64(b, j.Version)
	return binary.BigEndian.AppendUint64(b, uint64(j.CreateIndex))
}

func createdKey(index fleet.Index, id fleet.DeploymentID) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(index)), key(string(id))...)
}

func partKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

func entryKey(index fleet.Index) []byte { return binary.BigEndian.AppendUint64(nil, uint64(index)) }

func changedKey(index fleet.Index, id fleet.EvalID) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(index)), key(string(id))...)
}

// indexer makes keys of one row type without reflection. Arguments are keys that
// were made by key and its friends; what a prefix search is given is one, too.
type indexer[R any] func(*R) []byte

func (f indexer[R]) FromObject(obj any) (bool, []byte, error) {
	r, ok := obj.(*R)
	if !ok {
		return false, nil, fmt.Errorf("index a %T as a %T", obj, r)
	}
	return true, f(r), nil
}

func (f indexer[R]) FromArgs(args ...any) ([]byte, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("index by %d arguments", len(args))
	}
	b, ok := args[0].([]byte)
	if !ok {
		return nil, fmt.Errorf("index by a %T", args[0])
	}
	return b, nil
}

func (f indexer[R]) PrefixFromArgs(args ...any) ([]byte, error) { return f.FromArgs(args...) }

// partialIndexer is an index of those rows of a table of which belongs says so. Who lists it
// wakes for them alone.
type partialIndexer[R any] struct {
	indexer[R]
	belongs func(*R) bool
}

func (p partialIndexer[R]) FromObject(obj any) (bool, []byte, error) {
	if r, ok := obj.(*R); ok && !p.belongs(r) {
		return false, nil, nil // a key would keep the row where it was when it belonged
	}
	return p.indexer.FromObject(obj)
}

func partialIndex[R any](name string, id indexer[R], belongs func(*R) bool) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, Unique: true, AllowMissing: true, Indexer: partialIndexer[R]{id, belongs}}
}

func tableSchema[R any](name string, id indexer[R], more ...*memdb.IndexSchema) *memdb.TableSchema {
	t := &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{
		indexID: {Name: indexID, Unique: true, Indexer: id},
	}}
	for _, m := range more {
		t.Indexes[m.Name] = m
	}
	return t
}

// Allocations have no index by job, node or evaluation: an entry in such an index
// takes more memory than all that an allocation says. The rosters list them.
func schema() *memdb.DBSchema {
	tables := []*memdb.TableSchema{
		tableSchema(tableMeta, func(r *metaRow) []byte { return key(r.name) }),
		tableSchema(tableCluster, func(r *clusterRow) []byte { return key(tableCluster) }),
		tableSchema(tableTokens, func(r *JoinToken) []byte { return key(r.ID) }),
		tableSchema(tableHubs, func(r *HubAddr) []byte { return key(string(r.ID)) }),
		tableSchema(tablePools, func(r *fleet.Pool) []byte { return key(r.Name) }),
		tableSchema(tableNamespaces, func(r *fleet.Namespace) []byte { return key(r.Name) }),
		tableSchema(tableCertificates, func(r *Certificate) []byte { return key(r.Serial) }),
		tableSchema(tableAdmissions, func(r *Admission) []byte { return key(r.Subject) }),
		tableSchema(tableRevocations, func(r *fleet.Revocation) []byte { return key(string(r.NodeID)) }),
		tableSchema(tableJobs, jobRowKey, partialIndex(indexPeriodic, jobRowKey, func(r *jobRow) bool { return r.job.IsPeriodic() })),
		tableSchema(tableBodies, func(r *bodyRow) []byte { return bodyKey(r.job) }),
		tableSchema(tableNodes, nodeRowKey, partialIndex(indexDraining, nodeRowKey, func(r *nodeRow) bool { return r.DrainStrategy != nil })),
		tableSchema(tableAllocs, func(r *allocRow) []byte { return key(string(r.ID)) }),
		tableSchema(tableJobSummaries, func(r *jobAllocSummary) []byte { return jobKeyOf(r.ns, r.id) }),
		tableSchema(tableNodeSummaries, func(r *nodeAllocSummary) []byte { return key(string(r.node)) }),
		tableSchema(tableScheduler, func(*fleet.SchedulerConfiguration) []byte { return key(tableScheduler) }),
		tableSchema(tableEvents, func(r *eventsRow) []byte { return entryKey(r.index) }),
		tableSchema(tableParts, func(r *partRow) []byte { return partKey(r.number) }),
		tableSchema(tableRestored, func(*restoredRow) []byte { return key(tableRestored) }),
		tableSchema(tableWindow, func(*windowRow) []byte { return key(tableWindow) }),
		tableSchema(tableDesired, func(r *desiredRow) []byte { return key(string(r.node)) }),
		tableSchema(tableCapacity, func(r *capacityRow) []byte { return key(r.class) }),
		tableSchema(tableDeployments, func(r *deploymentRow) []byte { return key(string(r.ID)) },
			&memdb.IndexSchema{Name: indexJob, Unique: true, Indexer: indexer[deploymentRow](
				func(r *deploymentRow) []byte {
					return append(jobKeyOf(r.Namespace, r.JobID), createdKey(r.CreateIndex, r.ID)...)
				})},
			&memdb.IndexSchema{Name: indexCreated, Unique: true, Indexer: indexer[deploymentRow](
				func(r *deploymentRow) []byte { return createdKey(r.CreateIndex, r.ID) })}),
		tableSchema(tableEvals, evalKey, partialIndex(indexAwaiting, evalKey, func(r *fleet.Evaluation) bool { return len(awaitedNodes(r)) > 0 }),
			&memdb.IndexSchema{Name: indexJob, Unique: true, Indexer: indexer[fleet.Evaluation](
				func(r *fleet.Evaluation) []byte { return key(r.Namespace, string(r.JobID), string(r.ID)) })},
			&memdb.IndexSchema{Name: indexChanged, Unique: true, Indexer: indexer[fleet.Evaluation](
				func(r *fleet.Evaluation) []byte { return changedKey(r.ModifyIndex, r.ID) })}),
	}
	s := &memdb.DBSchema{Tables: make(map[string]*memdb.TableSchema, len(tables))}
	for _, t := range tables {
		s.Tables[t.Name] = t
	}
	return s
}
