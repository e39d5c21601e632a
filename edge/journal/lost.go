package journal

import (
	"context"
	"fmt"
	"strings"

	"skerry/fleet"
	"skerry/syncproto"
)

// lostRows says why, and where, rows may be missing. Until Rebase has renumbered them, the rows from From on
// have numbers that no hub may see.
type lostRows struct {
	Reason string    `cbor:"1,keyasint,omitempty"` // "": no rows are missing
	From   fleet.Seq `cbor:"2,keyasint,omitempty"`
	To     fleet.Seq `cbor:"3,keyasint,omitempty"` // newest row that existed; 0: not known
}

// maxReason bounds a reason, which a Hello and a row contain.
const maxReason = 200

// shortReason removes the prefix of errDamaged from an error's text, replaces unprintable bytes, and cuts it to
// maxReason.
func shortReason(s string) string {
	s = strings.TrimPrefix(s, errDamaged.Error()+": ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' { // bytes of a damaged page
			return '?'
		}
		return r
	}, s)
	if len(s) > maxReason {
		s = s[:maxReason] + "..."
	}
	return s
}

// putBackReason is the reason after an older copy of the directory was restored.
const putBackReason = "the data directory is an older copy"

// RecordOlderCopy records that the data directory is an older copy: the cluster has rows up to newest, and this
// journal has fewer. Head.Lost says so until Rebase. Rows that were being sent when the copy was made may reach
// the cluster twice. If rows are already known to be lost, nothing changes.
func (j *Journal) RecordOlderCopy(ctx context.Context, newest fleet.Seq) error {
	err := j.submitOp(ctx, &op{write: func(b *batch) error {
		if b.durable.missing.Reason != "" {
			return nil
		}
		b.hasWrites = true
		b.durable.missing = lostRows{Reason: putBackReason, From: b.contact.acknowledged + 1, To: newest}
		return b.db.putMeta(metaLost, b.durable.missing)
	}})
	if err != nil {
		return fmt.Errorf("record that the journal is an older copy: %w", err)
	}
	return nil
}

// Rebase continues a journal that lost rows (Head.Lost) after applied, the row that the cluster has applied
// last, and its chain hash. It drops the rows that the cluster has, renumbers the others, adds one gap row for
// what is missing, and appends the rows that restate makes from the states; restate may be nil. If nothing was
// lost, Rebase does nothing.
//
// Invariant: no row of an earlier session can still be applied, so the cluster never had what it has not
// applied now.
func (j *Journal) Rebase(ctx context.Context, applied fleet.Seq, hash []byte, restate RowsOfStates) error {
	err := j.submitOp(ctx, &op{write: func(b *batch) error {
		if b.durable.missing.Reason == "" {
			return nil
		}
		if err := b.rebaseRows(applied, hash); err != nil || restate == nil {
			return err
		}
		return b.recordTransitions(restate(b.statesInBatch()))
	}})
	if err != nil {
		return fmt.Errorf("renumber the rows after row %d: %w", applied, err)
	}
	return nil
}

// carriedRow is a row that Rebase stores again under another number, with the age that it was stored with.
type carriedRow struct {
	t   fleet.Transition
	age int64
}

// rebaseRows replaces all rows by those that the cluster has not applied and a gap row, numbered after applied,
// and updates the row numbers in the states. It sets the head, and the acknowledged number to applied.
func (b *batch) rebaseRows(applied fleet.Seq, hash []byte) error {
	if err := b.announceStep(StepRebase); err != nil {
		return err
	}
	before, after, err := b.unappliedRows(applied)
	if err != nil {
		return err
	}
	start := base{Seq: applied, Hash: hash, Generation: b.durable.generation + 1}
	if err := b.db.execStatement("DELETE FROM rows"); err != nil {
		return err
	}
	if err := b.db.putMeta(metaBase, start); err != nil {
		return err
	}
	if err := b.db.putMeta(metaLost, lostRows{}); err != nil {
		return err
	}
	gap := b.lossGapRow(applied, before)
	b.durable.missing, b.durable.generation, b.durable.bytes = lostRows{}, start.Generation, 0
	b.durable.head = Head{First: applied + 1, Last: applied, ChainHash: hash}
	b.contact.acknowledged, b.checkpointNeeded, b.rebased = applied, true, true

	moved := map[fleet.Seq]fleet.Seq{}
	for _, h := range mergeGaps(append(append(before, gap), after...)) {
		old := h.t.Seq
		if err := b.appendRow(h.t, h.age); err != nil {
			return err
		}
		if old > 0 {
			moved[old] = b.durable.head.Last
		}
	}
	for id, s := range b.statesInBatch() {
		seq, ok := moved[s.Seq]
		if !ok {
			seq = min(s.Seq, applied)
		}
		s.Seq = seq
		b.states[id] = s
	}
	return nil
}

// unappliedRows returns the rows that the cluster has not applied: those recorded before rows were lost, and
// those recorded since then.
func (b *batch) unappliedRows(applied fleet.Seq) (before, after []carriedRow, err error) {
	err = b.db.eachRow(0, func(r row) (bool, error) {
		t, err := syncproto.DecodeRow(r.body)
		switch {
		case err != nil:
			return false, damaged("decode row %d: %v", r.seq, err)
		case r.seq >= b.durable.missing.From:
			after = append(after, carriedRow{t, r.age})
		case r.seq > applied:
			before = append(before, carriedRow{t, r.age})
		}
		return true, nil
	})
	return before, after, err
}

// lossGapRow makes the gap row that stands between the rows before and after the loss. It counts only losses
// that no other gap row counts.
func (b *batch) lossGapRow(applied fleet.Seq, before []carriedRow) carriedRow {
	missing := b.durable.missing
	t := fleet.Transition{
		BootID: b.j.cfg.BootID, Mono: b.j.clock.timeSinceBoot(), Wall: b.j.cfg.Now().UnixNano(), Kind: fleet.TransitionGap,
	}
	reached := applied
	if n := len(before); n > 0 {
		reached = before[n-1].t.Seq
		t.Dropped = uint64(before[0].t.Seq - applied - 1)
	}
	if missing.To > reached {
		t.Dropped += uint64(missing.To - reached)
	}
	what := fmt.Sprintf("%d rows that the cluster had not heard of are lost", t.Dropped)
	switch {
	case missing.To == 0:
		what = "how many rows are lost is not known"
	case missing.Reason == putBackReason: // rows that were recorded after the copy, and never sent, left no trace
		what = fmt.Sprintf("the cluster has all rows up to %d; whether there were later ones is not known", applied)
	case t.Dropped == 0:
		what = "the cluster has all rows that are known to be lost"
	}
	t.Message = fmt.Sprintf("%s (%s): %s", damageMessage, missing.Reason, what)
	return carriedRow{t, int64(b.j.clock.journalAge())}
}

// mergeGaps joins adjacent gap rows of lost rows into one that has the sum of their counts. It reuses the array
// of rows.
func mergeGaps(rows []carriedRow) []carriedRow {
	merged := rows[:0]
	for _, h := range rows {
		n := len(merged)
		if n > 0 && standsForLost(h.t) && standsForLost(merged[n-1].t) {
			merged[n-1].t.Dropped += h.t.Dropped
			continue
		}
		merged = append(merged, h)
	}
	return merged
}

// standsForLost reports whether t is a gap row for rows that damage destroyed, not for dropped ones.
func standsForLost(t fleet.Transition) bool {
	return t.Kind == fleet.TransitionGap && t.Message == damageMessage
}
