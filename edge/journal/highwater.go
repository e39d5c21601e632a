package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"

	"skerry/fleet"
)

// highWaterMark is kept in a file beside the database and holds the number of the newest row.
//
// SQLite treats a log that is cut short, altered or gone like a log that was never longer, so the
// database alone cannot tell that its newest rows are lost. The mark is written after every commit and
// never synced: it may lag after a power cut, and is never ahead of what is durable.
type highWaterMark struct {
	Generation uint64 // as base.Generation
	Seq        fleet.Seq
}

const (
	suffixHighWater = ".seen"
	highWaterSize   = 20
)

// readHighWater reads the mark of a database. It returns zero if the file is missing or damaged.
func readHighWater(path string) highWaterMark {
	b, err := os.ReadFile(path + suffixHighWater)
	if err != nil {
		return highWaterMark{}
	}
	return decodeHighWater(b)
}

// decodeHighWater returns zero for bytes with a wrong length or checksum.
func decodeHighWater(b []byte) highWaterMark {
	if len(b) != highWaterSize || crc32.ChecksumIEEE(b[:16]) != binary.BigEndian.Uint32(b[16:]) {
		return highWaterMark{}
	}
	return highWaterMark{Generation: binary.BigEndian.Uint64(b), Seq: fleet.Seq(binary.BigEndian.Uint64(b[8:]))}
}

// encodeMark returns the mark as the file has it: generation, number and a checksum.
func (w highWaterMark) encodeMark() []byte {
	b := make([]byte, 0, highWaterSize)
	b = binary.BigEndian.AppendUint64(b, w.Generation)
	b = binary.BigEndian.AppendUint64(b, uint64(w.Seq))
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// openHighWaterFile opens the file of the mark beside the database at path for writing, and makes it if it is
// missing.
func openHighWaterFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+suffixHighWater, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeHighWater writes the mark. An error is logged: the commit is durable all the same.
func (j *Journal) writeHighWater(w highWaterMark) {
	if _, err := j.highWaterFile.WriteAt(w.encodeMark(), 0); err != nil {
		j.log.Warn("high-water mark not written", "error", err)
	}
}
