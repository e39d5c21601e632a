package datadir_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"skerry/internal/datadir"
)

// smallDisk is a disk whose free space a test decides on; what a reserve gives up is free.
type smallDisk struct {
	path              string
	freeBesideReserve atomic.Int64 // free beside the reserve
	full              int64        // of the reserve
}

func (s *smallDisk) freeSpace(string) (free, total int64, err error) {
	held := int64(0)
	if info, err := os.Stat(filepath.Join(s.path, "reserve")); err == nil {
		held = info.Size()
	}
	return max(0, s.freeBesideReserve.Load()+s.full-held), 1 << 30, nil
}

func (s *smallDisk) dirKind() datadir.Kind {
	return datadir.Kind{Owner: "an edge", Version: 1, Reserve: s.full, Free: s.freeSpace, Step: func(string) error {
		if free, _, _ := s.freeSpace(""); free < 4096 {
			return syscall.ENOSPC
		}
		return nil
	}}
}

func mustOpenSmall(t *testing.T, s *smallDisk) *datadir.Dir {
	t.Helper()
	d, err := datadir.Open(s.path, s.dirKind())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// A directory of the version that is written opens on a disk that takes nothing, also where
// there is no reserve.
func TestStartNeedsNoSpace(t *testing.T) {
	path := t.TempDir()
	mustOpen(t, path).Close()
	before, err := os.Stat(filepath.Join(path, "version"))
	if err != nil {
		t.Fatal(err)
	}
	d := mustOpenSmall(t, &smallDisk{path: path})
	after, err := os.Stat(d.File("version"))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the version was written anew (%v)", err)
	}
}

// The reserve is filled where there is room, given up in pieces where there is none, and filled
// again.
func TestReserve(t *testing.T) {
	s := &smallDisk{path: t.TempDir(), full: 8 << 20}
	s.freeBesideReserve.Store(1 << 30)
	d := mustOpenSmall(t, s)
	if got := d.Space(); got.Reserve != s.full || got.Full() {
		t.Fatalf("with room: %+v", got)
	}
	s.freeBesideReserve.Store(0)
	if got := d.CheckSpace(); !got.Full() || got.Reserve != 7<<20 {
		t.Errorf("on a full disk: %+v, want a piece given up", got)
	}
	s.freeBesideReserve.Store(-1 << 20) // that was used
	if err := d.Write("a", []byte("text"), 0o600); err != nil {
		t.Errorf("write on a full disk: %v", err)
	}
	if got := d.Space(); got.Reserve != 6<<20 {
		t.Errorf("after a write on a full disk: %+v, want another piece given up", got)
	}
	for n := 6; d.ReleaseReserve(); n-- {
		if n == 0 {
			t.Fatal("the reserve has no end")
		}
	}
	s.freeBesideReserve.Store(-s.full)
	if err := d.Write("b", []byte("text"), 0o600); err == nil {
		t.Error("a disk without a reserve took a file")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpenSmall(t, s) // all the same
	s.freeBesideReserve.Store(1 << 30)
	if got := d.CheckSpace(); got.Full() || got.Reserve != s.full {
		t.Errorf("with room again: %+v", got)
	}
}

// A part of the reserve outlives others who take all that is given up, and each start gets some of it.
func TestReserveIsKeptForStarts(t *testing.T) {
	s := &smallDisk{path: t.TempDir(), full: 8 << 20}
	s.freeBesideReserve.Store(1 << 30)
	d := mustOpenSmall(t, s)
	d.EndStart()
	s.freeBesideReserve.Store(-1 << 30) // nothing stays free
	for range 100 {
		d.CheckSpace()
		d.ReleaseReserve()
	}
	if got := d.Space(); got.Reserve != 4<<20 {
		t.Fatalf("others leave %+v, want half of the reserve", got)
	}
	for kept := int64(4 << 20); kept > 0; kept -= 2 << 20 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = mustOpenSmall(t, s)
		if got := d.Space(); got.Reserve != kept-1<<20 {
			t.Errorf("a start with %d bytes leaves %d, want a piece given up", kept, got.Reserve)
		}
		if !d.ReleaseReserve() {
			t.Error("a start that needs more does not get it")
		}
		d.EndStart()
		if d.CheckSpace(); d.ReleaseReserve() {
			t.Error("after a start, the part for starts is given up")
		}
	}
}

// Who asks is told once that the disk is full, and once that it is not.
func TestWatchSpace(t *testing.T) {
	s := &smallDisk{path: t.TempDir(), full: 8 << 20}
	s.freeBesideReserve.Store(1 << 30)
	d := mustOpenSmall(t, s)
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.WatchSpace(ctx, func(s datadir.Space) { told = append(told, s.Full()) })
		}()
		for _, room := range []int64{1 << 30, 0, 0, 1 << 30, 1 << 30} {
			s.freeBesideReserve.Store(room)
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		cancel()
		<-done
		if len(told) != 2 || !told[0] || told[1] {
			t.Errorf("told %v, want full and not full", told)
		}
	})
}
