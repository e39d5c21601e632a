package virtual

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// journalName is the edge's journal below its data directory; SQLite's write-ahead log
// is beside it.
const journalName = "journal.db"

func (e *Edge) journalWALPath() string { return filepath.Join(e.Dir, journalName+"-wal") }

// quietOffset is when nothing else happens: timers fall on rounder times. Whoever wakes up
// then finds every other goroutine of the bubble waiting, so that files can be copied
// as they lie on the disk at one moment.
const quietOffset = 1_000_003 * time.Nanosecond

// journalFiles are the files of a journal at the moment of a process's death. The process
// does not die in truth: its goroutines have to end in good order, and SQLite tidies up
// when it is closed. What lay on the disk is put back afterwards.
type journalFiles map[string][]byte

// readJournalFiles reads the journal's files.
func (e *Edge) readJournalFiles() (journalFiles, error) {
	r := journalFiles{}
	for _, name := range []string{journalName, journalName + "-wal"} {
		b, err := os.ReadFile(filepath.Join(e.Dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("keep what %s leaves: %w", e.Name, err)
		}
		if err == nil {
			r[name] = b
		}
	}
	return r, nil
}

// restoreJournalFiles writes them again.
func (e *Edge) restoreJournalFiles(r journalFiles) error {
	for _, name := range []string{journalName, journalName + "-wal", journalName + "-shm"} {
		path := filepath.Join(e.Dir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("put back what %s left: %w", e.Name, err)
		}
		if b, ok := r[name]; ok {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				return fmt.Errorf("put back what %s left: %w", e.Name, err)
			}
		}
	}
	return nil
}

// Kill ends the agent as SIGKILL does; its tasks live on. It may be called when it is
// down.
func (e *Edge) Kill() error { return e.killAgent(false) }

// PowerCut ends the machine: its agent, its tasks, and what was written but not
// synced.
func (e *Edge) PowerCut() error {
	err := e.killAgent(true)
	e.world.Reboot()
	return err
}

func (e *Edge) killAgent(unsynced bool) error {
	l := e.currentLife()
	if l == nil {
		return nil
	}
	time.Sleep(quietOffset)
	r, err := e.readJournalFiles()
	l.dead.Store(true)
	return errors.Join(err, e.endLifeAndRestoreFiles(l, r, unsynced))
}

// KillAt is Kill, or PowerCut, at the next step of that label; it waits for it until
// patience is over, and then does so at once.
func (e *Edge) KillAt(label string, power bool, patience time.Duration) (atStep bool, err error) {
	l := e.currentLife()
	if l == nil {
		return false, nil
	}
	sprung := make(chan journalFiles, 1)
	var failed error
	e.Disk.trap.Store(&trap{label: label, spring: func() error {
		r, err := e.readJournalFiles()
		failed = err
		l.dead.Store(true)
		sprung <- r
		return errKilled
	}})
	select {
	case r := <-sprung:
		err = errors.Join(failed, e.endLifeAndRestoreFiles(l, r, power))
		atStep = true
	case <-time.After(patience):
		e.Disk.trap.Store(nil)
		err = e.killAgent(power)
	case <-l.ended:
		e.Disk.trap.Store(nil)
	}
	if power {
		e.world.Reboot()
	}
	return atStep, err
}

// endLifeAndRestoreFiles waits until the dead agent's goroutines have ended, and puts back what it left;
// what was not synced only where it was not lost.
func (e *Edge) endLifeAndRestoreFiles(l *life, r journalFiles, unsynced bool) error {
	e.Host.Crash()
	l.stopAndWait()
	if wal, ok := r[journalName+"-wal"]; ok && unsynced {
		r[journalName+"-wal"] = wal[:min(int64(len(wal)), e.synced.Load())]
	}
	err := e.restoreJournalFiles(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.life = nil
	return err
}

// Stop ends the agent in good order; its tasks live on.
func (e *Edge) Stop() {
	l := e.currentLife()
	if l == nil {
		return
	}
	l.stopAndWait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.life = nil
}

// Shutdown ends the machine in good order: its agent is asked to stop, then its tasks
// end.
func (e *Edge) Shutdown() error {
	e.Stop()
	e.world.Reboot()
	return nil
}

// Boot starts the agent in a new boot of the machine.
func (e *Edge) Boot() error {
	e.beginNextBoot()
	return e.Start()
}

// beginNextBoot begins a new boot of the machine, in which no agent runs yet.
func (e *Edge) beginNextBoot() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.boot++
	e.booted = time.Now()
}

func (e *Edge) currentLife() *life {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life
}

// size is a file's, 0 where there is none.
func size(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}
