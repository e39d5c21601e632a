package journal

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"skerry/fleet"
	"skerry/planted"
)

// Labels of the steps of the disk protocol, as Config.Step is given them.
const (
	StepBegin       = "begin"
	StepInsertRow   = "insert-row"
	StepDesired     = "desired"
	StepStop        = "stop"
	StepHandle      = "handle"
	StepLink        = "link"
	StepRemove      = "remove"
	StepRebase      = "rebase"
	StepCompact     = "compact"
	StepUpdateState = "update-state"
	StepMark        = "mark"
	StepCommit      = "commit"
	StepAfterCommit = "after-commit" // durable, and nobody has been told
	StepCheckpoint  = "checkpoint"
	// Of setting a damaged database aside.
	StepQuarantine = "quarantine"
	StepSalvage    = "salvage"
	StepSwap       = "swap"
)

// Steps returns the labels that writes pass in a journal that is sound.
func Steps() []string {
	return []string{
		StepBegin, StepInsertRow, StepDesired, StepStop, StepHandle, StepLink, StepRemove, StepCompact,
		StepUpdateState, StepMark, StepCommit, StepAfterCommit, StepCheckpoint,
	}
}

const (
	maxBatch        = 256              // ops folded into one commit
	checkpointEvery = 256              // commits
	lookEvery       = 10 * time.Second // whether the time has to be written
	alongEvery      = 10 * time.Second // it goes along with a commit
	aloneEvery      = time.Minute      // an acknowledgement that nothing goes along with is written
	compactEvery    = time.Hour
)

// op is what a caller asks of the writer: write runs in a transaction that others
// may share, read between transactions.
type op struct {
	write func(*batch) error
	read  func(*database) error
	done  chan error
}

// refused is an op's own fault: the others of its batch go on. An op returns it
// only before it has changed anything.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// memory mirrors what is durable. A batch works on a copy; nothing reachable from
// it is changed in place.
type memory struct {
	head        Head // but for Acknowledged, which is live
	bytes       int64
	states      map[fleet.AllocID]State
	link        Link
	mark        mark
	quarantined []Quarantine
	missing     lost
	generation  uint64    // base.Generation
	unsound     fleet.Seq // the newest acknowledged row that was damaged when it was opened; 0: none
	desired     *Desired  // nil: nobody has read it since it changed
}

// batch is one transaction.
type batch struct {
	j      *Journal
	db     *database
	m      memory
	live   live
	states map[fleet.AllocID]State // changed, or removed where BootID is ""
	marked bool                    // mark has to be written
	// rebased says that what is acknowledged is no longer what it was.
	rebased bool
	wrote   bool
}

func (b *batch) step(label string) error {
	b.wrote = true
	if err := b.j.cfg.Step(label); err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	return nil
}

// state is an allocation's state as this batch sees it.
func (b *batch) state(id fleet.AllocID) State {
	if s, ok := b.states[id]; ok {
		return s
	}
	return b.m.states[id]
}

// everyState is all states as this batch sees them.
func (b *batch) everyState() map[fleet.AllocID]State {
	all := maps.Clone(b.m.states)
	for id, s := range b.states {
		if s.BootID == "" {
			delete(all, id)
		} else {
			all[id] = s
		}
	}
	return all
}

// write is the writer goroutine.
func (j *Journal) write() {
	tick := time.NewTicker(min(lookEvery, j.cfg.MarkEvery))
	defer tick.Stop()
	w := writer{j: j, compacted: j.clock.age()}
	for {
		select {
		case o := <-j.ops:
			w.run(j.gather(o))
		case <-tick.C:
			w.tick()
		case <-j.quit:
			w.close()
			return
		}
	}
}

// gather takes what other callers are waiting with.
func (j *Journal) gather(first *op) []*op {
	ops := []*op{first}
	for len(ops) < maxBatch {
		select {
		case o := <-j.ops:
			ops = append(ops, o)
		default:
			return ops
		}
	}
	return ops
}

// writer is the state of the writer goroutine.
type writer struct {
	j         *Journal
	compacted time.Duration // age at the last compaction
	commits   int           // since the last checkpoint
	committed bool          // what was tried last is durable, whatever failed after it
	closed    bool          // a rewrite that failed has closed the database: the next look tries again
}

// run carries ops out: writes in one transaction, then reads.
func (w *writer) run(ops []*op) {
	writes := make([]*op, 0, len(ops))
	for _, o := range ops {
		if o.write != nil {
			writes = append(writes, o)
		}
	}
	if len(writes) > 0 {
		w.commit(writes)
	}
	for _, o := range ops {
		if o.read != nil {
			o.done <- o.read(w.j.db)
		}
	}
	w.maintain()
}

// commit runs writes in one transaction and answers them. Where the disk is full it gives up
// what is reserved for that, and tries again.
func (w *writer) commit(writes []*op) {
	j := w.j
	taken, err := w.try(writes)
	for isFull(err) && !w.committed && len(taken) > 0 && j.cfg.MakeRoom() {
		taken, err = w.try(taken)
	}
	if isFull(err) && w.committed {
		err = nil // the rows are durable: who hears of a failure writes them again
	}
	if err != nil {
		err = fmt.Errorf("write to the journal: %w", diskError(err))
	}
	for _, o := range taken {
		o.done <- err
	}
}

// try runs writes in one transaction. It answers those that are refused, and returns the others.
func (w *writer) try(writes []*op) (taken []*op, err error) {
	j := w.j
	w.committed = false
	j.mu.Lock()
	b := &batch{j: j, db: j.db, m: j.m, live: j.live, states: map[fleet.AllocID]State{}}
	j.mu.Unlock()
	taken, err = w.fill(b, writes)
	if planted.On(planted.AcknowledgeBeforeFsync) {
		for _, o := range taken {
			o.done <- nil
		}
		taken = nil
	}
	if err == nil && b.wrote {
		return taken, w.finish(b)
	}
	j.db.rollback()
	return taken, err
}

// fill runs the writes of a batch up to its commit. It answers those that are
// refused and returns the others.
func (w *writer) fill(b *batch, writes []*op) (taken []*op, err error) {
	if err := b.step(StepBegin); err != nil {
		return writes, err
	}
	if err := b.db.begin(); err != nil {
		return writes, err
	}
	b.wrote = false
	for i, o := range writes {
		err := o.write(b)
		if r, ok := err.(refused); ok {
			o.done <- r.error
			continue
		}
		taken = append(taken, o)
		if err != nil {
			return append(taken, writes[i+1:]...), err
		}
	}
	b.wrote = b.wrote || b.marked
	if !b.wrote {
		return taken, nil
	}
	return taken, b.flush()
}

// flush writes what a batch gathered in memory.
func (b *batch) flush() error {
	if len(b.states) > 0 {
		if err := b.step(StepUpdateState); err != nil {
			return err
		}
		if err := b.db.putStates(b.states); err != nil {
			return err
		}
		b.m.states = b.everyState()
	}
	age := b.j.clock.age()
	if !b.marked && !(b.live.dirty && age-b.m.mark.Age >= alongEvery) {
		return nil
	}
	if err := b.step(StepMark); err != nil {
		return err
	}
	b.marked = true
	b.m.mark = mark{
		BootID: b.j.cfg.BootID, Mono: b.j.clock.mono(), Age: age,
		AckAge: b.live.ackAge, Floor: b.live.floor, FloorAge: b.live.floorAge,
		HubTime: b.live.hubTime, HubAge: b.live.hubAge,
		Acknowledged: b.live.acknowledged,
		Dropped:      b.m.mark.Dropped, DroppedEver: b.m.mark.DroppedEver,
	}
	return b.db.putMeta(metaMark, b.m.mark)
}

// finish commits a batch and makes it what everybody sees.
func (w *writer) finish(b *batch) error {
	j := w.j
	if err := b.step(StepCommit); err != nil {
		j.db.rollback()
		return err
	}
	if err := j.db.commit(); err != nil {
		j.db.rollback()
		return err
	}
	w.commits++
	w.committed = true
	j.mu.Lock()
	grew := b.m.head.Last > j.m.head.Last || b.rebased
	j.m = b.m
	if b.rebased {
		j.live.acknowledged = b.live.acknowledged
	}
	if b.marked && j.live == b.live {
		j.live.dirty = false
	}
	if grew {
		close(j.appended)
		j.appended = make(chan struct{})
	}
	j.mu.Unlock()
	if grew {
		j.attest(witness{b.m.generation, b.m.head.Last})
	}
	if j.cfg.Paranoid {
		if err := j.db.check(); err != nil {
			panic(fmt.Sprintf("journal is not sound after a commit: %v", err))
		}
	}
	return b.step(StepAfterCommit)
}

// maintain compacts and checkpoints where it is time. Failures are logged: what
// was asked for is durable.
func (w *writer) maintain() {
	j := w.j
	if h := j.Head(); j.m.bytes > j.cfg.MaxBytes/2 && h.First <= h.Acknowledged {
		w.compact()
	}
	if w.commits < checkpointEvery {
		return
	}
	w.commits = 0
	err := j.cfg.Step(StepCheckpoint)
	if err == nil {
		err = j.db.checkpoint()
	}
	if err != nil {
		j.log.Warn("journal checkpoint failed", "error", err)
	}
}

// tick writes the time where it is due, and compacts every hour.
func (w *writer) tick() {
	j := w.j
	age := j.clock.age()
	j.mu.Lock()
	since := age - j.m.mark.Age
	due := since >= j.markEvery || since >= aloneEvery && j.live.acknowledged != j.m.mark.Acknowledged
	j.mu.Unlock()
	w.checkFiles()
	if due {
		w.background(func(b *batch) error { b.marked = true; return nil })
	}
	if age-w.compacted >= compactEvery {
		w.compact()
	}
	w.maintain()
}

func (w *writer) compact() {
	w.compacted = w.j.clock.age()
	w.background(func(b *batch) error { return b.compact() })
}

// background runs a write that nobody waits for.
func (w *writer) background(write func(*batch) error) {
	o := &op{write: write, done: make(chan error, 1)}
	w.commit([]*op{o})
	if err := <-o.done; err != nil {
		w.j.log.Warn("journal upkeep failed", "error", err)
	}
}

// close writes the time, and closes the database.
func (w *writer) close() {
	w.background(func(b *batch) error { b.marked = true; return nil })
	w.j.closeErr = errors.Join(w.j.db.close(), w.j.witness.Close())
}
