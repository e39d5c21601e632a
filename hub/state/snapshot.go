package state

import (
	"bufio"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"skerry/fleet"
)

// A snapshot is a header, then a deflated stream of records: the length of the
// body (unsigned varint), a byte that names the record's type, the body as CBOR.
// The last record counts the others and carries their checksum, so that a file
// that was cut short is never taken for a state.
const (
	snapshotMagic   = "SKERRYST"
	snapshotVersion = 1
	maxRecord       = 16 << 20
)

// Record types. Numbers are never used again.
const (
	recordMeta        = 1
	recordCluster     = 2
	recordToken       = 3
	recordHub         = 4
	recordPool        = 5
	recordCertificate = 6
	recordBody        = 7
	recordJob         = 8
	recordNode        = 9
	recordAlloc       = 10
	recordEval        = 11
	recordDesired     = 12
	recordCapacity    = 13
	recordEnd         = 14
	recordDeployment  = 20

	recordScheduler = 50

	recordWindow = 60
	recordEvent  = 61

	recordSource = 70

	recordNamespace = 80

	recordRestored = 90
	recordPart     = 91

	recordRevocation = 110
	recordAdmission  = 111
)

// What a record holds beyond what its noun does.
type (
	savedMeta struct {
		Name  string
		Index fleet.Index
	}
	savedBodyRef struct {
		SpecHash    string
		Version     uint64
		CreateIndex fleet.Index
	}
	savedJob struct {
		Job       fleet.Job
		Versions  []savedBodyRef // newest first
		Queued    map[string]int
		Evaluated bool
		Launched  int64
		Stable    []uint64
		Scaled    map[string][]fleet.ScalingEvent
		Tags      []taggedVersion
	}
	savedSource struct {
		Namespace string
		Job       fleet.JobID
		Version   uint64
		Source    *fleet.Submission
	}
	savedNode struct {
		Node    fleet.Node
		Opened  fleet.Index
		Apart   bool
		History savedHistory
		Fenced  []FencedRows
	}
	savedAlloc struct {
		Alloc          fleet.Alloc
		JobCreateIndex fleet.Index
		History        savedHistory
		Over           bool
	}
	savedHistory struct {
		Entries []savedEntry
		Dropped uint64
	}
	savedEntry struct {
		Index   fleet.Index
		Row     []byte
		Mark    *mark
		Offline bool
		Vital   bool
	}
	savedIndex struct {
		Key   string
		Index fleet.Index
	}
	savedEnd struct {
		Records  uint64
		Checksum uint32
	}
)

// Persist writes a snapshot of the state as it is at the call.
func (s *Store) Persist(w io.Writer) error { return s.View().Persist(w) }

// Persist writes the view as a snapshot, while the state goes on.
func (v *View) Persist(w io.Writer) error {
	if _, err := w.Write(append([]byte(snapshotMagic), snapshotVersion)); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	deflated, err := flate.NewWriter(w, flate.BestSpeed)
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	out := &recordWriter{w: bufio.NewWriterSize(deflated, 64<<10), sum: crc32.NewIEEE()}
	quiet := &View{txn: v.txn}
	quiet.persistCluster(out)
	quiet.persistWork(out)
	quiet.persistEvents(out)
	end := savedEnd{Records: out.records, Checksum: out.sum.Sum32()}
	out.put(recordEnd, end)
	err = errors.Join(out.err, out.w.Flush(), deflated.Close())
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

func (v *View) persistCluster(out *recordWriter) {
	for r := range scan[metaRow](v.txn, tableMeta, indexID, nil) {
		out.put(recordMeta, savedMeta{r.name, r.index})
	}
	if c, ok := v.Cluster(); ok {
		out.put(recordCluster, *c)
	}
	for r := range scan[JoinToken](v.txn, tableTokens, indexID, nil) {
		out.put(recordToken, *r)
	}
	for r := range scan[HubAddr](v.txn, tableHubs, indexID, nil) {
		out.put(recordHub, *r)
	}
	for r := range scan[fleet.Pool](v.txn, tablePools, indexID, nil) {
		out.put(recordPool, *r)
	}
	for r := range scan[Certificate](v.txn, tableCertificates, indexID, nil) {
		out.put(recordCertificate, *r)
	}
	for r := range scan[Admission](v.txn, tableAdmissions, indexID, nil) {
		out.put(recordAdmission, *r)
	}
	for r := range scan[fleet.Revocation](v.txn, tableRevocations, indexID, nil) {
		out.put(recordRevocation, *r)
	}
	for r := range scan[fleet.SchedulerConfiguration](v.txn, tableScheduler, indexID, nil) {
		out.put(recordScheduler, *r)
	}
	for r := range scan[fleet.Namespace](v.txn, tableNamespaces, indexID, nil) {
		out.put(recordNamespace, *r)
	}
	for r := range scan[restoredRow](v.txn, tableRestored, indexID, nil) {
		out.put(recordRestored, *r)
	}
	for r := range scan[partRow](v.txn, tableParts, indexID, nil) {
		out.put(recordPart, savedPart{r.restore, r.number, r.data})
	}
	for r := range scan[desiredRow](v.txn, tableDesired, indexID, nil) {
		out.put(recordDesired, savedIndex{string(r.node), r.index})
	}
	for r := range scan[capacityRow](v.txn, tableCapacity, indexID, nil) {
		out.put(recordCapacity, savedIndex{r.class, r.index})
	}
}

// persistWork writes bodies before what refers to them.
func (v *View) persistWork(out *recordWriter) {
	for r := range scan[bodyRow](v.txn, tableBodies, indexID, nil) {
		out.put(recordBody, *r.job)
	}
	for r := range scan[jobRow](v.txn, tableJobs, indexID, nil) {
		saved := savedJob{Job: *r.job, Queued: r.queued, Evaluated: r.evaluated, Launched: r.launched, Stable: r.stable,
			Scaled: r.scaled, Tags: r.tags}
		for _, j := range r.versions {
			saved.Versions = append(saved.Versions, savedBodyRef{j.SpecHash, j.Version, j.CreateIndex})
		}
		out.put(recordJob, saved)
		for _, s := range r.sources {
			out.put(recordSource, savedSource{r.job.Namespace, r.job.ID, s.Version, s.Source})
		}
	}
	for r := range scan[nodeRow](v.txn, tableNodes, indexID, nil) {
		out.put(recordNode, savedNode{r.Node, r.opened, r.apart, r.history.saved(), r.fenced})
	}
	for r := range scan[deploymentRow](v.txn, tableDeployments, indexID, nil) {
		out.put(recordDeployment, r.Deployment)
	}
	for r := range scan[allocRow](v.txn, tableAllocs, indexID, nil) {
		out.put(recordAlloc, savedAlloc{r.Alloc, r.Job.CreateIndex, r.history.saved(), r.over})
	}
	for r := range scan[fleet.Evaluation](v.txn, tableEvals, indexID, nil) {
		out.put(recordEval, *r)
	}
}

func (h *history) saved() savedHistory {
	s := savedHistory{Dropped: h.dropped}
	for _, e := range h.entries {
		s.Entries = append(s.Entries, savedEntry{e.index, e.row, e.mark, e.offline, e.vital})
	}
	return s
}

func (s savedHistory) restored() history {
	h := history{dropped: s.Dropped}
	if len(s.Entries) > 0 {
		h.entries = make([]historyEntry, 0, len(s.Entries))
	}
	for _, e := range s.Entries {
		entry := historyEntry{e.Index, e.Row, e.Mark, e.Offline, e.Vital}
		h.entries = append(h.entries, entry)
		h.bytes += entry.size()
	}
	return h
}

type recordWriter struct {
	w       *bufio.Writer
	sum     hash.Hash32
	records uint64
	body    []byte // of the record that is being written
	err     error  // the first
}

func (o *recordWriter) put(kind byte, v any) {
	if o.err != nil {
		return
	}
	o.body = appendValue(o.body[:0], v)
	body := o.body
	if len(body) > maxRecord {
		o.err = fmt.Errorf("a record of type %d has %d bytes", kind, len(body))
		return
	}
	head := append(binary.AppendUvarint(nil, uint64(len(body))), kind)
	_, err1 := o.w.Write(head)
	_, err2 := o.w.Write(body)
	o.sum.Write(head)
	o.sum.Write(body)
	o.records++
	o.err = errors.Join(err1, err2)
}
