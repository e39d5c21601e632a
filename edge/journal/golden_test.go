package journal_test

import (
	"context"
	"encoding/binary"
	"flag"
	"path/filepath"
	"testing"

	"skerry/fleet"
)

// rewrite makes the database of this release's version again. Those of older versions are never changed.
var rewrite = flag.Bool("rewrite", false, "write testdata/v2.db")

// TestDatabasesOfVersions opens databases of earlier versions, so that migrations lose nothing.
func TestDatabasesOfVersions(t *testing.T) {
	if *rewrite {
		path := dbPath(t)
		mustFill(t, newMachine().journalConfig(path), 20, 5)
		mustWrite(t, filepath.Join("testdata", "v2.db"), mustRead(t, path))
	}
	for _, version := range []string{"v1.db", "v2.db"} {
		t.Run(version, func(t *testing.T) { opensAsReleased(t, filepath.Join("testdata", version)) })
	}
	t.Run("v1.db, damaged", func(t *testing.T) {
		path := dbPath(t)
		mustWrite(t, path, mustRead(t, filepath.Join("testdata", "v1.db")))
		mustAlter(t, path, "UPDATE rows SET body = zeroblob(30) WHERE seq = 12")
		j := mustOpen(t, newMachine().journalConfig(path))
		if q := mustQuarantine(t, j); q.Lost != 1 || q.Salvaged != 19 {
			t.Errorf("quarantined: %+v", q)
		}
		if want, err := j.Desired(context.Background()); err != nil || len(want.Allocs) != 3 {
			t.Errorf("desired: %+v, %v", want, err)
		}
	})
}

func opensAsReleased(t *testing.T, golden string) {
	m := newMachine()
	path := dbPath(t)
	mustWrite(t, path, mustRead(t, golden))
	j := mustOpen(t, m.journalConfig(path))
	if q := j.Quarantined(); len(q) != 0 {
		t.Fatalf("it is taken for damaged: %+v", q)
	}
	if h := j.Head(); h.First != 1 || h.Last != 20 || h.Acknowledged != 5 {
		t.Fatalf("head: %+v", h)
	}
	if ts := mustReadAll(t, j); ts[19].ClientDescription != "row 19" || ts[19].BootID != boot1 {
		t.Fatalf("the newest row: %+v", ts[19])
	}
	ctx := context.Background()
	want, err := j.Desired(ctx)
	if err != nil || want.Index != 4 || want.Cluster != "c" || want.Term != 3 || want.Allocs[allocID(0)].Alloc.Job == nil || !want.Allocs[allocID(2)].Stop {
		t.Fatalf("desired: %+v, %v", want, err)
	}
	if s, ok := j.State(allocID(1)); !ok || s.ClientStatus != fleet.ClientRunning || s.Seq != 20 {
		t.Fatalf("state: %+v", s)
	}
	if l := j.Link(); l.Session != 12 {
		t.Fatalf("link: %+v", l)
	}
	if h, err := j.Handles(ctx, allocID(0)); err != nil || string(h["t"]) != "handle" {
		t.Fatalf("handles: %v, %v", h, err)
	}
}

// TestANewDatabaseIsOneTransaction counts the frames of SQLite's log that end a transaction: they have the size of the database.
func TestANewDatabaseIsOneTransaction(t *testing.T) {
	cfg := newMachine().journalConfig(dbPath(t))
	mustOpen(t, cfg)
	const logHeader, frameHeader, page = 32, 24, 4096
	commits := 0
	for wal := mustRead(t, cfg.Path+"-wal")[logHeader:]; len(wal) > 0; wal = wal[frameHeader+page:] {
		if binary.BigEndian.Uint32(wal[4:]) > 0 {
			commits++
		}
	}
	if commits != 1 {
		t.Errorf("%d transactions made the database, want 1", commits)
	}
}

// TestANegativeVersionIsDamage opens a database whose header has a version below zero.
func TestANegativeVersionIsDamage(t *testing.T) {
	path := dbPath(t)
	mustWrite(t, path, mustRead(t, filepath.Join("testdata", "v2.db")))
	mustAlter(t, path, "PRAGMA user_version = -3")
	j := mustOpen(t, newMachine().journalConfig(path))
	if q := mustQuarantine(t, j); q.Lost != 0 || q.Salvaged != 20 {
		t.Errorf("quarantined: %+v", q)
	}
}
