package allocs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// stickyTest is an edge with allocations whose disks are sticky.
type stickyTest struct {
	*testing.T
	n   *fakeJournal
	f   *factory
	l   *runningAgent
	dir string
}

// newStickyTest runs "old", which has data and a task that is gone from the next version.
func newStickyTest(t *testing.T) *stickyTest {
	s := &stickyTest{T: t, n: newFakeJournal(), f: &factory{}, dir: t.TempDir()}
	start := time.Now()
	s.n.mono = func() time.Duration { return time.Since(start) + time.Minute }
	s.n.wants["old"] = sticky("old", "")
	s.write("old/alloc/data/sales.db", "old/t/local/cache", "old/alloc/logs/t.stdout.0", "old/gone/local/x")
	s.runAgent()
	s.wantStatus("old", fleet.ClientRunning)
	return s
}

func sticky(id, previous fleet.AllocID) journal.DesiredAlloc {
	w := named(id)
	w.Alloc.PreviousAllocation = previous
	w.Alloc.Job.TaskGroups[0].EphemeralDisk.Sticky = true
	return w
}

func (s *stickyTest) runAgent() {
	s.l = mustStartAgent(s.T, s.n, s.f, func(c *allocs.Config) { c.Dir, c.KeepEnded = s.dir, 1 })
	synctest.Wait()
}

// write makes files whose content is their path.
func (s *stickyTest) write(paths ...string) {
	s.Helper()
	for _, path := range paths {
		file := filepath.Join(s.dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			s.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(path), 0o600); err != nil {
			s.Fatal(err)
		}
	}
}

// deliver delivers allocations to run, and stops "old".
func (s *stickyTest) deliver(run ...journal.DesiredAlloc) {
	s.Helper()
	s.n.withLock(func() {
		for _, w := range run {
			s.n.wants[w.Alloc.ID] = w
		}
	})
	s.stop("old")
}

func (s *stickyTest) stop(id fleet.AllocID) {
	s.Helper()
	if _, _, err := s.l.Deliver(s.Context(), syncproto.Desired{Index: 9, Stop: []syncproto.DesiredStop{{ID: id, Reason: "version 2"}}}); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
}

func (s *stickyTest) wantStatus(id fleet.AllocID, status string) {
	s.Helper()
	if got := s.n.States()[id].ClientStatus; got != status {
		all, err := s.l.Status(s.Context())
		s.Fatalf("%s is %q (%q, %v), want %q", id, got, all[id].Note, err, status)
	}
}

// wantData checks which file an allocation has at a path: that of the allocation from, or none for "".
func (s *stickyTest) wantData(id fleet.AllocID, path string, from fleet.AllocID) {
	s.Helper()
	want := ""
	if from != "" {
		want = string(from) + "/" + path
	}
	if b, _ := os.ReadFile(filepath.Join(s.dir, string(id), path)); string(b) != want {
		s.Errorf("%s of %s holds %q, want %q", path, id, b, want)
	}
}

// wantTaken counts the rows that say that an allocation took data.
func (s *stickyTest) wantTaken(id fleet.AllocID, want int) {
	s.Helper()
	var rows []string
	s.n.withLock(func() {
		for _, r := range s.n.rows {
			if r.Alloc == id && strings.HasPrefix(r.Message, "takes over the data of") {
				rows = append(rows, r.Message)
			}
		}
	})
	if len(rows) != want {
		s.Errorf("%s has the rows %q, want %d", id, rows, want)
	}
}

func TestStickyData(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(s *stickyTest)
	}{
		{"the replacement takes the data after the end of the old allocation", func(s *stickyTest) {
			s.deliver(sticky("new", "old"))
			s.wantStatus("old", fleet.ClientComplete)
			s.wantStatus("new", fleet.ClientRunning)
			s.wantData("new", "alloc/data/sales.db", "old")
			s.wantData("new", "t/local/cache", "old")
			s.wantData("new", "alloc/logs/t.stdout.0", "")
			s.wantData("new", "gone/local/x", "")
			s.wantData("old", "alloc/logs/t.stdout.0", "old")
			s.wantTaken("new", 1)
		}},
		{"it waits while the old one stops, also after a restart of the agent", func(s *stickyTest) {
			s.f.runnersOf("old")[0].linger.Store(true)
			s.deliver(sticky("new", "old"))
			s.wantStatus("new", "")
			all, err := s.l.Status(s.Context())
			if note := all["new"].Note; err != nil || !strings.Contains(note, "waits for allocation old to end") {
				s.Fatalf("%v: %q", err, note)
			}
			s.wantData("old", "alloc/data/sales.db", "old")
			s.l.stopAgent()
			s.runAgent()
			s.wantStatus("old", fleet.ClientComplete)
			s.wantStatus("new", fleet.ClientRunning)
			s.wantData("new", "alloc/data/sales.db", "old")
		}},
		{"a replacement that is not sticky begins with empty folders, and does not wait", func(s *stickyTest) {
			s.f.runnersOf("old")[0].linger.Store(true)
			w := named("new")
			w.Alloc.PreviousAllocation = "old"
			s.deliver(w)
			s.wantStatus("new", fleet.ClientRunning)
			s.wantData("new", "alloc/data/sales.db", "")
		}},
		{"an old allocation on another edge has no data here", func(s *stickyTest) {
			s.deliver(sticky("new", "elsewhere"))
			s.wantStatus("new", fleet.ClientRunning)
			s.wantData("old", "alloc/data/sales.db", "old")
			s.wantTaken("new", 0)
		}},
		{"a crash between two folders loses neither and is not said twice", func(s *stickyTest) {
			s.l.stopAgent()
			s.stopJournaled("old")
			s.n.withLock(func() { s.n.wants["new"] = sticky("new", "old") })
			if err := s.n.PutHandle(s.Context(), "new", "/data", []byte("old"), fleet.Transition{Alloc: "new", Message: "takes over the data of allocation old"}); err != nil {
				s.Fatal(err)
			}
			s.write("new/t/other")
			if err := os.Rename(filepath.Join(s.dir, "old/t/local"), filepath.Join(s.dir, "new/t/local")); err != nil {
				s.Fatal(err)
			}
			s.runAgent()
			s.wantStatus("new", fleet.ClientRunning)
			s.wantData("new", "alloc/data/sales.db", "old")
			s.wantData("new", "t/local/cache", "old")
			s.wantTaken("new", 1)
		}},
		{"a replacement that never began hands on what it has, and what it has not", func(s *stickyTest) {
			s.l.stopAgent()
			s.stopJournaled("old")
			s.write("between/alloc/data/sales.db") // moved; t/local was not
			between := sticky("between", "old")
			between.Stop = true
			s.n.withLock(func() { s.n.wants["between"], s.n.wants["new"] = between, sticky("new", "between") })
			s.runAgent()
			s.wantStatus("between", fleet.ClientComplete)
			s.wantStatus("new", fleet.ClientRunning)
			s.wantData("new", "alloc/data/sales.db", "between")
			s.wantData("new", "t/local/cache", "old")
		}},
		{"data that cannot be moved hold the replacement back, and later is moved", func(s *stickyTest) {
			s.write("new/t") // a file where a folder has to be
			s.deliver(sticky("new", "old"))
			s.wantStatus("new", "")
			if all, err := s.l.Status(s.Context()); err != nil || !strings.Contains(all["new"].Note, "cannot be moved") {
				s.Fatalf("%v: %q", err, all["new"].Note)
			}
			s.wantData("new", "alloc/data/sales.db", "old")
			if err := os.Remove(filepath.Join(s.dir, "new/t")); err != nil {
				s.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			s.wantStatus("new", fleet.ClientRunning)
			s.wantData("new", "t/local/cache", "old")
			s.wantTaken("new", 1)
		}},
		{"data that a replacement will take is not collected", func(s *stickyTest) {
			s.n.withLock(func() { s.n.acked = 1000 })
			s.write("new/t")
			s.deliver(sticky("new", "old"))
			s.stop("other")
			err := s.l.Collect(s.Context(), "old")
			if fleet.CodeOf(err) != fleet.CodeConflict || !strings.Contains(fmt.Sprint(err), "has not taken its data") {
				s.Errorf("%v", err)
			}
			if err := s.l.Collect(s.Context(), ""); err != nil {
				s.Error(err)
			}
			s.wantData("old", "t/local/cache", "old")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { tc.run(newStickyTest(t)) }) })
	}
}

// stopJournaled ends an allocation while no agent runs.
func (s *stickyTest) stopJournaled(id fleet.AllocID) {
	s.Helper()
	s.n.withLock(func() { w := s.n.wants[id]; w.Stop = true; s.n.wants[id] = w })
	if err := s.n.Record(s.Context(), fleet.Transition{Alloc: id, ClientStatus: fleet.ClientComplete}); err != nil {
		s.Fatal(err)
	}
}
