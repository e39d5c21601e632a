package state

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"

	"skerry/fleet"
)

// Sealed makes a snapshot of records: whatever they are, its end record is right. What
// comes behind the last whole record is left out.
func Sealed(records []byte) []byte {
	var whole []byte
	var end savedEnd
	for rest := records; len(rest) > 0; {
		n, head := binary.Uvarint(rest)
		if head <= 0 || n > maxRecord || uint64(len(rest)) < uint64(head)+1+n || rest[head] == recordEnd {
			break
		}
		whole = append(whole, rest[:uint64(head)+1+n]...)
		rest = rest[uint64(head)+1+n:]
		end.Records++
	}
	// As the reader has it: over each record's shortest head and its body.
	for rest := whole; len(rest) > 0; {
		n, head := binary.Uvarint(rest)
		end.Checksum = crc32.Update(end.Checksum, crc32.IEEETable, append(binary.AppendUvarint(nil, n), rest[head]))
		rest = rest[head+1:]
		end.Checksum = crc32.Update(end.Checksum, crc32.IEEETable, rest[:n])
		rest = rest[n:]
	}
	body := encode(end)
	whole = append(append(binary.AppendUvarint(whole, uint64(len(body))), recordEnd), body...)
	var out bytes.Buffer
	out.WriteString(snapshotMagic)
	out.WriteByte(snapshotVersion)
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		panic(err) // a constant level
	}
	if _, err := w.Write(whole); err != nil {
		panic(err) // a buffer takes everything
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// NoteChanges notes n changes of a deployment's allocations, by entries from 1 on: how many
// are remembered, and the newest entry that is not.
func NoteChanges(n int) (kept int, forgotten fleet.Index) {
	d := &deploymentRow{}
	for i := range n {
		d.noteChange(fleet.Index(1+i), "a")
	}
	return len(d.changed), d.forgotten
}

// ChangesKept is how many are remembered at least.
const ChangesKept = changesKept

// ChangeNode changes a node's record as no command does, for tests of Check.
func (s *Store) ChangeNode(index fleet.Index, id fleet.NodeID, change func(*fleet.Node)) {
	gen := s.cur.Load()
	t := beginEntry(gen.db, index)
	change(&t.ownNodeRow(id).Node)
	t.commitEntry(gen.db)
}

// MaxDeletedVariables exports maxDeletedVariables.
const MaxDeletedVariables = maxDeletedVariables

// MaxSiteActions exports maxSiteActions.
const MaxSiteActions = maxSiteActions
