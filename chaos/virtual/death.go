package virtual

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// journalName is the file name of the edge's journal in its data directory. SQLite's write-ahead
// log lies beside it.
const journalName = "journal.db"

// journalWALPath returns the path of the journal's write-ahead log.
func (e *Edge) journalWALPath() string { return filepath.Join(e.Dir, journalName+"-wal") }

// quietOffset is a sleep that ends when no other timer fires, since other timers fire at rounder
// times. Then every other goroutine of the bubble waits, and files can be copied in a state
// that the disk had at one moment.
const quietOffset = 1_000_003 * time.Nanosecond

// journalFiles are the contents of a journal's files at the death of its process. The process only
// seems to die: its goroutines end gracefully and SQLite tidies up. Then these contents are
// written back.
type journalFiles map[string][]byte

// readJournalFiles reads the journal and its write-ahead log; a missing file is no error.
func (e *Edge) readJournalFiles() (journalFiles, error) {
	r := journalFiles{}
	for _, name := range []string{journalName, journalName + "-wal"} {
		b, err := os.ReadFile(filepath.Join(e.Dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read the journal of %s: %w", e.Name, err)
		}
		if err == nil {
			r[name] = b
		}
	}
	return r, nil
}

// restoreJournalFiles replaces the journal's files by r, and removes files that r lacks.
func (e *Edge) restoreJournalFiles(r journalFiles) error {
	for _, name := range []string{journalName, journalName + "-wal", journalName + "-shm"} {
		path := filepath.Join(e.Dir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("restore the journal of %s: %w", e.Name, err)
		}
		if b, ok := r[name]; ok {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				return fmt.Errorf("restore the journal of %s: %w", e.Name, err)
			}
		}
	}
	return nil
}

// Kill ends the agent as SIGKILL does and waits for its goroutines; its tasks live on. An agent
// that is down stays down.
func (e *Edge) Kill() error { return e.killAgent(false) }

// PowerCut ends the agent and its tasks as a loss of power does: data that was not synced is lost.
func (e *Edge) PowerCut() error {
	err := e.killAgent(true)
	e.world.Reboot()
	return err
}

// killAgent ends the agent as SIGKILL does. If unsynced is set, data that was not synced is lost.
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

// KillAt is Kill, or PowerCut if power is set, at the agent's next disk step with that label.
// If none comes within patience, it kills at once. atStep reports whether the step came.
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

// endLifeAndRestoreFiles waits until the killed agent's goroutines have ended, and writes the
// journal's files back. If unsynced is set, the part of the write-ahead log that was not synced
// is lost.
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

// Stop ends the agent gracefully and waits for it; its tasks live on.
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

// Shutdown ends the machine gracefully: first its agent, then its tasks.
func (e *Edge) Shutdown() error {
	e.Stop()
	e.world.Reboot()
	return nil
}

// Boot starts the agent in a new boot of the machine. The agent must be down.
func (e *Edge) Boot() error {
	e.beginNextBoot()
	return e.Start()
}

// beginNextBoot begins a new boot of the machine without starting the agent.
func (e *Edge) beginNextBoot() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.boot++
	e.booted = time.Now()
}

// currentLife returns the agent's process; nil if it was not started or was ended.
func (e *Edge) currentLife() *life {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life
}

// size returns the size of a file; 0 if it cannot be read.
func size(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}
