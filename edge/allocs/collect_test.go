package allocs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"skerry/edge/allocs"
	"skerry/edge/journal"
	"skerry/fleet"
)

func TestOldEndedAllocationsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		dir, tasks := t.TempDir(), t.TempDir()
		for i := range 5 {
			id := fleet.AllocID(fmt.Sprint("a", i))
			n.wants[id] = want(id, 0)
			n.states[id] = journal.State{ClientStatus: fleet.ClientComplete, BootID: boot1, Seq: fleet.Seq(i + 1)}
			for _, dir := range []string{dir, tasks} { // a killed agent left the drivers' folders
				if err := os.MkdirAll(filepath.Join(dir, string(id), "alloc"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}
		n.acked = 4 // the cluster does not know of the last one's end
		l := mustStartAgent(t, n, f, func(c *allocs.Config) { c.Dir, c.TasksDir, c.KeepEnded = dir, tasks, 2 })
		<-l.Recovered()
		synctest.Wait()
		for _, dir := range []string{dir, tasks} {
			if names := mustList(t, dir); fmt.Sprint(names) != "[a2 a3 a4]" || len(n.wants) != 3 {
				t.Errorf("left in %s: %q, wanted: %d", dir, names, len(n.wants))
			}
		}
	})
}

// TestCollect removes ended allocations on request, and no others.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		dir := t.TempDir()
		for i, id := range []fleet.AllocID{"old", "one", "kept", "new", "runs"} {
			w := want(id, 0)
			w.KeptStopped = id == "kept"
			n.wants[id] = w
			if id != "runs" {
				n.states[id] = journal.State{ClientStatus: fleet.ClientComplete, BootID: boot1, Seq: fleet.Seq(i + 1)}
			}
			if err := os.Mkdir(filepath.Join(dir, string(id)), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		n.acked = 3
		l := mustStartAgent(t, n, f, func(c *allocs.Config) { c.Dir = dir })
		<-l.Recovered()
		synctest.Wait()
		for id, why := range map[fleet.AllocID]string{
			"gone": "not on this edge", "runs": "has not ended", "new": "not confirmed", "kept": "on site",
		} {
			if err := l.Collect(t.Context(), id); err == nil || !strings.Contains(err.Error(), why) || fleet.AsError(err).Hint == "" {
				t.Errorf("%s: %v, want %q", id, err, why)
			}
		}
		if err := l.Collect(t.Context(), "one"); err != nil {
			t.Error(err)
		}
		if names := mustList(t, dir); fmt.Sprint(names) != "[kept new old runs]" || len(n.wants) != 4 {
			t.Errorf("left: %q, wanted: %d", names, len(n.wants))
		}
		if err := l.Collect(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if names := mustList(t, dir); fmt.Sprint(names) != "[kept new runs]" || len(n.wants) != 3 {
			t.Errorf("left: %q, wanted: %d", names, len(n.wants))
		}
	})
}

func mustList(tb testing.TB, dir string) (names []string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
