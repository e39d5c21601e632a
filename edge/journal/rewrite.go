package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"skerry/fleet"
	"skerry/syncproto"
)

// An open journal keeps working when its database file is deleted, and loses everything when it is closed. A file
// that was cut short works until SQLite reads a missing page, and a log that was cut short gets its old size with the
// next commit. Therefore the writer checks the files before each transaction, and also every 30 seconds.

// databaseFiles is what the writer knows of the database's file and of its log, since it wrote to them itself.
type databaseFiles struct {
	info   [2]fs.FileInfo // nil: missing
	header []byte         // of the log; SQLite replaces it when it begins the log anew; nil: the log is empty
}

const (
	walHeaderSize = 32
	walMagic      = "\x37\x7f\x06" // and 0x82 or 0x83
)

// readDatabaseFiles returns what is known of the database at path and of its log. It does not open the database:
// closing it would release SQLite's lock.
func readDatabaseFiles(path string) (files databaseFiles) {
	for i, suffix := range []string{"", suffixWAL} {
		if info, err := os.Stat(path + suffix); err == nil {
			files.info[i] = info
		}
	}
	f, err := os.Open(path + suffixWAL)
	if err != nil {
		return files
	}
	defer f.Close()
	header := make([]byte, walHeaderSize)
	if _, err := io.ReadFull(f, header); err == nil {
		files.header = header
	}
	return files
}

// fileDamage compares the files now with what they were after SQLite's last write, and returns how a file of the open
// journal was changed from outside; "" if none was.
func fileDamage(was, now databaseFiles) string {
	if damage := sizeDamage(was, now); damage != "" {
		return damage
	}
	switch {
	case now.header == nil, bytes.Equal(was.header, now.header):
	case was.header != nil, !bytes.HasPrefix(now.header, []byte(walMagic)): // it was cut short while SQLite wrote to it
		return "the database's log was overwritten under the running agent"
	}
	return ""
}

// sizeDamage is fileDamage for files to which SQLite may have written in between. It never deletes, replaces or shortens
// them in a transaction.
func sizeDamage(was, now databaseFiles) string {
	for i, what := range []string{"the database", "the database's log"} {
		was, now := was.info[i], now.info[i]
		switch {
		case was == nil:
		case now == nil:
			return what + " was deleted under the running agent"
		case !os.SameFile(was, now):
			return what + " was replaced by another file under the running agent"
		case now.Size() < was.Size():
			return fmt.Sprintf("%s was cut short from %d to %d bytes under the running agent", what, was.Size(), now.Size())
		}
	}
	return ""
}

// noteFilesAfterWrite remembers the files after a write of SQLite. Damage that it finds is kept for the next check.
func (w *writer) noteFilesAfterWrite() {
	now := readDatabaseFiles(w.j.cfg.Path)
	if w.damage == "" && !w.closed {
		w.damage = sizeDamage(w.j.files, now)
	}
	w.j.files = now
}

// rebuildIfFilesChanged rebuilds the database if its files were deleted, replaced, cut short or overwritten, or if an
// earlier rebuild failed. On a full disk it frees the reserve and tries again. It logs an error; the next check
// tries again.
func (w *writer) rebuildIfFilesChanged() {
	j := w.j
	if w.damage == "" {
		w.damage = fileDamage(j.files, readDatabaseFiles(j.cfg.Path))
	}
	if w.damage == "" {
		return
	}
	reason := w.damage
	j.log.Error("the journal's files were changed under the running agent: rebuilding them", "path", j.cfg.Path, "reason", reason)
	err := w.rebuildDatabase(reason)
	for isFull(err) && j.cfg.FreeReserve() {
		err = w.rebuildDatabase(reason)
	}
	if err != nil {
		j.log.Error("the journal's files could not be rebuilt: trying again", "path", j.cfg.Path, "error", err)
	}
}

// restoreHighWaterFile makes the high-water file again and writes the mark, if the file was deleted or
// replaced. An error is logged.
func (w *writer) restoreHighWaterFile() {
	j := w.j
	open, err := j.highWaterFile.Stat()
	there, gone := os.Stat(j.cfg.Path + suffixHighWater)
	if err == nil && gone == nil && os.SameFile(open, there) {
		return
	}
	f, err := openHighWaterFile(j.cfg.Path)
	if err != nil {
		j.log.Warn("high-water file not opened", "error", err)
		return
	}
	_ = j.highWaterFile.Close() // the file was deleted
	j.highWaterFile = f
	j.writeHighWater(highWaterMark{j.durable.generation, j.durable.head.Last})
}

// rebuildDatabase replaces the open database and records that in a row. It uses a copy of everything that
// SQLite still reads, if that is complete; otherwise the readable parts of the files and the memory. After an
// error w.closed says if the database is closed.
func (w *writer) rebuildDatabase(reason string) error {
	j := w.j
	if err := os.MkdirAll(filepath.Dir(j.cfg.Path), 0o700); err != nil {
		return err
	}
	w.restoreHighWaterFile()
	whole := false
	if !w.closed {
		var err error
		if whole, err = w.copyOpenDatabase(); isFull(err) {
			return err // the open database still works
		}
		w.closed = true
		_ = j.db.close() // its files are missing or incomplete
	}
	q := Quarantine{Reason: shortReason(reason), Found: j.cfg.Now().UTC()}
	var err error
	if whole {
		err = j.moveCopyIntoPlace(&q)
	} else {
		err = quarantine(j.cfg, damaged("%s", reason), j.addMemory)
	}
	if err != nil {
		return err
	}
	db, mem, err := openChecked(j.cfg.Path)
	if err != nil {
		return err
	}
	w.closed, w.damage, w.commits = false, "", 0
	j.adoptDatabase(db, mem)
	return w.recordRewrite(q, whole)
}

// copyOpenDatabase copies what SQLite still reads to PATH.build, durably. It reports whether the copy is
// complete: it has the newest row, and as many states as the memory.
func (w *writer) copyOpenDatabase() (bool, error) {
	j := w.j
	build := j.cfg.Path + suffixBuild
	if err := errors.Join(removeDatabase(build), removeDatabase(j.cfg.Path+suffixNew)); err != nil {
		return false, err
	}
	if err := makePrivate(build); err != nil { // VACUUM INTO accepts an empty file
		return false, err
	}
	if err := j.db.execStatement("VACUUM INTO ?", build); err != nil {
		return false, err
	}
	db, mem, err := openChecked(build)
	if err != nil {
		return false, err
	}
	if err := db.close(); err != nil {
		return false, err
	}
	if err := syncFile(build); err != nil {
		return false, err
	}
	whole := mem.head.Last == j.durable.head.Last && bytes.Equal(mem.head.ChainHash, j.durable.head.ChainHash) &&
		mem.head.First <= j.durable.head.First && len(mem.states) == len(j.durable.states)
	return whole, nil
}

// syncFile makes a file's content durable.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// moveCopyIntoPlace keeps a copy of the damaged files, sets q.Path to it, and replaces the database by
// PATH.build.
func (j *Journal) moveCopyIntoPlace(q *Quarantine) error {
	if !isDatabaseGone(j.cfg.Path) {
		kept, err := keepCopy(j.cfg.Path)
		if err != nil {
			return err
		}
		q.Path = kept
	}
	if err := os.Rename(j.cfg.Path+suffixBuild, j.cfg.Path+suffixNew); err != nil {
		return err
	}
	if err := removeDatabase(j.cfg.Path); err != nil {
		return err
	}
	return finishSwap(j.cfg.Path)
}

// addMemory adds the durable state that is kept in memory to s, the parts that were read from the files. If the
// cluster has every row, the memory replaces the rows.
func (j *Journal) addMemory(s *salvaged) {
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.Copy(s.states, j.durable.states)
	s.link, s.past, s.missing, s.checkpoint = j.durable.link, j.durable.quarantined, j.durable.missing, j.durable.checkpoint
	s.checkpoint.Acknowledged = j.contact.acknowledged
	if j.durable.missing.Reason == "" && j.contact.acknowledged == j.durable.head.Last {
		s.base = &base{Seq: j.durable.head.Last, Hash: j.durable.head.ChainHash, Generation: j.durable.generation}
		s.rows, s.whole = nil, true
	}
	if j.durable.desired == nil {
		return
	}
	for _, a := range j.durable.desired.Allocs {
		s.addDesired(a)
	}
}

// addDesired adds a desired allocation and its job body from memory.
func (s *salvaged) addDesired(a DesiredAlloc) {
	of := a.Alloc
	held := storedDesired{
		alloc: syncproto.DesiredAlloc{
			ID: of.ID, Namespace: of.Namespace, Name: of.Name, NodeName: of.NodeName,
			JobID: of.JobID, JobVersion: of.JobVersion, JobHash: of.JobHash, TaskGroup: of.TaskGroup,
			Resources: of.AllocatedResources, Allotment: of.Allotment, Previous: of.PreviousAllocation,
			CreateIndex: of.CreateIndex, ModifyIndex: of.AllocModifyIndex, Deployment: of.DeploymentID, StopNow: a.NoDelay, KeptStopped: a.KeptStopped,
		},
		job: of.JobHash, stop: a.Stop, reason: a.StopReason, mentioned: int64(a.Mentioned),
	}
	for _, w := range a.Windows {
		held.alloc.StopWindows = append(held.alloc.StopWindows, syncproto.DesiredWindow(w))
	}
	s.desired = append(s.desired, held)
	if of.Job == nil {
		return
	}
	if raw, err := syncproto.EncodeJob(of.Job); err == nil {
		s.bodies = append(s.bodies, storedBody{hash: of.JobHash, raw: raw, job: of.Job})
	}
}

// adoptDatabase makes a rebuilt database, and the state mem that was loaded from it, those of the open journal.
// It closes the channel of Appended and writes the high-water mark.
func (j *Journal) adoptDatabase(db *database, mem durableState) {
	j.db = db
	j.mu.Lock()
	mem.desired = nil
	j.durable = mem
	j.contact.acknowledged = max(min(j.contact.acknowledged, mem.head.Last), mem.head.First-1)
	close(j.appended) // the link must read the head again: it may say that rows are lost
	j.appended = make(chan struct{})
	j.mu.Unlock()
	j.writeHighWater(highWaterMark{mem.generation, mem.head.Last})
	j.files = readDatabaseFiles(j.cfg.Path)
}

// recordRewrite appends a row that says why the database was rebuilt and what is lost. If whole, it also adds q
// to the list of quarantined databases; otherwise quarantine has done that.
func (w *writer) recordRewrite(q Quarantine, whole bool) error {
	what := "nothing is lost"
	if reason := w.j.durable.missing.Reason; reason != "" {
		what = "rows that the cluster had not heard of may be lost"
	} else if !whole {
		what = "rows that the cluster has are no longer held here"
	}
	row := fleet.Transition{
		Kind:    fleet.TransitionOperator, // only a person on site can have done that
		Message: fmt.Sprintf("the journal was written anew: %s; %s", q.Reason, what),
	}
	o := &op{done: make(chan error, 1), write: func(b *batch) error {
		if whole {
			q.Salvaged = int(b.durable.head.Last - b.durable.head.First + 1)
			b.durable.quarantined = append(b.durable.quarantined[:len(b.durable.quarantined):len(b.durable.quarantined)], q)
			if err := b.db.putMeta(metaQuarantined, b.durable.quarantined); err != nil {
				return err
			}
		}
		return b.recordTransitions([]fleet.Transition{row})
	}}
	w.commitWithRetry([]*op{o})
	return <-o.done
}
