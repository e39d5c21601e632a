package journal_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// mustRewrite opens a journal with rows, has something done to its files, and waits until it
// was written anew.
func mustRewrite(t *testing.T, acked fleet.Seq, harm func(path string)) (*journal.Journal, journal.Config) {
	t.Helper()
	cfg := newMachine().config(dbPath(t))
	cfg.MarkEvery, cfg.Paranoid = 20*time.Millisecond, false // it looks at its files as often
	mustFill(t, cfg, 20, acked)
	j := mustOpen(t, cfg)
	if _, err := j.Desired(t.Context()); err != nil { // as who runs allocations does
		t.Fatal(err)
	}
	// Something is in the log, and in memory.
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: allocID(1), ClientStatus: fleet.ClientFailed})
	if err := j.Acknowledge(t.Context(), min(acked, j.Head().Last)); err != nil {
		t.Fatal(err)
	}
	harm(cfg.Path)
	mustWait(t, "the journal to be written anew", func() (bool, string) {
		return len(j.Quarantined()) == 1, "nothing was quarantined"
	})
	return j, cfg
}

// mustSay checks that the journal's history says that it was written anew.
func mustSay(t *testing.T, j *journal.Journal, what string) {
	t.Helper()
	rows, err := j.History(t.Context(), "")
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

// A journal whose files are deleted under a running agent is written anew from what is open
// still: nothing is lost, and the next start finds it.
func TestDeletedUnderTheAgent(t *testing.T) {
	j, cfg := mustRewrite(t, 0, func(path string) {
		for _, suffix := range []string{"", "-wal", ".seen"} {
			mustRemove(t, path+suffix)
		}
	})
	if lost := j.Head().Lost; lost != "" {
		t.Errorf("rows are lost: %s", lost)
	}
	mustSay(t, j, "nothing is lost")
	states, last := j.States(), j.Head().Last
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

// A log that alone is deleted, and a database that another file takes the place of.
func TestFilesChangedUnderTheAgent(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"log deleted": func(t *testing.T, path string) { mustRemove(t, path+"-wal") },
		"database replaced": func(t *testing.T, path string) {
			mustRemove(t, path)
			mustWrite(t, path, []byte("another file"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, _ := mustRewrite(t, 0, func(path string) { harm(t, path) })
			defer mustClose(t, j)
			if lost := j.Head().Lost; lost != "" {
				t.Errorf("rows are lost: %s", lost)
			}
			mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "goes on"})
			mustSay(t, j, "nothing is lost")
		})
	}
}

// A database that is cut short is written anew from memory. Where the cluster has all rows
// the numbers go on; else it is said that some may be lost.
func TestTruncatedUnderTheAgent(t *testing.T) {
	for name, acked := range map[string]fleet.Seq{"the cluster has all": 1000, "it has a part": 5} {
		t.Run(name, func(t *testing.T) {
			var before journal.Head
			j, cfg := mustRewrite(t, acked, func(path string) {
				for _, suffix := range []string{"", "-wal"} {
					if err := os.Truncate(path+suffix, 0); err != nil {
						t.Fatal(err)
					}
				}
			})
			if s := j.States()[allocID(1)]; s.ClientStatus != fleet.ClientFailed {
				t.Errorf("the state of the newest row is %+v, want it to be as it was", s)
			}
			if want, err := j.Desired(t.Context()); err != nil || len(want.Allocs) == 0 || want.Allocs[allocID(0)].Alloc.Job == nil {
				t.Errorf("what is wanted is %+v (%v), want it to be as it was", want, err)
			}
			mustSay(t, j, "cut short")
			before = j.Head()
			mustClose(t, j)
			next := mustOpen(t, cfg)
			defer mustClose(t, next)
			if got := next.Head(); got.Last < before.Last || got.Lost != before.Lost {
				t.Errorf("the next start finds %+v, want %+v", got, before)
			}
		})
	}
}

// What is in a journal's folder is nobody's but its owner's, whatever the umask, also what an
// earlier release left open.
func TestFilesArePrivate(t *testing.T) {
	cfg := newMachine().config(dbPath(t))
	mustClose(t, mustOpen(t, cfg))
	if err := os.Chmod(cfg.Path, 0o644); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, cfg.Path+".seen", mustRead(t, cfg.Path+".seen"))
	if err := os.Chmod(cfg.Path+".seen", 0o644); err != nil {
		t.Fatal(err)
	}
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

// A disk that is full when a row is written: what is reserved is given up, and the row is
// there once.
func TestReserveIsGivenUp(t *testing.T) {
	for _, step := range []string{journal.StepBegin, journal.StepInsertRow, journal.StepCommit} {
		t.Run(step, func(t *testing.T) {
			cfg, full, given := newMachine().config(dbPath(t)), false, 0
			cfg.Step = func(label string) error {
				if full && label == step {
					return syscall.ENOSPC
				}
				return nil
			}
			cfg.MakeRoom = func() bool { full = false; given++; return true }
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

// TestDurableRowsAreNotRefused has the disk run full behind a commit: the rows are durable, and
// whoever wrote them must not write them again.
func TestDurableRowsAreNotRefused(t *testing.T) {
	cfg := newMachine().config(dbPath(t))
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
