package journal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"skerry/fleet"
)

// Labels of the steps of the disk protocol, for Config.Step.
const (
	StepBegin           = "begin"
	StepInsertRow       = "insert-row"
	StepDesired         = "desired"
	StepStop            = "stop"
	StepHandle          = "handle"
	StepLink            = "link"
	StepRemove          = "remove"
	StepRebase          = "rebase"
	StepCompact         = "compact"
	StepUpdateState     = "update-state"
	StepWriteCheckpoint = "mark"
	StepCommit          = "commit"
	StepAfterCommit     = "after-commit" // durable, and no caller has its answer
	StepCheckpoint      = "checkpoint"
	// Replacing a damaged database.
	StepQuarantine = "quarantine"
	StepSalvage    = "salvage"
	StepSwap       = "swap"
)

const (
	maxBatch        = 256 // ops in one commit
	checkpointEvery = 256 // commits
	// commits while only the time is written: SQLite's log then begins anew before it grows, and a commit writes
	// half as many blocks of the disk as one that makes the log longer
	idleCheckpointEvery       = 16
	clockPollInterval         = 10 * time.Second // how often the writer checks if the time must be written
	fileCheckPolls            = 3                // after so many polls it looks if its files were changed from outside
	checkpointWithCommitAfter = 10 * time.Second // the time is written with a commit after this long
	checkpointAckAfter        = time.Minute      // an acknowledgement is written without another commit after this long
	compactEvery              = time.Hour
)

// op is a request to the writer. write runs in a transaction, together with other writes; read runs between
// transactions. The writer sends the result once, on done.
type op struct {
	write func(*batch) error
	read  func(*database) error
	done  chan error
}

// refusedWrite is an op's error that concerns only that op: the other ops of the batch continue. An op returns
// it before it changes anything.
type refusedWrite struct{ error }

func (r refusedWrite) Unwrap() error { return r.error }

// durableState is the part of the database's content that is kept in memory. A batch works on a copy, and
// nothing reachable from it is changed in place.
type durableState struct {
	head       Head // without Acknowledged, which is in contact
	bytes      int64
	states     map[fleet.AllocID]State
	link       Link
	checkpoint clockCheckpoint
	// sinceCheckpoint is the part of checkpoint.Age, at opening, that a row recorded after the newest checkpoint.
	sinceCheckpoint time.Duration
	quarantined     []Quarantine
	missing         lostRows
	generation      uint64    // base.Generation
	unsound         fleet.Seq // the newest acknowledged row that was damaged at opening; 0: none
	desired         *Desired  // nil: not decoded since it changed
}

// batch is one transaction, with the state in memory as it will be after the commit.
type batch struct {
	j                *Journal
	db               *database
	durable          durableState
	contact          hubContact
	states           map[fleet.AllocID]State // changed states; BootID "" removes a state
	checkpointNeeded bool                    // the time must be written
	recorded         bool                    // Journal.recorded
	nextWithin       time.Duration           // clockCheckpoint.NextWithin, if the time is written
	closes           bool                    // it is the last batch before the database is closed
	// rebased says that Rebase replaced the acknowledged number, which may have become lower.
	rebased   bool
	hasWrites bool // false: nothing to commit
}

// announceStep marks the batch as having writes and calls Config.Step with the label of the next step. Its
// error makes that step fail.
func (b *batch) announceStep(label string) error {
	b.hasWrites = true
	if err := b.j.cfg.Step(label); err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	return nil
}

// allocState returns an allocation's state as this batch has changed it so far.
func (b *batch) allocState(id fleet.AllocID) State {
	if s, ok := b.states[id]; ok {
		return s
	}
	return b.durable.states[id]
}

// statesInBatch returns the states of all allocations as this batch has changed them so far, in a new map.
func (b *batch) statesInBatch() map[fleet.AllocID]State {
	all := maps.Clone(b.durable.states)
	for id, s := range b.states {
		if s.BootID == "" {
			delete(all, id)
		} else {
			all[id] = s
		}
	}
	return all
}

// runWriter executes ops and the periodic upkeep until quit is closed, and then closes the database. It is the
// writer goroutine.
func (j *Journal) runWriter() {
	poll := j.pollInterval()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	w := writer{j: j, compacted: j.clock.journalAge()}
	for {
		select {
		case o := <-j.ops:
			w.executeOps(j.collectOps(o))
		case <-tick.C:
			w.runPeriodicUpkeep(poll)
		case <-j.intervalChanged:
			w.runPeriodicUpkeep(j.pollInterval())
		case <-j.quit:
			w.closeDatabase()
			return
		}
		if now := j.pollInterval(); now != poll {
			poll = now
			tick.Reset(poll)
		}
	}
}

// collectOps returns first and the ops of callers that wait at this moment, at most maxBatch. It does not wait.
func (j *Journal) collectOps(first *op) []*op {
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

// writer is the state that only the writer goroutine uses.
type writer struct {
	j         *Journal
	compacted time.Duration // age at the last compaction
	polls     int           // since the files were looked at
	commits   int           // since the last checkpoint
	idle      bool          // the last transaction wrote only the time
	committed bool          // the last attempt is durable, whatever failed after it
	damage    string        // how the files were changed from outside; "": they were not, or are rebuilt
	closed    bool          // a failed rebuild has closed the database: the next check tries again
}

// executeOps runs the writes in one transaction, then the reads, and answers each op. Then it compacts and
// checkpoints if that is due.
func (w *writer) executeOps(ops []*op) {
	writes := make([]*op, 0, len(ops))
	for _, o := range ops {
		if o.write != nil {
			writes = append(writes, o)
		}
	}
	if len(writes) > 0 {
		w.commitWithRetry(writes)
	}
	for _, o := range ops {
		if o.read != nil {
			o.done <- o.read(w.j.db)
		}
	}
	w.compactAndCheckpoint()
}

// commitWithRetry runs writes in one transaction and answers each of them. On a full disk it frees the reserve
// and tries again, until no reserve is left. Before that it rebuilds the database if its files were changed.
func (w *writer) commitWithRetry(writes []*op) {
	j := w.j
	if w.damage == "" { // otherwise the next poll tries again
		w.rebuildIfFilesChanged()
	}
	taken, err := w.tryCommit(writes)
	for isFull(err) && !w.committed && len(taken) > 0 && j.cfg.FreeReserve() {
		taken, err = w.tryCommit(taken)
	}
	w.noteFilesAfterWrite() // before a caller learns that it was written
	if isFull(err) && w.committed {
		err = nil // the rows are durable: a caller with an error would write them again
	}
	if err != nil {
		err = fmt.Errorf("write to the journal: %w", diskError(err))
	}
	for _, o := range taken {
		o.done <- err
	}
}

// tryCommit runs writes in one transaction and commits it. It answers the refused ones, and returns the others,
// which share err.
func (w *writer) tryCommit(writes []*op) (taken []*op, err error) {
	j := w.j
	w.committed = false
	j.mu.Lock()
	b := &batch{j: j, db: j.db, durable: j.durable, contact: j.contact, states: map[fleet.AllocID]State{}, recorded: j.recorded, nextWithin: j.checkpointInterval}
	j.mu.Unlock()
	taken, err = w.runWrites(b, writes)
	if err == nil && b.hasWrites {
		return taken, w.commitBatch(b)
	}
	j.db.rollbackTx()
	return taken, err
}

// runWrites begins a transaction and runs the writes in it, without the commit. It answers the refused ones and
// returns the others, which share err.
func (w *writer) runWrites(b *batch, writes []*op) (taken []*op, err error) {
	if err := b.announceStep(StepBegin); err != nil {
		return writes, err
	}
	if err := b.db.beginTx(); err != nil {
		return writes, err
	}
	b.hasWrites = false
	for i, o := range writes {
		err := o.write(b)
		if r, ok := err.(refusedWrite); ok {
			o.done <- r.error
			continue
		}
		taken = append(taken, o)
		if err != nil {
			return append(taken, writes[i+1:]...), err
		}
	}
	if !b.hasWrites && !b.checkpointNeeded {
		return taken, nil
	}
	w.idle, b.hasWrites = !b.hasWrites, true
	return taken, b.writePending()
}

// writePending writes the states that the batch has changed, and the checkpoint of the clock if it is needed or
// due.
func (b *batch) writePending() error {
	if len(b.states) > 0 {
		if err := b.announceStep(StepUpdateState); err != nil {
			return err
		}
		if err := b.db.putStates(b.states); err != nil {
			return err
		}
		b.durable.states = b.statesInBatch()
	}
	age := b.j.clock.journalAge()
	last := b.durable.checkpoint
	due := b.contact.dirty && (!b.recorded || age-last.Age >= checkpointWithCommitAfter) || b.contact.isHeartbeatDue(last, b.nextWithin, age)
	if !b.checkpointNeeded && !due {
		return nil
	}
	if err := b.announceStep(StepWriteCheckpoint); err != nil {
		return err
	}
	b.checkpointNeeded = true
	b.durable.checkpoint = clockCheckpoint{
		BootID: b.j.cfg.BootID, Mono: b.j.clock.timeSinceBoot(), Age: age,
		AckAge: b.contact.ackAge, Floor: b.contact.floor, FloorAge: b.contact.floorAge,
		HubTime: b.contact.hubTime, HubAge: b.contact.hubAge,
		Acknowledged: b.contact.acknowledged,
		Dropped:      last.Dropped, DroppedEver: last.DroppedEver,
		NextWithin: b.nextWithin, Closed: b.closes, Uncounted: b.contact.uncounted,
	}
	return b.db.putMeta(metaCheckpoint, b.durable.checkpoint)
}

// commitBatch commits a batch, makes its state the one that readers see, closes the channel of Appended if rows
// were added, and then writes the high-water mark. It rolls the transaction back if the commit fails.
func (w *writer) commitBatch(b *batch) error {
	j := w.j
	if err := b.announceStep(StepCommit); err != nil {
		j.db.rollbackTx()
		return err
	}
	if err := j.db.commitTx(); err != nil {
		j.db.rollbackTx()
		return err
	}
	w.commits++
	w.committed = true
	j.mu.Lock()
	grew := b.durable.head.Last > j.durable.head.Last || b.rebased
	j.durable = b.durable
	if b.rebased {
		j.contact.acknowledged = b.contact.acknowledged
	}
	j.recorded = j.recorded || b.checkpointNeeded
	if b.checkpointNeeded && j.contact == b.contact {
		j.contact.dirty = false
	}
	if grew {
		close(j.appended)
		j.appended = make(chan struct{})
	}
	j.mu.Unlock()
	if grew {
		j.writeHighWater(highWaterMark{b.durable.generation, b.durable.head.Last})
	}
	if j.cfg.Paranoid {
		if err := j.db.verifyIntegrity(); err != nil {
			panic(fmt.Sprintf("journal is not sound after a commit: %v", err))
		}
	}
	return b.announceStep(StepAfterCommit)
}

// compactAndCheckpoint deletes old rows if they use too much space, and checkpoints SQLite's log every
// checkpointEvery commits, or idleCheckpointEvery. It logs errors: all answered writes are durable.
func (w *writer) compactAndCheckpoint() {
	j := w.j
	if h := j.Head(); j.durable.bytes > j.cfg.MaxBytes/2 && h.First <= h.Acknowledged {
		w.compactInUpkeep()
	}
	if w.commits < idleCheckpointEvery || w.commits < checkpointEvery && !w.idle {
		return
	}
	w.commits = 0
	err := j.cfg.Step(StepCheckpoint)
	if err == nil {
		err = j.db.checkpointWAL()
		if now, err := os.Stat(j.cfg.Path); err == nil && os.SameFile(j.files.info[0], now) {
			j.files.info[0] = now // the log is as it was
		}
	}
	if err != nil {
		j.log.Warn("journal checkpoint failed", "error", err)
	}
}

// runPeriodicUpkeep rebuilds the database if its files were changed from outside, writes a checkpoint of the
// journal's clock if that is due before the next poll, and deletes old rows every hour.
func (w *writer) runPeriodicUpkeep(poll time.Duration) {
	j := w.j
	age := j.clock.journalAge()
	due := j.isCheckpointDue(age, poll)
	if w.polls++; w.polls >= fileCheckPolls {
		w.polls = 0
		w.rebuildIfFilesChanged()
		w.restoreHighWaterFile()
	}
	if due {
		w.runUpkeepWrite(func(b *batch) error { b.checkpointNeeded = true; return nil })
	}
	if age-w.compacted >= compactEvery {
		w.compactInUpkeep()
	}
	w.compactAndCheckpoint()
}

// compactInUpkeep deletes old rows in a transaction of its own, and logs an error.
func (w *writer) compactInUpkeep() {
	w.compacted = w.j.clock.journalAge()
	w.runUpkeepWrite(func(b *batch) error { return b.compactOldRows() })
}

// runUpkeepWrite runs a write that no caller waits for, in a transaction of its own, and logs an error.
func (w *writer) runUpkeepWrite(write func(*batch) error) {
	o := &op{write: write, done: make(chan error, 1)}
	w.commitWithRetry([]*op{o})
	if err := <-o.done; err != nil {
		w.j.log.Warn("journal upkeep failed", "error", err)
	}
}

// closeDatabase writes a checkpoint of the journal's clock and closes the database. Its error becomes that of
// Close.
func (w *writer) closeDatabase() {
	w.runUpkeepWrite(func(b *batch) error { b.checkpointNeeded, b.closes = true, true; return nil })
	w.j.closeErr = errors.Join(w.j.db.close(), w.j.highWaterFile.Close())
}
