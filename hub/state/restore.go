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

// Restore replaces the state by a snapshot that Persist wrote, and wakes every View.Changed. If the
// snapshot is unreadable or contradicts itself, it returns an error and the state stays as it was.
func (s *Store) Restore(r io.Reader) error {
	gen := newGeneration()
	if err := readSnapshot(gen.db, r, math.MaxInt64); err != nil {
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

// readSnapshot reads a snapshot from r into the empty database db. It fails if the decompressed records exceed
// limit bytes.
func readSnapshot(db *memdb.MemDB, r io.Reader, limit int64) error {
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

// loader reads the records of a snapshot into a transaction on an empty database.
type loader struct {
	t       *tx
	r       *bufio.Reader
	records uint64                // read so far
	left    int64                 // bytes that the remaining records may have
	sum     uint32                // CRC-32 of the records read so far
	bodies  map[string]*fleet.Job // job bodies read so far, by bodyKey
}

// loadRecords reads all records, checks the last one, and derives the rows that a snapshot does not
// contain.
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

// readNextRecord reads one record. Its buffer grows only as bytes arrive, whatever length the record
// claims.
func (in *loader) readNextRecord() (kind byte, body []byte, err error) {
	n, err := binary.ReadUvarint(in.r)
	if err != nil {
		return 0, nil, fmt.Errorf("truncated after %d records: %w", in.records, asUnexpectedEOF(err))
	}
	if n > maxRecord {
		return 0, nil, fleet.Errorf(fleet.CodeInvalid, "record %d claims %d bytes", in.records, n)
	}
	if in.left -= int64(n); in.left < 0 {
		return 0, nil, fleet.Errorf(fleet.CodeInvalid, "the decompressed records exceed the allowed size with record %d", in.records)
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

// asUnexpectedEOF returns io.ErrUnexpectedEOF for io.EOF, and other errors as they are.
func asUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// finishLoading checks the count and checksum in the last record, and derives the missing rows.
func (in *loader) finishLoading(body []byte) error {
	var end savedEnd
	if err := decode(body, &end); err != nil {
		return fmt.Errorf("last record: %w", err)
	}
	if end.Records != in.records || end.Checksum != in.sum {
		return fleet.Errorf(fleet.CodeInvalid, "%d records with checksum %08x, and not %d with %08x",
			in.records, in.sum, end.Records, end.Checksum)
	}
	in.deriveRows()
	return nil
}

// deriveRows makes the rows that are not in a snapshot from those that are: body references, summaries,
// allocations of deployments, and the event window.
func (in *loader) deriveRows() {
	t := in.t
	for _, row := range jobTable.changesInOrder(t) {
		for _, version := range row.versions {
			t.addBodyRefs(version, 1)
		}
	}
	for _, row := range allocTable.changesInOrder(t) {
		t.addBodyRefs(row.Job, 1)
		t.updateSummaries(nil, &row.Alloc)
		if d := deploymentTable.currentRow(t, idKey(row.DeploymentID)); d != nil {
			d.added = append(d.added, row.ID)
			d.countCanary(&row.Alloc, 1)
		}
	}
	for _, e := range evalTable.changesInOrder(t) {
		if !e.Terminal() {
			t.ownJobSummary(e.Namespace, e.JobID).open++
		}
	}
	for _, r := range jobSummaryTable.changedRows(t) {
		r.allocs, r.added = mergeAllocIDs(nil, r.added, nil), nil
	}
	for _, r := range nodeSummaryTable.changedRows(t) {
		r.allocs, r.added = mergeAllocIDs(nil, r.added, nil), nil
	}
	applied := metaTable.currentRow(t, key(metaApplied))
	for _, r := range deploymentTable.changedRows(t) {
		r.allocs, r.added = mergeAllocIDs(nil, r.added, nil), nil
		r.changed, r.forgotten = nil, math.MaxInt64
		if applied != nil {
			r.forgotten = applied.index
		}
	}
	t.countEventWindow()
}

// loadRecord passes a record to the table of its type. An unknown type is an error with CodeVersion.
func (in *loader) loadRecord(number byte, body []byte) error {
	for _, tb := range tables {
		if known, err := tb.loadRecord(in, number, body); known {
			return err
		}
	}
	return newerReleaseError("a record of type %d", number)
}

// findLoadedBody returns the job body that a record refers to. It fails if that was not read before.
func (in *loader) findLoadedBody(ns string, id fleet.JobID, ref savedBodyRef) (*fleet.Job, error) {
	k := bodyKey(&fleet.Job{Namespace: ns, ID: id, SpecHash: ref.SpecHash, Version: ref.Version, CreateIndex: ref.CreateIndex})
	if job, ok := in.bodies[string(k)]; ok {
		return job, nil
	}
	return nil, fleet.Errorf(fleet.CodeInvalid, "version %d of job %s is missing", ref.Version, id)
}
