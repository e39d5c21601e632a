package allocs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// moved is an allocation whose data is moved between edges.
func moved(id, previous fleet.AllocID) journal.DesiredAlloc {
	w := named(id)
	w.Alloc.PreviousAllocation = previous
	w.Alloc.Job.TaskGroups[0].EphemeralDisk = fleet.EphemeralDisk{SizeMB: 1, Migrate: true}
	return w
}

// newMoveTest runs an edge that has "new", whose predecessor "old" is on another edge.
func newMoveTest(t *testing.T) *stickyTest {
	s := &stickyTest{T: t, n: newFakeJournal(), f: &factory{}, dir: t.TempDir()}
	start := time.Now()
	s.n.mono = func() time.Duration { return time.Since(start) + time.Minute }
	s.n.wants["new"] = moved("new", "old")
	s.runAgent()
	s.wantWaiting("")
	return s
}

// wantWaiting checks that "new" waits, for a reason that contains why.
func (s *stickyTest) wantWaiting(why string) {
	s.Helper()
	synctest.Wait()
	s.wantStatus("new", "")
	all, err := s.l.Status(s.Context())
	if note := all["new"].Note; err != nil || !strings.Contains(note, "waits for the data of allocation old on another edge") || !strings.Contains(note, why) {
		s.Fatalf("%v: %q, want %q", err, note, why)
	}
}

// wantSaid checks that the rows of an allocation, and the events of its task, say something just once.
func (s *stickyTest) wantSaid(id fleet.AllocID, text string) {
	s.Helper()
	rows, events := 0, 0
	s.n.withLock(func() {
		for _, r := range s.n.rows {
			if r.Alloc == id && strings.Contains(r.Message, text) {
				rows++
			}
			if r.Alloc == id && r.Event != nil && r.Event.Type == fleet.TaskSetup && strings.Contains(r.Event.DisplayMessage, text) {
				events++
			}
		}
	})
	if rows != 1 || events != 1 {
		s.Errorf("%d rows and %d events of %s say %q, want 1", rows, events, id, text)
	}
}

// bring brings an archive to "new".
func (s *stickyTest) bring(archive io.Reader) error {
	s.Helper()
	asked := false
	err := s.l.TakeData(s.Context(), "new", func() error { asked = true; return nil }, archive)
	if !asked && err == nil {
		s.Error("data was taken before that was said")
	}
	synctest.Wait()
	return err
}

// archiveOfOld is the data of "old", as its edge sends it.
func archiveOfOld(t *testing.T) []byte {
	t.Helper()
	s := newStickyTest(t)
	s.write("old/t/secrets/token")
	s.deliver()
	r, err := s.l.OpenData(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

// wantNoIncoming checks that nothing of an incomplete copy is left.
func (s *stickyTest) wantNoIncoming() {
	s.Helper()
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) > 0 {
		s.Errorf("%v, %v", entries, err)
	}
}

func TestMovedData(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(s *stickyTest)
	}{
		{"the replacement begins with the data, and without secrets and logs", func(s *stickyTest) {
			s.wantSaid("new", "waits for the data of allocation old")
			if err := s.bring(bytes.NewReader(archiveOfOld(s.T))); err != nil {
				s.Fatal(err)
			}
			s.wantStatus("new", fleet.ClientRunning)
			for path, want := range map[string]string{"alloc/data/sales.db": "old/alloc/data/sales.db", "t/local/cache": "old/t/local/cache", "t/secrets/token": "", "gone/local/x": "", "alloc/logs/t.stdout.0": ""} {
				if b, _ := os.ReadFile(filepath.Join(s.dir, "new", path)); string(b) != want {
					s.Errorf("%s holds %q", path, b)
				}
			}
			s.wantSaid("new", "has the data of allocation old of another edge: 2 files, 40 bytes")
			if err := s.bring(bytes.NewReader(nil)); fleet.CodeOf(err) != fleet.CodeConflict {
				s.Errorf("a second time: %v", err)
			}
		}},
		{"a cut leaves nothing, and the copy begins again, also after a restart of the agent", func(s *stickyTest) {
			archive := archiveOfOld(s.T)
			if err := s.bring(bytes.NewReader(archive[:len(archive)-4096])); err == nil {
				s.Error("half of it was taken")
			}
			s.wantWaiting("")
			s.wantSaid("new", "copy 1 of 5 of the data of allocation old was not completed")
			s.wantNoIncoming()
			s.l.stopAgent()
			s.write(".incoming-new/alloc/data/half")
			s.runAgent()
			s.wantWaiting("")
			s.wantNoIncoming()
			if err := s.bring(bytes.NewReader(archive)); err != nil {
				s.Fatal(err)
			}
			s.wantStatus("new", fleet.ClientRunning)
			s.wantSaid("new", "waits for the data of allocation old")
		}},
		{"an agent that ended after the renaming does not wait again", func(s *stickyTest) {
			s.l.stopAgent()
			s.write("new/alloc/data/sales.db")
			s.runAgent()
			s.wantStatus("new", fleet.ClientRunning)
			s.wantSaid("new", "has the data of allocation old")
		}},
		{"a hub says that the data never comes", func(s *stickyTest) {
			if err := s.l.NoData(s.Context(), "new", "it stays on edge ship-3, which is away since yesterday", false); err != nil {
				s.Fatal(err)
			}
			synctest.Wait()
			s.wantStatus("new", fleet.ClientRunning)
			s.wantSaid("new", "begins without the data of allocation old: it stays on edge ship-3, which is away since yesterday")
		}},
		{"it waits as long as a hub says why, and no longer", func(s *stickyTest) {
			for range 4 {
				time.Sleep(10 * time.Minute)
				if err := s.l.NoData(s.Context(), "new", "that allocation has not ended", true); err != nil {
					s.Fatal(err)
				}
				s.wantWaiting("that allocation has not ended")
			}
			time.Sleep(14 * time.Minute)
			s.wantWaiting("")
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			s.wantStatus("new", fleet.ClientRunning)
			s.wantSaid("new", "begins without the data of allocation old: no hub has brought it, or said anything of it, for 15m0s")
		}},
		{"a slow copy that goes on is waited for", func(s *stickyTest) {
			slow := &slowReader{bytes.NewReader(archiveOfOld(s.T)), 10 * time.Minute}
			if err := s.bring(slow); err != nil {
				s.Fatal(err)
			}
			s.wantStatus("new", fleet.ClientRunning)
			s.wantSaid("new", "has the data of allocation old")
		}},
		{"restarts without a link do not make it wait for ever", func(s *stickyTest) {
			s.n.withLock(func() { s.n.lastHeartbeat = time.Now() })
			for range 2 {
				time.Sleep(6 * time.Minute)
				s.l.stopAgent()
				s.runAgent()
				s.wantWaiting("")
			}
			time.Sleep(4 * time.Minute)
			s.l.stopAgent()
			s.runAgent()
			s.wantStatus("new", fleet.ClientRunning)
			s.wantSaid("new", "no hub has brought it")
		}},
		{"data that is too large is left where it is", func(s *stickyTest) {
			big := newStickyTest(s.T)
			if err := os.WriteFile(filepath.Join(big.dir, "old/t/local/big"), make([]byte, 1<<20+1), 0o600); err != nil {
				s.Fatal(err)
			}
			big.deliver()
			r, err := big.l.OpenData(s.Context(), "old")
			if err != nil {
				s.Fatal(err)
			}
			if err := s.bring(r); fleet.CodeOf(err) != fleet.CodeInvalid {
				s.Errorf("%v", err)
			}
			if err := r.Close(); err != nil {
				s.Error(err)
			}
			s.wantStatus("new", fleet.ClientRunning)
			s.wantSaid("new", "larger than the 1 MB of the group's ephemeral_disk (write a larger size in ephemeral_disk")
			s.wantData("new", "t/local/big", "")
		}},
		{"after five copies that broke off it begins without the data", func(s *stickyTest) {
			for range 4 {
				_ = s.bring(bytes.NewReader([]byte("not a tar")))
				s.wantWaiting("")
			}
			_ = s.bring(bytes.NewReader(nil))
			s.wantStatus("new", fleet.ClientRunning)
			s.wantSaid("new", "begins without the data of allocation old, which stays on its edge for now")
		}},
		{"one that is stopped while its data comes does not begin", func(s *stickyTest) {
			stopping := &slowReader{bytes.NewReader(archiveOfOld(s.T)), time.Second}
			time.AfterFunc(3*time.Second, func() { s.stop("new") })
			if err := s.bring(stopping); fleet.CodeOf(err) != fleet.CodeConflict {
				s.Errorf("%v", err)
			}
			s.wantStatus("new", fleet.ClientComplete)
			s.wantNoIncoming()
			s.n.withLock(func() {
				if last := s.n.rows[len(s.n.rows)-1]; last.ClientStatus != fleet.ClientComplete {
					s.Errorf("after its end: %+v", last)
				}
			})
		}},
		{"two copies at once", func(s *stickyTest) {
			archive := archiveOfOld(s.T)
			r, w := io.Pipe()
			first := make(chan error, 1)
			go func() { first <- s.l.TakeData(s.Context(), "new", func() error { return nil }, r) }()
			synctest.Wait()
			if err := s.bring(bytes.NewReader(archive)); fleet.CodeOf(err) != fleet.CodeUnavailable {
				s.Errorf("%v", err)
			}
			if _, err := w.Write(archive[:len(archive)-1024]); err != nil {
				s.Error(err)
			}
			if err := <-first; err != nil {
				s.Error(err)
			}
			synctest.Wait()
			s.wantStatus("new", fleet.ClientRunning)
		}},
		{"who is not known yet is told to ask again, who does not wait is told so", func(s *stickyTest) {
			if err := s.l.NoData(s.Context(), "later", "why", false); fleet.CodeOf(err) != fleet.CodeNotFound {
				s.Errorf("%v", err)
			}
			s.n.withLock(func() { s.n.wants["plain"] = named("plain") })
			if err := s.l.TakeData(s.Context(), "plain", nil, nil); fleet.CodeOf(err) != fleet.CodeConflict {
				s.Errorf("%v", err)
			}
		}},
		{"a predecessor here that never began waited for the same data", func(s *stickyTest) {
			s.n.withLock(func() { s.n.wants["newest"] = moved("newest", "new") })
			s.stop("new")
			s.wantStatus("new", fleet.ClientComplete)
			s.wantStatus("newest", "")
			if err := s.l.TakeData(s.Context(), "newest", func() error { return nil }, bytes.NewReader(archiveOfOld(s.T))); err != nil {
				s.Fatal(err)
			}
			synctest.Wait()
			s.wantStatus("newest", fleet.ClientRunning)
			s.wantSaid("newest", "has the data of allocation old")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { tc.run(newMoveTest(t)) }) })
	}
}

// slowReader pauses before each 4 KiB.
type slowReader struct {
	r     io.Reader
	pause time.Duration
}

func (s *slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.r.Read(p[:min(len(p), 4<<10)])
}

// newOfferTest runs an edge whose allocation "old" was stopped, and can be removed but for its data.
func newOfferTest(t *testing.T) *stickyTest {
	s := &stickyTest{T: t, n: newFakeJournal(), f: &factory{}, dir: t.TempDir()}
	start := time.Now()
	s.n.mono = func() time.Duration { return time.Since(start) + time.Minute }
	s.n.acked, s.n.wants["old"] = 1000, moved("old", "")
	s.write("old/alloc/data/sales.db")
	s.runAgent()
	if _, err := s.l.OpenData(t.Context(), "old"); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Errorf("one that runs: %v", err)
	}
	s.stop("old")
	s.wantStatus("old", fleet.ClientComplete)
	return s
}

// wantKept checks whether "old" may be collected.
func (s *stickyTest) wantKept(kept bool) {
	s.Helper()
	err := s.l.Collect(context.WithoutCancel(s.Context()), "old")
	if kept && (fleet.CodeOf(err) != fleet.CodeConflict || !strings.Contains(err.Error(), "a replacement on another edge may need its data")) || !kept && err != nil {
		s.Errorf("%v", err)
	}
	if err := s.l.Collect(s.Context(), ""); err != nil {
		s.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "old")); kept != (err == nil) {
		s.Errorf("kept: %v, want %v", err, kept)
	}
}

func TestOfferedData(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(s *stickyTest)
	}{
		{"it is kept for an hour", func(s *stickyTest) {
			s.wantKept(true)
			time.Sleep(59 * time.Minute)
			s.wantKept(true)
			time.Sleep(2 * time.Minute)
			s.wantKept(false)
			if _, err := s.l.OpenData(s.Context(), "old"); fleet.CodeOf(err) != fleet.CodeNotFound {
				s.Errorf("%v", err)
			}
		}},
		{"it is kept while it is read, and for an hour after that", func(s *stickyTest) {
			r, err := s.l.OpenData(s.Context(), "old")
			if err != nil {
				s.Fatal(err)
			}
			time.Sleep(10 * time.Hour)
			s.wantKept(true)
			if err := r.Close(); err != nil {
				s.Error(err)
			}
			time.Sleep(59 * time.Minute)
			s.wantKept(true)
			time.Sleep(2 * time.Minute)
			s.wantKept(false)
		}},
		{"it may go when the replacement has it", func(s *stickyTest) {
			s.wantKept(true)
			r, err := s.l.OpenData(s.Context(), "old")
			if err != nil {
				s.Fatal(err)
			}
			s.l.ReleaseData("old")
			if err := r.Close(); err != nil {
				s.Error(err)
			}
			s.wantKept(false)
		}},
		{"one that never began sends the data that it would have taken", func(s *stickyTest) {
			s.l.stopAgent()
			between := moved("between", "old")
			between.Alloc.Job.TaskGroups[0].EphemeralDisk.Sticky, between.Stop = true, true
			s.n.withLock(func() { s.n.wants["between"] = between })
			s.runAgent()
			s.wantStatus("between", fleet.ClientComplete)
			r, err := s.l.OpenData(s.Context(), "between")
			if err != nil {
				s.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil || !bytes.Contains(b, []byte("old/alloc/data/sales.db")) {
				s.Errorf("%d bytes, %v", len(b), err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { tc.run(newOfferTest(t)) }) })
	}
}
