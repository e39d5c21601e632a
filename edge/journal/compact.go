package journal

import (
	"skerry/fleet"
)

// base is the newest row that is not held any more: the chain goes on from its
// hash.
type base struct {
	Seq  fleet.Seq `cbor:"1,keyasint"`
	Hash []byte    `cbor:"2,keyasint"`
	// Generation counts how often the chain was begun anew after damage: a witness
	// of an earlier one says nothing.
	Generation uint64 `cbor:"3,keyasint,omitempty"`
}

// compactRows bounds what one transaction deletes.
const compactRows = 5000

// compact deletes acknowledged rows, oldest first: those past the retention, and
// those whose bytes are needed to come down to a quarter of the bound.
func (b *batch) compact() error {
	oldest := int64(b.j.clock.age() - b.j.cfg.Retention)
	var cut row
	var freed int64
	n := 0
	err := b.db.eachRow(b.m.head.First, func(r row) (bool, error) {
		tooMany := b.m.bytes-freed > b.j.cfg.MaxBytes/4 && b.m.bytes > b.j.cfg.MaxBytes/2
		if r.seq > b.live.acknowledged || n == compactRows || r.age > oldest && !tooMany {
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
	if err := b.step(StepCompact); err != nil {
		return err
	}
	if err := b.db.cut(base{Seq: cut.seq, Hash: cut.hash, Generation: b.m.generation}); err != nil {
		return err
	}
	b.marked = true // an acknowledgement that is acted upon is durable
	b.m.head.First = cut.seq + 1
	b.m.bytes -= freed
	return nil
}

// cut drops the rows up to a new base.
func (d *database) cut(b base) error {
	if err := d.putMeta(metaBase, b); err != nil {
		return err
	}
	return d.exec("DELETE FROM rows WHERE seq <= ?", int64(b.Seq))
}
