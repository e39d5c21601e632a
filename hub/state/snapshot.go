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

	"skerry/internal/codec"
)

// A snapshot is a header and a deflated stream of records: the length of the
// body (unsigned varint), a byte with the record's type, and the body as CBOR.
// The last record has the number and the checksum of the others, so that a truncated
// file is never accepted.
const (
	snapshotMagic   = "SKERRYST"
	snapshotVersion = 1
	maxRecord       = 16 << 20
)

// recordEnd is the type of the last record. The declarations of the tables have the other types.
const recordEnd = 14

// savedEnd is the last record of a snapshot: the number and the CRC-32 of the records before it.
type savedEnd struct {
	Records  uint64
	Checksum uint32
}

// Persist writes a snapshot of the current state to w. Apply is not blocked meanwhile.
func (s *Store) Persist(w io.Writer) error { return s.View().Persist(w) }

// Persist writes the view as a snapshot to w. Apply is not blocked meanwhile.
func (v *View) Persist(w io.Writer) error {
	if _, err := w.Write(append([]byte(snapshotMagic), snapshotVersion)); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	deflated, err := flate.NewWriter(w, flate.BestSpeed)
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	out := &recordWriter{w: bufio.NewWriterSize(deflated, 64<<10), sum: crc32.NewIEEE()}
	for _, tb := range tables {
		tb.persistRows(v.txn, out)
	}
	end := savedEnd{Records: out.records, Checksum: out.sum.Sum32()}
	out.writeRecord(recordEnd, end)
	err = errors.Join(out.err, out.w.Flush(), deflated.Close())
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// recordWriter writes snapshot records, and counts and hashes them.
type recordWriter struct {
	w       *bufio.Writer
	sum     hash.Hash32
	records uint64
	body    []byte // of the record that is being written
	err     error  // the first error; nothing is written after it
}

// writeRecord writes v as a record of type kind. It sets o.err if the record is larger than maxRecord.
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
