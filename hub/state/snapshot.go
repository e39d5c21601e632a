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
	"skerry/internal/codec"
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
		Mark    *hubEvent
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
	out.writeRecord(recordEnd, end)
	err = errors.Join(out.err, out.w.Flush(), deflated.Close())
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

func (v *View) persistCluster(out *recordWriter) {
	for r := range scanRows[metaRow](v.txn, tableMeta, indexID, nil) {
		out.writeRecord(recordMeta, savedMeta{r.name, r.index})
	}
	if c, ok := v.Cluster(); ok {
		out.writeRecord(recordCluster, *c)
	}
	for r := range scanRows[JoinToken](v.txn, tableTokens, indexID, nil) {
		out.writeRecord(recordToken, *r)
	}
	for r := range scanRows[HubAddr](v.txn, tableHubs, indexID, nil) {
		out.writeRecord(recordHub, *r)
	}
	for r := range scanRows[fleet.Pool](v.txn, tablePools, indexID, nil) {
		out.writeRecord(recordPool, *r)
	}
	for r := range scanRows[Certificate](v.txn, tableCertificates, indexID, nil) {
		out.writeRecord(recordCertificate, *r)
	}
	for r := range scanRows[Admission](v.txn, tableAdmissions, indexID, nil) {
		out.writeRecord(recordAdmission, *r)
	}
	for r := range scanRows[fleet.Revocation](v.txn, tableRevocations, indexID, nil) {
		out.writeRecord(recordRevocation, *r)
	}
	for r := range scanRows[fleet.SchedulerConfiguration](v.txn, tableScheduler, indexID, nil) {
		out.writeRecord(recordScheduler, *r)
	}
	for r := range scanRows[fleet.Namespace](v.txn, tableNamespaces, indexID, nil) {
		out.writeRecord(recordNamespace, *r)
	}
	for r := range scanRows[restoredRow](v.txn, tableRestored, indexID, nil) {
		out.writeRecord(recordRestored, *r)
	}
	for r := range scanRows[partRow](v.txn, tableParts, indexID, nil) {
		out.writeRecord(recordPart, savedPart{r.restore, r.number, r.data})
	}
	for r := range scanRows[desiredRow](v.txn, tableDesired, indexID, nil) {
		out.writeRecord(recordDesired, savedIndex{string(r.node), r.index})
	}
	for r := range scanRows[capacityRow](v.txn, tableCapacity, indexID, nil) {
		out.writeRecord(recordCapacity, savedIndex{r.class, r.index})
	}
}

// persistWork writes bodies before what refers to them.
func (v *View) persistWork(out *recordWriter) {
	for r := range scanRows[bodyRow](v.txn, tableBodies, indexID, nil) {
		out.writeRecord(recordBody, *r.job)
	}
	for r := range scanRows[jobRow](v.txn, tableJobs, indexID, nil) {
		saved := savedJob{Job: *r.job, Queued: r.queued, Evaluated: r.evaluated, Launched: r.launched, Stable: r.stable,
			Scaled: r.scaled, Tags: r.tags}
		for _, j := range r.versions {
			saved.Versions = append(saved.Versions, savedBodyRef{j.SpecHash, j.Version, j.CreateIndex})
		}
		out.writeRecord(recordJob, saved)
		for _, s := range r.sources {
			out.writeRecord(recordSource, savedSource{r.job.Namespace, r.job.ID, s.Version, s.Source})
		}
	}
	for r := range scanRows[nodeRow](v.txn, tableNodes, indexID, nil) {
		out.writeRecord(recordNode, savedNode{r.Node, r.lastSessionOpen, r.linkDown, r.history.toSavedHistory(), r.fenced})
	}
	for r := range scanRows[deploymentRow](v.txn, tableDeployments, indexID, nil) {
		out.writeRecord(recordDeployment, r.Deployment)
	}
	for r := range scanRows[allocRow](v.txn, tableAllocs, indexID, nil) {
		out.writeRecord(recordAlloc, savedAlloc{r.Alloc, r.Job.CreateIndex, r.history.toSavedHistory(), r.endedBeforeRestore})
	}
	for r := range scanRows[fleet.Evaluation](v.txn, tableEvals, indexID, nil) {
		out.writeRecord(recordEval, *r)
	}
}

func (h *history) toSavedHistory() savedHistory {
	s := savedHistory{Dropped: h.dropped}
	for _, e := range h.entries {
		s.Entries = append(s.Entries, savedEntry{e.index, e.row, e.hubEvent, e.offline, e.vital})
	}
	return s
}

func (s savedHistory) toHistory() history {
	h := history{dropped: s.Dropped}
	if len(s.Entries) > 0 {
		h.entries = make([]historyEntry, 0, len(s.Entries))
	}
	for _, e := range s.Entries {
		entry := historyEntry{e.Index, e.Row, e.Mark, e.Offline, e.Vital}
		h.entries = append(h.entries, entry)
		h.bytes += entry.entryBytes()
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

func (o *recordWriter) writeRecord(kind byte, v any) {
	if o.err != nil {
		return
	}
	o.body = codec.AppendLean(o.body[:0], v)
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
