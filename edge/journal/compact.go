package journal

import (
	"skerry/fleet"
)

// base identifies the newest row that is no longer held, usually because it was deleted. The chain continues
// from its hash. The zero value is the base of a new journal.
type base struct {
	Seq  fleet.Seq `cbor:"1,keyasint"`
	Hash []byte    `cbor:"2,keyasint"`
	// Generation counts how often the chain was started again after damage. A high-water mark of an
	// earlier generation is ignored.
	Generation uint64 `cbor:"3,keyasint,omitempty"`
}

// compactRows bounds the rows that one transaction deletes.
const compactRows = 5000

// compactOldRows deletes acknowledged rows, oldest first and at most compactRows: rows older than the retention
// and, if the rows use more than half of MaxBytes, as many as it takes to get down to a quarter.
func (b *batch) compactOldRows() error {
	oldest := int64(b.j.clock.journalAge() - b.j.cfg.Retention)
	var cut row
	var freed int64
	n := 0
	err := b.db.eachRow(b.durable.head.First, func(r row) (bool, error) {
		tooMany := b.durable.bytes-freed > b.j.cfg.MaxBytes/4 && b.durable.bytes > b.j.cfg.MaxBytes/2
		if r.seq > b.contact.acknowledged || n == compactRows || r.age > oldest && !tooMany {
			return false, nil
		}
		cut = r
		freed += int64(len(r.body)) + rowOverhead
		n++
		return true, nil
	})
	if err != nil || n == 0 {
		return err
	}
	if err := b.announceStep(StepCompact); err != nil {
		return err
	}
	if err := b.db.deleteRowsUpTo(base{Seq: cut.seq, Hash: cut.hash, Generation: b.durable.generation}); err != nil {
		return err
	}
	b.checkpointNeeded = true // an acknowledgement must be durable before rows are deleted because of it
	b.durable.head.First = cut.seq + 1
	b.durable.bytes -= freed
	return nil
}

// deleteRowsUpTo deletes the rows up to b.Seq and stores b as the base from which the chain continues.
func (d *database) deleteRowsUpTo(b base) error {
	if err := d.putMeta(metaBase, b); err != nil {
		return err
	}
	return d.execStatement("DELETE FROM rows WHERE seq <= ?", int64(b.Seq))
}
