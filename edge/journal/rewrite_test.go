package journal_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// mustRewrite opens a journal with rows, changes its files, and waits until it is rebuilt. With failed, the first
// rebuild fails after the journal has closed its database, and failed may change the files before the next one.
func mustRewrite(t *testing.T, acked fleet.Seq, harm, failed func(path string)) (*journal.Journal, journal.Config) {
	t.Helper()
	cfg := newMachine().journalConfig(dbPath(t))
	cfg.CheckpointEvery, cfg.Paranoid = 20*time.Millisecond, false // also how often the files are checked
	mustFill(t, cfg, 20, acked)
	harmed := make(chan struct{})
	if failed != nil {
		// A folder with that name keeps the journal from copying the files that SQLite still has open.
		inTheWay := cfg.Path + ".build"
		if err := os.MkdirAll(inTheWay+"/full", 0o700); err != nil {
			t.Fatal(err)
		}
		again := false // used by the writer only
		cfg.Step = func(label string) error {
			if label != journal.StepQuarantine || again {
				return nil
			}
			again = true
			<-harmed
			failed(cfg.Path)
			return errors.Join(os.RemoveAll(inTheWay), syscall.EIO)
		}
	}
	j := mustOpen(t, cfg)
	if _, err := j.Desired(t.Context()); err != nil { // as edge/allocs does
		t.Fatal(err)
	}
	// Fills the log and the memory.
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: allocID(1), ClientStatus: fleet.ClientFailed})
	j.Acknowledge(min(acked, j.Head().Last))
	harm(cfg.Path)
	close(harmed)
	mustWait(t, "the journal to be written anew", func() (bool, string) {
		return len(j.Quarantined()) == 1, "nothing was quarantined"
	})
	return j, cfg
}

// mustSay checks that the journal has a row about the rebuild.
func mustSay(t *testing.T, j *journal.Journal, what string) {
	t.Helper()
	rows, err := j.History(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if strings.Contains(row.Message, "written anew") && strings.Contains(row.Message, what) {
			return
		}
	}
	t.Errorf("no row says that the journal was written anew, and %q: %d rows", what, len(rows))
}

// Deleting the files under a running agent loses nothing, and the next start finds the rebuilt database.
func TestDeletedUnderTheAgent(t *testing.T) {
	j, cfg := mustRewrite(t, 0, func(path string) {
		for _, suffix := range []string{"", "-wal", ".seen"} {
			mustRemove(t, path+suffix)
		}
	}, nil)
	if lost := j.Head().Lost; lost != "" {
		t.Errorf("rows are lost: %s", lost)
	}
	mustSay(t, j, "nothing is lost")
	states, last := j.States(), j.Head().Last
	if q := j.Quarantined()[0]; q.Lost != 0 || q.Salvaged != int(last)-1 { // without the row about the rebuild
		t.Errorf("%d rows are kept, %d lost, of %d", q.Salvaged, q.Lost, last-1)
	}
	mustClose(t, j)
	next := mustOpen(t, cfg)
	defer mustClose(t, next)
	if got := next.Head(); got.First != 1 || got.Last < last || got.Lost != "" {
		t.Errorf("the next start finds %+v, want rows 1 to %d", got, last)
	}
	if len(next.States()) != len(states) {
		t.Errorf("the next start finds %d states, want %d", len(next.States()), len(states))
	}
}

// Only the log is deleted, or another file replaces the database.
func TestFilesChangedUnderTheAgent(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"log deleted": func(t *testing.T, path string) { mustRemove(t, path+"-wal") },
		"database replaced": func(t *testing.T, path string) {
			mustRemove(t, path)
			mustWrite(t, path, []byte("another file"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, _ := mustRewrite(t, 0, func(path string) { harm(t, path) }, nil)
			defer mustClose(t, j)
			if lost := j.Head().Lost; lost != "" {
				t.Errorf("rows are lost: %s", lost)
			}
			mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "goes on"})
			mustSay(t, j, "nothing is lost")
		})
	}
}

func mustRename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Error(err)
	}
}

// The journal is rebuilt also if the first attempt failed after it had closed its database, and the
// files have come back since.
func TestFilesThatComeBackAfterAFailedRewrite(t *testing.T) {
	j, _ := mustRewrite(t, 0, func(path string) {
		mustRename(t, path+"-wal", path+"-wal.away")
		mustRename(t, path, path+".away")
	}, func(path string) {
		mustRename(t, path+"-wal.away", path+"-wal")
		mustRename(t, path+".away", path)
	})
	defer mustClose(t, j)
	if lost := j.Head().Lost; lost != "" {
		t.Errorf("rows are lost: %s", lost)
	}
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "goes on"})
}

// A database that is cut short is rebuilt from the pages that SQLite has read, or from memory. From memory, the
// numbers continue if the cluster has all rows; otherwise the journal says that some may be lost.
func TestTruncatedUnderTheAgent(t *testing.T) {
	for _, tt := range []struct {
		name       string
		acked      fleet.Seq
		memoryOnly bool
		first      fleet.Seq
		lostRows   bool
	}{
		{"the cluster has all", 1000, false, 1, false},
		{"it has a part", 5, false, 1, false},
		{"the cluster has all, memory is left", 1000, true, 22, false},
		{"it has a part, memory is left", 5, true, 6, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			truncate := func(path string) {
				for _, suffix := range []string{"-wal", ""} {
					if err := os.Truncate(path+suffix, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Error(err)
					}
				}
			}
			again := truncate // also removes what SQLite wrote when it was closed
			if !tt.memoryOnly {
				again = nil
			}
			j, cfg := mustRewrite(t, tt.acked, truncate, again)
			if s := j.States()[allocID(1)]; s.ClientStatus != fleet.ClientFailed {
				t.Errorf("the state of the newest row is %+v, want it to be as it was", s)
			}
			if want, err := j.Desired(t.Context()); err != nil || len(want.Allocs) == 0 || want.Allocs[allocID(0)].Alloc.Job == nil {
				t.Errorf("what is wanted is %+v (%v), want it to be as it was", want, err)
			}
			mustSay(t, j, "cut short")
			before := j.Head()
			if before.First != tt.first || !tt.lostRows && before.Last != 22 || before.Lost != "" != tt.lostRows {
				t.Errorf("behind row 21 is the row that says what happened, and the head is %+v", before)
			}
			mustClose(t, j)
			next := mustOpen(t, cfg)
			defer mustClose(t, next)
			if got := next.Head(); got.Last < before.Last || got.Lost != before.Lost {
				t.Errorf("the next start finds %+v, want %+v", got, before)
			}
		})
	}
}

// A row that follows the damage at once does not hide it: SQLite would give the file its old size again.
func TestRowAfterTruncation(t *testing.T) {
	resize := func(suffix string, size int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.Truncate(path+suffix, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, harm := range map[string]func(t *testing.T, path string){
		"log":             resize("-wal", 0),
		"log after a row": resize("-wal", 8<<10),
		"database":        resize("", 4<<10),
		"log overwritten": func(t *testing.T, path string) {
			log := mustRead(t, path+"-wal")
			log[20]++ // a part of the salt, as a copy of another log has it
			f, err := os.OpenFile(path+"-wal", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(log); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newMachine().journalConfig(dbPath(t))
			cfg.Paranoid = false
			mustFill(t, cfg, 20, 0)
			j := mustOpen(t, cfg) // polls too late for this test
			mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: allocID(1), ClientStatus: fleet.ClientFailed})
			harm(t, cfg.Path)
			mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "goes on"})
			mustSay(t, j, "nothing is lost")
			if n := len(j.Quarantined()); n != 1 {
				t.Errorf("%d databases are set aside, want one", n)
			}
			mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "and on"})
			before := j.Head()
			mustClose(t, j)
			next := mustOpen(t, cfg)
			defer mustClose(t, next)
			if got := next.Head(); got.First != 1 || got.Last < before.Last || got.Lost != "" || len(next.Quarantined()) != 1 {
				t.Errorf("the next start finds %+v and %d databases set aside, want %+v and one", got, len(next.Quarantined()), before)
			}
		})
	}
}

// A file that is deleted while SQLite commits is missed as well: what is there after the commit is not what has to be there.
func TestDeletedDuringACommit(t *testing.T) {
	for _, suffix := range []string{"", "-wal"} {
		cfg := newMachine().journalConfig(dbPath(t))
		cfg.CheckpointEvery, cfg.Paranoid = 20*time.Millisecond, false // also how often the files are checked
		mustFill(t, cfg, 20, 5)
		var armed atomic.Bool
		cfg.Step = func(label string) error {
			if label == journal.StepCommit && armed.CompareAndSwap(true, false) {
				return os.Remove(cfg.Path + suffix)
			}
			return nil
		}
		j := mustOpen(t, cfg)
		mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "a row in the log"})
		armed.Store(true)
		mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "it is deleted"})
		mustWait(t, "the journal to be written anew", func() (bool, string) {
			return len(j.Quarantined()) == 1, "nothing was quarantined"
		})
		mustSay(t, j, "nothing is lost")
		before := j.Head()
		mustClose(t, j)
		next := mustOpen(t, cfg)
		if got := next.Head(); got.First != 1 || got.Last < before.Last || got.Lost != "" {
			t.Errorf("%q: the next start finds %+v, want %+v", suffix, got, before)
		}
		mustClose(t, next)
	}
}

// An acknowledgement that comes while rows are lost counts for those that are left.
func TestAcknowledgedWhileItIsRebuilt(t *testing.T) {
	cfg := newMachine().journalConfig(dbPath(t))
	cfg.CheckpointEvery, cfg.Paranoid = 20*time.Millisecond, false // also how often the files are checked
	mustFill(t, cfg, 20, 5)
	inTheWay := cfg.Path + ".build" // the first rebuild fails, with the database closed
	if err := os.MkdirAll(inTheWay+"/full", 0o700); err != nil {
		t.Fatal(err)
	}
	truncate := func() error { return errors.Join(os.Truncate(cfg.Path+"-wal", 0), os.Truncate(cfg.Path, 0)) }
	var j *journal.Journal
	harmed, failed := make(chan struct{}), false // failed is used by the writer only
	cfg.Step = func(label string) error {
		switch {
		case label == journal.StepQuarantine && !failed:
			failed = true
			<-harmed
			_ = truncate() // SQLite removed its log
			return errors.Join(os.RemoveAll(inTheWay), syscall.EIO)
		case label == journal.StepSwap:
			j.Acknowledge(21) // what is in memory is read already
		}
		return nil
	}
	j = mustOpen(t, cfg)
	defer func() { mustClose(t, j) }()
	if _, err := j.Desired(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "row 21"})
	if err := truncate(); err != nil {
		t.Fatal(err)
	}
	close(harmed)
	mustWait(t, "the journal to be written anew", func() (bool, string) {
		return len(j.Quarantined()) == 1, "nothing was quarantined"
	})
	if h := j.Head(); h.Lost == "" || h.Acknowledged > h.Last || h.Acknowledged < h.First-1 {
		t.Errorf("head: %+v", h)
	}
}

// A log that SQLite ignores, as a loss of power may leave it, is not damage.
func TestALogOfZerosIsIgnored(t *testing.T) {
	cfg := newMachine().journalConfig(dbPath(t))
	mustFill(t, cfg, 20, 5)
	mustWrite(t, cfg.Path+"-wal", make([]byte, 8192))
	j := mustOpen(t, cfg)
	defer mustClose(t, j)
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "goes on"})
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "and on"})
	if q := j.Quarantined(); len(q) > 0 || j.Head().Last != 22 {
		t.Errorf("quarantined: %+v, head %+v", q, j.Head())
	}
}

// The files of a journal are private, whatever the umask, also those that an earlier release left open.
func TestFilesArePrivate(t *testing.T) {
	cfg := newMachine().journalConfig(dbPath(t))
	old := newMachine().journalConfig(dbPath(t))
	was := mustOpen(t, old)
	mustRecord(t, was, fleet.Transition{Kind: fleet.TransitionAgent, Message: "a row in the log"})
	for _, suffix := range []string{"", "-wal", ".seen"} { // as a crash leaves them
		mustWrite(t, cfg.Path+suffix, mustRead(t, old.Path+suffix))
		if err := os.Chmod(cfg.Path+suffix, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, was)
	j := mustOpen(t, cfg)
	defer mustClose(t, j)
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "a row"})
	for _, suffix := range []string{"", "-wal", ".seen"} {
		info, err := os.Stat(cfg.Path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o, want 600", info.Name(), info.Mode().Perm())
		}
	}
}

// If the disk is full when a row is written, the reserve is freed, and the row is there once.
func TestReserveIsGivenUp(t *testing.T) {
	for _, step := range []string{journal.StepBegin, journal.StepInsertRow, journal.StepCommit} {
		t.Run(step, func(t *testing.T) {
			cfg, full, given := newMachine().journalConfig(dbPath(t)), false, 0
			cfg.Step = func(label string) error {
				if full && label == step {
					return syscall.ENOSPC
				}
				return nil
			}
			cfg.FreeReserve = func() bool { full = false; given++; return true }
			j := mustOpen(t, cfg)
			defer mustClose(t, j)
			full = true
			mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "a row"})
			if rows := mustReadAll(t, j); len(rows) != 1 || given != 1 {
				t.Errorf("%d rows, %d pieces given up; want one of each", len(rows), given)
			}
		})
	}
}

// TestDurableRowsAreNotRefused fills the disk after a commit: the rows are durable, and their writer
// must not write them again.
func TestDurableRowsAreNotRefused(t *testing.T) {
	cfg := newMachine().journalConfig(dbPath(t))
	full := false
	cfg.Step = func(label string) error {
		if full && label == journal.StepAfterCommit {
			return syscall.ENOSPC
		}
		return nil
	}
	j := mustOpen(t, cfg)
	defer mustClose(t, j)
	full = true
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "a row"})
	full = false
	if rows := mustReadAll(t, j); len(rows) != 1 {
		t.Errorf("%d rows, want one", len(rows))
	}
}
