package journal

import (
	"context"
	"fmt"
	"strings"

	"skerry/fleet"
	"skerry/syncproto"
)

// lostRows says that rows may be missing. Until the cluster has said where to go on,
// the rows from From on have numbers that mean nothing to anybody else.
type lostRows struct {
	Reason string    `cbor:"1,keyasint,omitempty"` // "": none are
	From   fleet.Seq `cbor:"2,keyasint,omitempty"`
	To     fleet.Seq `cbor:"3,keyasint,omitempty"` // newest row that there was; 0: not known
}

// maxReason bounds a reason, which travels in a Hello and stands in a row.
const maxReason = 200

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

// putBackReason is why rows may be missing of a directory that was put back.
const putBackReason = "the data directory is an older copy"

// PutBack notes that the cluster has rows up to newest that this journal does not know,
// since its directory was put back. Rows that the cluster has not acknowledged here are kept
// and numbered anew by Rebase: those that were on their way when the copy was made may be
// told twice, and none that was made since is lost.
func (j *Journal) PutBack(ctx context.Context, newest fleet.Seq) error {
	err := j.submitOp(ctx, &op{write: func(b *batch) error {
		if b.durable.missing.Reason != "" {
			return nil
		}
		b.hasWrites = true
		b.durable.missing = lostRows{Reason: putBackReason, From: b.contact.acknowledged + 1, To: newest}
		return b.db.putMeta(metaLost, b.durable.missing)
	}})
	if err != nil {
		return fmt.Errorf("note that the journal is an older copy: %w", err)
	}
	return nil
}

// Rebase goes on from the row that the cluster has applied last, and its chain
// hash there, after rows were lost (Head.Lost): whatever is held beyond it follows,
// with numbers to match, around one row that says what is missing, then what again
// makes of the states. It does nothing where nothing was lost. again must not call
// the journal; nil makes nothing.
//
// Invariant: no earlier session's rows can still be applied, so what the cluster
// has not applied now it never had.
func (j *Journal) Rebase(ctx context.Context, applied fleet.Seq, hash []byte, again RowsOfStates) error {
	err := j.submitOp(ctx, &op{write: func(b *batch) error {
		if b.durable.missing.Reason == "" {
			return nil
		}
		if err := b.rebaseRows(applied, hash); err != nil || again == nil {
			return err
		}
		return b.recordTransitions(again(b.everyState()))
	}})
	if err != nil {
		return fmt.Errorf("go on after row %d: %w", applied, err)
	}
	return nil
}

// carriedRow is a row that is carried over.
type carriedRow struct {
	t   fleet.Transition
	age int64
}

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
	for id, s := range b.everyState() {
		seq, ok := moved[s.Seq]
		if !ok {
			seq = min(s.Seq, applied)
		}
		s.Seq = seq
		b.states[id] = s
	}
	return nil
}

// unappliedRows reads what the cluster has not applied: rows from before the damage, and
// those since.
func (b *batch) unappliedRows(applied fleet.Seq) (before, after []carriedRow, err error) {
	err = b.db.eachRow(0, func(r row) (bool, error) {
		t, err := syncproto.DecodeRow(r.body)
		switch {
		case err != nil:
			return false, damaged("row %d: %v", r.seq, err)
		case r.seq >= b.durable.missing.From:
			after = append(after, carriedRow{t, r.age})
		case r.seq > applied:
			before = append(before, carriedRow{t, r.age})
		}
		return true, nil
	})
	return before, after, err
}

// lossGapRow is the row that says what is missing between the rows from before the damage
// and those since, beside what rows that stand for lost ones say.
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
	case t.Dropped == 0:
		what = "the cluster had heard of all rows that are lost"
	}
	t.Message = fmt.Sprintf("%s (%s): %s", damageMessage, missing.Reason, what)
	return carriedRow{t, int64(b.j.clock.journalAge())}
}

// mergeGaps makes one row of those that stand for lost ones and follow each other.
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

func standsForLost(t fleet.Transition) bool {
	return t.Kind == fleet.TransitionGap && t.Message == damageMessage
}
