package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"skerry/edge/journal"
	"skerry/fleet"
)

// mustLoseRows makes a journal of 20 rows, the first 5 acknowledged, that is damaged while it is closed.
func mustLoseRows(t *testing.T, damage func(path string)) (*journal.Journal, journal.Config) {
	t.Helper()
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	damage(path)
	cfg := m.journalConfig(path)
	cfg.Expected = true
	j := mustOpen(t, cfg)
	if j.Head().Lost == "" {
		t.Fatalf("it does not say that rows may be missing: %+v", j.Head())
	}
	return j, cfg
}

// mustRemove removes a database with its log, as a file system repair may do.
func mustRemove(t *testing.T, path string) {
	t.Helper()
	for _, f := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
}

func lines(ts []fleet.Transition) []string {
	var out []string
	for _, t := range ts {
		line := fmt.Sprintf("%d %s", t.Seq, t.Kind)
		if t.Kind == fleet.TransitionGap {
			line += fmt.Sprintf(" %d", t.Dropped)
		}
		out = append(out, strings.TrimSpace(line+" "+t.ClientDescription))
	}
	return out
}

func wantLines(t *testing.T, j *journal.Journal, want ...string) {
	t.Helper()
	if got := lines(mustReadAll(t, j)); !slices.Equal(got, want) {
		t.Errorf("rows:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestRebase continues where the cluster stands, after each kind of damage.
func TestRebase(t *testing.T) {
	alterRow12 := func(path string) { mustAlter(t, path, "UPDATE rows SET body = zeroblob(30) WHERE seq = 12") }
	cutAfter15 := func(path string) { mustAlter(t, path, "DELETE FROM rows WHERE seq > 15") }
	for _, tc := range []struct {
		name    string
		damage  func(path string)
		applied fleet.Seq
		want    []string // after the cluster's rows; "since" was recorded before the hub answered
	}{
		{"a row is altered that the cluster had not heard of", alterRow12, 10,
			[]string{"11 alloc row 10", "12 gap 1", "13 alloc row 12", "14 alloc row 13", "15 alloc row 14", "16 alloc row 15",
				"17 alloc row 16", "18 alloc row 17", "19 alloc row 18", "20 alloc row 19", "21 gap 0", "22 alloc since", "23 alloc again"}},
		{"a row is altered that the cluster has", alterRow12, 18,
			[]string{"19 alloc row 18", "20 alloc row 19", "21 gap 0", "22 alloc since", "23 alloc again"}},
		{"the newest rows are gone", cutAfter15, 13,
			[]string{"14 alloc row 13", "15 alloc row 14", "16 gap 5", "17 alloc since", "18 alloc again"}},
		{"the newest rows are gone, the cluster has some", cutAfter15, 18, []string{"19 gap 2", "20 alloc since", "21 alloc again"}},
		{"the newest rows are gone, the cluster has them all", cutAfter15, 20, []string{"21 gap 0", "22 alloc since", "23 alloc again"}},
		{"everything is gone", func(path string) { mustRemove(t, path) }, 17, []string{"18 gap 3", "19 alloc since", "20 alloc again"}},
		{"the cluster knows nothing", func(path string) { mustRemove(t, path) }, 0, []string{"1 gap 20", "2 alloc since", "3 alloc again"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := context.Background()
			j, cfg := mustLoseRows(t, tc.damage)
			since, again := status(0, fleet.ClientRunning), status(0, fleet.ClientComplete)
			since.ClientDescription, again.ClientDescription = "since", "again"
			mustRecord(t, j, since)
			mustClose(t, j)
			j = mustOpen(t, cfg) // Head.Lost stays until a hub has answered
			chain := []byte("the cluster's")
			say := func(states map[fleet.AllocID]journal.State) []fleet.Transition {
				if s := states[allocID(0)]; s.ClientDescription != "since" {
					t.Errorf("to be said again: %+v", s)
				}
				return []fleet.Transition{again}
			}
			if err := j.Rebase(ctx, tc.applied, chain, say); err != nil {
				t.Fatal(err)
			}
			check := func() {
				t.Helper()
				wantLines(t, j, tc.want...)
				if h := j.Head(); h.Lost != "" || h.First != tc.applied+1 || h.Acknowledged != tc.applied {
					t.Errorf("head: %+v", h)
				}
				if _, prev, _, err := j.Rows(ctx, tc.applied+1, 1, 1); err != nil || !bytes.Equal(prev, chain) {
					t.Errorf("the chain goes on from %q, %v", prev, err)
				}
				if s, _ := j.State(allocID(0)); s.ClientStatus != fleet.ClientComplete || s.Seq != j.Head().Last {
					t.Errorf("state: %+v", s)
				}
				if s, ok := j.State(allocID(1)); ok && s.Seq > j.Head().Last {
					t.Errorf("state of a row that is not there: %+v", s)
				}
			}
			check()
			mustClose(t, j)
			j = mustOpen(t, cfg)
			check()
			if err := j.Rebase(ctx, 99, nil, say); err != nil {
				t.Fatal(err)
			}
			check() // nothing was lost since
		})
	}
}

// TestLogThatIsGoneIsNoticed: SQLite opens a database without its log as if there had never been one.
func TestLogThatIsGoneIsNoticed(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	older := mustRead(t, path)
	j := mustOpen(t, m.journalConfig(path))
	for range 10 {
		mustRecord(t, j, status(0, fleet.ClientRunning))
	}
	mustClose(t, j)
	mustRemove(t, path)
	mustWrite(t, path, older)
	j = mustOpen(t, m.journalConfig(path))
	if q := mustQuarantine(t, j); q.Lost != 10 || q.Salvaged != 20 || j.Head().Lost == "" {
		t.Fatalf("quarantined: %+v, head %+v", q, j.Head())
	}
}

// TestDamagedTwice: rows without a valid number stay such rows after a second damage. One that follows the first damage is told
// apart from it.
func TestDamagedTwice(t *testing.T) {
	for altered, want := range map[int][]string{
		1: {"18 gap 0", "19 gap 1", "20 alloc", "21 alloc"},
		2: {"18 gap 0", "19 alloc", "20 gap 1", "21 alloc"},
	} {
		j, cfg := mustLoseRows(t, func(path string) { mustRemove(t, path) })
		for range 3 {
			mustRecord(t, j, status(0, fleet.ClientRunning))
		}
		mustClose(t, j)
		mustAlter(t, cfg.Path, fmt.Sprint("UPDATE rows SET body = zeroblob(30) WHERE seq = ", altered))
		j = mustOpen(t, cfg)
		if err := j.Rebase(context.Background(), 17, nil, nil); err != nil {
			t.Fatal(err)
		}
		wantLines(t, j, want...)
		if q := j.Quarantined(); len(q) != 2 {
			t.Errorf("quarantined: %+v", q)
		}
	}
}

func TestRebaseCutShort(t *testing.T) {
	for _, label := range []string{journal.StepRebase, journal.StepInsertRow, journal.StepCommit, journal.StepAfterCommit} {
		t.Run(label, func(t *testing.T) {
			j, cfg := mustLoseRows(t, func(path string) { mustRemove(t, path) })
			mustRecord(t, j, status(0, fleet.ClientRunning))
			mustClose(t, j)
			failing := cfg
			armed := false
			failing.Step = func(l string) error {
				if armed && l == label {
					return errStep
				}
				return nil
			}
			j = mustOpen(t, failing)
			armed = true
			again := func(map[fleet.AllocID]journal.State) []fleet.Transition {
				return []fleet.Transition{status(0, fleet.ClientRunning)}
			}
			err := j.Rebase(context.Background(), 17, nil, again)
			armed = false
			if err == nil && label != journal.StepAfterCommit {
				t.Fatal("the step did not fail")
			}
			mustClose(t, j)
			j = mustOpen(t, cfg)
			if done := j.Head().Lost == ""; done != (label == journal.StepAfterCommit) {
				t.Fatalf("half done: %+v", j.Head())
			}
			if err := j.Rebase(context.Background(), 17, nil, again); err != nil {
				t.Fatal(err)
			}
			wantLines(t, j, "18 gap 3", "19 alloc", "20 alloc")
		})
	}
}

// FuzzDecodeWitness: only a mark that was written is accepted.
func FuzzDecodeWitness(f *testing.F) {
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0}, 20))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x14\x81\x33\x6c\x0f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if generation, seq := journal.DecodeHighWater(b); (generation > 0 || seq > 0) && len(b) != 20 {
			t.Fatalf("%d bytes say %d, %d", len(b), generation, seq)
		}
	})
}

// TestPutBack restores an older copy: acknowledged rows are not sent again, the others are, behind a
// gap row that says which rows the cluster has. It does not say that nothing is lost: later rows may have existed.
func TestPutBack(t *testing.T) {
	ctx := context.Background()
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 8, 5)
	j := mustOpen(t, m.journalConfig(path))
	since := status(0, fleet.ClientRunning)
	since.ClientDescription = "since"
	mustRecord(t, j, since)
	if err := j.RecordOlderCopy(ctx, 30); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	j = mustOpen(t, m.journalConfig(path)) // Head.Lost stays until a hub has answered
	if h := j.Head(); h.Lost == "" {
		t.Fatalf("head: %+v", h)
	}
	chain := []byte("the cluster's")
	if err := j.Rebase(ctx, 30, chain, nil); err != nil {
		t.Fatal(err)
	}
	wantLines(t, j, "31 gap 0", "32 alloc row 5", "33 alloc row 6", "34 alloc row 7", "35 alloc since")
	if h := j.Head(); h.Lost != "" || h.First != 31 || h.Acknowledged != 30 {
		t.Errorf("head: %+v", h)
	}
	if rows := mustReadAll(t, j); !strings.Contains(rows[0].Message, "older copy): the cluster has all rows up to 30; whether there were later ones is not known") {
		t.Errorf("the gap says %q", rows[0].Message)
	}
	if _, prev, _, err := j.Rows(ctx, 31, 1, 1); err != nil || !bytes.Equal(prev, chain) {
		t.Errorf("the chain goes on from %q, %v", prev, err)
	}
	mustClose(t, j)
}
