package state

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// Restore replaces the state by a snapshot. Every View.Changed wakes. Where the
// snapshot cannot be read, or contradicts itself, the state stays as it was.
func (s *Store) Restore(r io.Reader) error {
	gen := newGeneration()
	if err := restore(gen.db, r, math.MaxInt64); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	v := &View{txn: gen.db.Txn(false)}
	if err := v.Check(); err != nil {
		return fmt.Errorf("check snapshot: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.cur.Swap(gen)
	close(old.gone)
	return nil
}

// restore reads a snapshot whose records take at most limit bytes into an empty
// database.
func restore(db *memdb.MemDB, r io.Reader, limit int64) error {
	header := make([]byte, len(snapshotMagic)+1)
	if _, err := io.ReadFull(r, header); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	version, ok := bytes.CutPrefix(header, []byte(snapshotMagic))
	if !ok {
		return fleet.Errorf(fleet.CodeInvalid, "this is not a snapshot")
	}
	if version[0] != snapshotVersion {
		return newerReleaseError("a snapshot of version %d", version[0])
	}
	inflated := flate.NewReader(r)
	defer inflated.Close()
	in := &loader{
		t: beginEntry(db, 0), r: bufio.NewReaderSize(inflated, 64<<10), left: limit,
		bodies: map[string]*fleet.Job{},
	}
	if err := in.loadRecords(); err != nil {
		return err
	}
	out := db.Txn(true)
	defer out.Abort()
	in.t.writeAll(out)
	out.Commit()
	return nil
}

// loader reads records into a transaction on an empty database. Rosters and
// reference counts are not in a snapshot: they follow from what is.
type loader struct {
	t       *tx
	r       *bufio.Reader
	records uint64
	left    int64 // how many bytes records may still take
	sum     uint32
	bodies  map[string]*fleet.Job // by bodyKey
}

func (in *loader) loadRecords() error {
	for {
		kind, body, err := in.readNextRecord()
		if err != nil {
			return err
		}
		if kind == recordEnd {
			return in.finishLoading(body)
		}
		if err := in.loadRecord(kind, body); err != nil {
			return fmt.Errorf("record %d of type %d: %w", in.records, kind, err)
		}
	}
}

// readNextRecord reads a record, and grows its buffer only as bytes arrive.
func (in *loader) readNextRecord() (kind byte, body []byte, err error) {
	n, err := binary.ReadUvarint(in.r)
	if err != nil {
		return 0, nil, fmt.Errorf("truncated after %d records: %w", in.records, asUnexpectedEOF(err))
	}
	if n > maxRecord {
		return 0, nil, fleet.Errorf(fleet.CodeInvalid, "record %d claims %d bytes", in.records, n)
	}
	if in.left -= int64(n); in.left < 0 {
		return 0, nil, fleet.Errorf(fleet.CodeInvalid, "record %d takes it beyond the bound of its size", in.records)
	}
	if kind, err = in.r.ReadByte(); err != nil {
		return 0, nil, fmt.Errorf("truncated after %d records: %w", in.records, asUnexpectedEOF(err))
	}
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, in.r, int64(n)); err != nil {
		return 0, nil, fmt.Errorf("truncated after %d records: %w", in.records, asUnexpectedEOF(err))
	}
	if kind != recordEnd {
		head := append(binary.AppendUvarint(nil, n), kind)
		in.sum = crc32.Update(crc32.Update(in.sum, crc32.IEEETable, head), crc32.IEEETable, buf.Bytes())
		in.records++
	}
	return kind, buf.Bytes(), nil
}

func asUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (in *loader) finishLoading(body []byte) error {
	var end savedEnd
	if err := decode(body, &end); err != nil {
		return fmt.Errorf("last record: %w", err)
	}
	if end.Records != in.records || end.Checksum != in.sum {
		return fleet.Errorf(fleet.CodeInvalid, "%d records with checksum %08x, and not %d with %08x",
			in.records, in.sum, end.Records, end.Checksum)
	}
	in.initEventWindow()
	for _, r := range in.t.jobSummaries.dirty {
		r.allocs, r.added = merge(nil, r.added, nil), nil
	}
	for _, r := range in.t.nodeSummaries.dirty {
		r.allocs, r.added = merge(nil, r.added, nil), nil
	}
	for _, r := range in.t.deployments.dirty {
		r.allocs, r.added = merge(nil, r.added, nil), nil
		r.changed, r.forgotten = nil, math.MaxInt64
		if applied := in.t.metas.currentRow(in.t, key(metaApplied)); applied != nil {
			r.forgotten = applied.index
		}
	}
	return nil
}

func (in *loader) loadRecord(kind byte, body []byte) error {
	switch kind {
	case recordBody:
		return decodeRecord(body, func(j *fleet.Job) error {
			in.bodies[string(bodyKey(j))] = j
			return nil
		})
	case recordJob:
		return decodeRecord(body, in.loadJob)
	case recordSource:
		return decodeRecord(body, in.loadJobSource)
	case recordNode:
		return decodeRecord(body, func(s *savedNode) error {
			in.t.nodes.putRow(key(string(s.Node.ID)), &nodeRow{s.Node, s.Opened, s.Apart, s.History.toHistory(), s.Fenced})
			return nil
		})
	case recordAlloc:
		return decodeRecord(body, in.loadAlloc)
	case recordDeployment:
		return decodeRecord(body, func(d *fleet.Deployment) error {
			in.t.deployments.putRow(key(string(d.ID)), &deploymentRow{Deployment: *d})
			return nil
		})
	case recordEval:
		return decodeRecord(body, func(e *fleet.Evaluation) error {
			in.t.evals.putRow(key(string(e.ID)), e)
			if !e.Terminal() {
				in.t.ownJobSummary(e.Namespace, e.JobID).open++
			}
			return nil
		})
	}
	return in.clusterRecord(kind, body)
}

func (in *loader) loadJob(s *savedJob) error {
	row := &jobRow{job: &s.Job, queued: s.Queued, evaluated: s.Evaluated, launched: s.Launched, stable: s.Stable,
		scaled: s.Scaled, tags: s.Tags}
	for _, ref := range s.Versions {
		job, err := in.findLoadedBody(s.Job.Namespace, s.Job.ID, ref)
		if err != nil {
			return err
		}
		row.versions = append(row.versions, job)
		in.t.addBodyRefs(job, 1)
	}
	in.t.jobs.putRow(jobKeyOf(s.Job.Namespace, s.Job.ID), row)
	return nil
}

func (in *loader) loadJobSource(s *savedSource) error {
	row := in.t.jobs.currentRow(in.t, jobKeyOf(s.Namespace, s.Job))
	if row == nil || s.Source == nil {
		return fleet.Errorf(fleet.CodeInvalid, "job %s, whose file it is, is missing", s.Job)
	}
	row.sources = append(row.sources, versionSource{s.Version, s.Source})
	return nil
}

func (in *loader) loadAlloc(s *savedAlloc) error {
	job, err := in.findLoadedBody(s.Alloc.Namespace, s.Alloc.JobID,
		savedBodyRef{s.Alloc.JobHash, s.Alloc.JobVersion, s.JobCreateIndex})
	if err != nil {
		return err
	}
	s.Alloc.Job = job
	row := &allocRow{s.Alloc, s.History.toHistory(), s.Over}
	in.t.allocs.putRow(key(string(row.ID)), row)
	in.t.addBodyRefs(job, 1)
	in.t.updateSummaries(nil, &row.Alloc)
	if d := in.t.deployments.currentRow(in.t, key(string(row.DeploymentID))); d != nil {
		d.added = append(d.added, row.ID)
	}
	return nil
}

// findLoadedBody finds a job's version among the records read so far.
func (in *loader) findLoadedBody(ns string, id fleet.JobID, ref savedBodyRef) (*fleet.Job, error) {
	k := bodyKey(&fleet.Job{Namespace: ns, ID: id, SpecHash: ref.SpecHash, Version: ref.Version, CreateIndex: ref.CreateIndex})
	if job, ok := in.bodies[string(k)]; ok {
		return job, nil
	}
	return nil, fleet.Errorf(fleet.CodeInvalid, "version %d of job %s is missing", ref.Version, id)
}

func (in *loader) clusterRecord(kind byte, body []byte) error {
	t := in.t
	switch kind {
	case recordMeta:
		return decodeRecord(body, func(s *savedMeta) error { t.metas.putRow(key(s.Name), &metaRow{s.Name, s.Index}); return nil })
	case recordCluster:
		return decodeRecord(body, func(c *Cluster) error { t.clusters.putRow(key(tableCluster), &clusterRow{*c}); return nil })
	case recordToken:
		return decodeRecord(body, func(r *JoinToken) error { t.tokens.putRow(key(r.ID), r); return nil })
	case recordHub:
		return decodeRecord(body, func(r *HubAddr) error { t.hubs.putRow(key(string(r.ID)), r); return nil })
	case recordPool:
		return decodeRecord(body, func(r *fleet.Pool) error { t.pools.putRow(key(r.Name), r); return nil })
	case recordCertificate:
		return decodeRecord(body, func(r *Certificate) error { t.certificates.putRow(key(r.Serial), r); return nil })
	case recordRevocation:
		return decodeRecord(body, func(r *fleet.Revocation) error { t.revocations.putRow(key(string(r.NodeID)), r); return nil })
	case recordAdmission:
		return decodeRecord(body, func(r *Admission) error { t.admissions.putRow(key(r.Subject), r); return nil })
	case recordScheduler:
		return decodeRecord(body, func(r *fleet.SchedulerConfiguration) error { t.scheduling.putRow(key(tableScheduler), r); return nil })
	case recordNamespace:
		return decodeRecord(body, func(r *fleet.Namespace) error { t.namespaces.putRow(key(r.Name), r); return nil })
	case recordRestored:
		return decodeRecord(body, func(r *restoredRow) error { t.restored.putRow(key(tableRestored), r); return nil })
	case recordPart:
		return decodeRecord(body, in.loadSnapshotPart)
	case recordWindow:
		return decodeRecord(body, func(s *savedWindow) error { in.ownEventWindow().floor = s.Floor; return nil })
	case recordEvent:
		return decodeRecord(body, in.loadEvent)
	case recordDesired:
		return decodeRecord(body, func(s *savedIndex) error {
			t.desired.putRow(key(s.Key), &desiredRow{fleet.NodeID(s.Key), s.Index})
			return nil
		})
	case recordCapacity:
		return decodeRecord(body, func(s *savedIndex) error { t.capacity.putRow(key(s.Key), &capacityRow{s.Key, s.Index}); return nil })
	}
	return newerReleaseError("a record of type %d", kind)
}

// decodeRecord decodes a record and hands it on.
func decodeRecord[R any](body []byte, then func(*R) error) error {
	r := new(R)
	if err := decode(body, r); err != nil {
		return err
	}
	return then(r)
}
