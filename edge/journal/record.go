package journal

import (
	"context"
	"database/sql"
	"fmt"

	"skerry/fleet"
	"skerry/syncproto"
)

// rowOverhead estimates the space of a row besides its body: keys, hash, page.
const rowOverhead = 48

// Record appends transitions in order and returns when they are durable. It sets Seq, BootID, Mono and Wall in
// what it stores, not in ts. If it fails, none of ts is stored; only after the end of ctx, or a failed commit
// whose outcome is unknown, may all of ts be stored.
func (j *Journal) Record(ctx context.Context, ts ...fleet.Transition) error {
	if len(ts) == 0 {
		return nil
	}
	return j.submitOp(ctx, &op{write: func(b *batch) error { return b.recordTransitions(ts) }})
}

// recordTransitions appends ts as rows and applies them to the states. While the space for droppable
// transitions is used up, those are applied and counted, but not stored. A gap row with the count precedes the
// next stored row.
func (b *batch) recordTransitions(ts []fleet.Transition) error {
	for i := range ts {
		t := ts[i]
		t.BootID, t.Mono, t.Wall = b.j.cfg.BootID, b.j.clock.timeSinceBoot(), b.j.cfg.Now().UnixNano()
		if t.Droppable() && b.isDroppableFull() {
			b.durable.checkpoint.Dropped++
			b.durable.checkpoint.DroppedEver++
			b.checkpointNeeded = true
			t.Seq = b.durable.head.Last
			b.updateAllocState(t)
			continue
		}
		if n := b.durable.checkpoint.Dropped; n > 0 {
			gap := fleet.Transition{BootID: t.BootID, Mono: t.Mono, Wall: t.Wall, Kind: fleet.TransitionGap, Dropped: n}
			if err := b.insertRow(gap); err != nil {
				return err
			}
			b.durable.checkpoint.Dropped = 0
			b.checkpointNeeded = true
		}
		if err := b.insertRow(t); err != nil {
			return err
		}
	}
	return nil
}

// isDroppableFull reports whether rows use three quarters of MaxBytes, after which droppable transitions are
// not stored.
func (b *batch) isDroppableFull() bool {
	return b.durable.bytes >= b.j.cfg.MaxBytes/4*3
}

// insertRow appends a transition as a row of now and applies it to the state of its allocation.
func (b *batch) insertRow(t fleet.Transition) error {
	if err := b.announceStep(StepInsertRow); err != nil {
		return err
	}
	if err := b.appendRow(t, int64(b.j.clock.journalAge())); err != nil {
		return err
	}
	t.Seq = b.durable.head.Last
	b.updateAllocState(t)
	return nil
}

// appendRow writes a transition under the next number, as of the journal's given age in ns, and moves the
// batch's head. It does not change the state of the allocation.
func (b *batch) appendRow(t fleet.Transition, age int64) error {
	t.Seq = b.durable.head.Last + 1
	body, err := syncproto.EncodeRow(t)
	if err != nil {
		return fmt.Errorf("encode row %d: %w", t.Seq, err)
	}
	hash := syncproto.ChainHash(b.durable.head.ChainHash, body)
	if err := b.db.putRow(row{seq: t.Seq, age: age, hash: hash, body: body}); err != nil {
		return err
	}
	b.durable.head.Last, b.durable.head.ChainHash = t.Seq, hash
	if t.Urgent() {
		b.durable.head.Urgent = t.Seq
	}
	b.durable.bytes += int64(len(body)) + rowOverhead
	return nil
}

// updateAllocState applies a transition to its allocation's state in this batch. A transition without an
// allocation changes nothing.
func (b *batch) updateAllocState(t fleet.Transition) {
	if t.Alloc != "" {
		b.states[t.Alloc] = b.allocState(t.Alloc).applyTransition(t)
	}
}

// row is a row as stored.
type row struct {
	seq  fleet.Seq
	age  int64 // age of the journal in ns
	hash []byte
	body []byte
	sum  sql.NullInt64 // of the columns outside the chain, as read
}

// putRow writes a row to the table rows.
func (d *database) putRow(r row) error {
	_, err := d.stmtRow.ExecContext(background, int64(r.seq), r.age, r.hash, r.body, checksum(int64(r.seq), r.age))
	return err
}

// scanRow reads one row of table rows. It checks nothing.
func scanRow(rows *sql.Rows) (r row, err error) {
	var seq int64
	err = rows.Scan(&seq, &r.age, &r.hash, &r.body, &r.sum)
	r.seq = fleet.Seq(seq)
	return r, err
}

// verifyChecksum returns an error if the columns that the chain does not cover do not match their checksum.
func (r row) verifyChecksum() error { return checkUnaltered(r.sum, "rows", int64(r.seq), r.age) }

// eachRow calls visit for the rows from number from on, in order, until visit returns false or an error.
func (d *database) eachRow(from fleet.Seq, visit func(row) (more bool, err error)) error {
	return d.forEachResult("SELECT seq, age, hash, body, sum FROM rows WHERE seq >= ? ORDER BY seq", []any{int64(from)},
		func(rows *sql.Rows) (bool, error) {
			r, err := scanRow(rows)
			if err != nil {
				return false, err
			}
			return visit(r)
		})
}

// Rows returns encoded rows from number from on, in order: at most maxRows and maxBytes, but at least one if
// there is one. first is the number of the first; it is greater than from if older rows are no longer held.
// prev is the chain hash before it.
func (j *Journal) Rows(ctx context.Context, from fleet.Seq, maxRows, maxBytes int) (first fleet.Seq, prev []byte, rows [][]byte, err error) {
	var page struct { // owned by the writer until it has answered
		first fleet.Seq
		prev  []byte
		rows  [][]byte
	}
	err = j.submitOp(ctx, &op{read: func(d *database) (err error) {
		page.first, page.prev, page.rows, err = j.readRowBatch(d, from, maxRows, maxBytes)
		return err
	}})
	if err != nil {
		return 0, nil, nil, fmt.Errorf("read rows from number %d: %w", from, err)
	}
	return page.first, page.prev, page.rows, nil
}

// readRowBatch does the work of Rows. Only the writer may call it.
func (j *Journal) readRowBatch(d *database, from fleet.Seq, maxRows, maxBytes int) (first fleet.Seq, prev []byte, rows [][]byte, err error) {
	first = max(from, j.durable.head.First)
	if first > j.durable.head.Last {
		return first, j.durable.head.ChainHash, nil, nil
	}
	if prev, err = d.hashAt(first - 1); err != nil {
		return 0, nil, nil, err
	}
	size := 0
	err = d.eachRow(first, func(r row) (bool, error) {
		if len(rows) > 0 && (len(rows) >= maxRows || size+len(r.body) > maxBytes) {
			return false, nil
		}
		rows = append(rows, r.body)
		size += len(r.body)
		return true, nil
	})
	return first, prev, rows, err
}

// hashAt returns the chain hash after row seq, which must be a held row or the base.
func (d *database) hashAt(seq fleet.Seq) ([]byte, error) {
	var base base
	if err := d.readMeta(metaBase, &base); err != nil {
		return nil, err
	}
	if seq == base.Seq {
		return base.Hash, nil
	}
	var hash []byte
	if err := d.queryRow("SELECT hash FROM rows WHERE seq = ?", int64(seq)).Scan(&hash); err != nil {
		return nil, fmt.Errorf("read the chain hash at row %d: %w", seq, err)
	}
	return hash, nil
}

// Acknowledge records in memory that the cluster has applied the rows up to seq; a lower number than before
// changes nothing. A later commit writes it: after a crash the hub repeats it. While rows are lost (Head.Lost),
// it does nothing.
func (j *Journal) Acknowledge(seq fleet.Seq) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.durable.missing.Reason != "" {
		return // seq counts rows that were lost
	}
	if seq = min(seq, j.durable.head.Last); seq > j.contact.acknowledged {
		j.contact.acknowledged = seq
		j.contact.dirty = true
	}
}

// historyPage bounds the rows of one read of History, so that writers do not wait long for it.
const historyPage = 2000

// History returns the held rows with a number above after: those of one allocation, or all if alloc is "".
func (j *Journal) History(ctx context.Context, alloc fleet.AllocID, after fleet.Seq) ([]fleet.Transition, error) {
	var ts []fleet.Transition
	for next := max(after+1, j.Head().First); ; {
		n := 0
		err := j.submitOp(ctx, &op{read: func(d *database) error {
			return d.eachRow(next, func(r row) (bool, error) {
				t, err := syncproto.DecodeRow(r.body)
				if err != nil {
					return false, damaged("decode row %d: %v", r.seq, err)
				}
				if alloc == "" || t.Alloc == alloc {
					ts = append(ts, t)
				}
				n++
				next = r.seq + 1
				return n < historyPage, nil
			})
		}})
		if err != nil {
			return nil, fmt.Errorf("read the history of %q: %w", alloc, err)
		}
		if n < historyPage {
			return ts, nil
		}
	}
}
