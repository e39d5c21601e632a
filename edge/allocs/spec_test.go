package allocs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// TestWhatTheJournalLostIsTakenBack adopts a running allocation that the journal and the cluster have lost.
func TestWhatTheJournalLostIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := t.TempDir()
		folders := func(c *allocs.Config) { c.TasksDir = tasks }
		before, first := newFakeJournal(), &factory{}
		for _, id := range []fleet.AllocID{"lost", "ended"} {
			w := want(id, 0)
			w.Alloc.JobHash, w.Alloc.Name, w.Alloc.AllocModifyIndex = "hash", "shop.g[0]", 7
			before.wants[id] = w
		}
		l := mustStartAgent(t, before, first, folders)
		<-l.Recovered()
		l.stopAgent()
		if err := os.Mkdir(filepath.Join(tasks, "nothing-is-known"), 0o700); err != nil {
			t.Fatal(err)
		}

		n, f := newFakeJournal(), &factory{}
		n.states["ended"] = journal.State{ClientStatus: fleet.ClientComplete, BootID: boot1, Seq: 1}
		began := time.Now()
		l = mustStartAgent(t, n, f, folders)
		<-l.Recovered()
		if took := time.Since(began); took != 0 {
			t.Errorf("recovered after %s: it had to be tried again", took)
		}
		if got := f.runnersOf("lost"); len(got) != 1 || got[0].alloc.Job == nil || got[0].alloc.AllocModifyIndex != 7 || got[0].last.Known {
			t.Fatalf("taken back by %+v, want one runner that has to find out what runs", got)
		}
		if len(f.made) != 1 || len(n.wants) != 1 {
			t.Errorf("%d runners, %d allocations wanted: nothing but what was lost is taken back", len(f.made), len(n.wants))
		}
		if names := mustList(t, filepath.Join(tasks, "ended")); len(names) != 0 {
			t.Errorf("of what has ended %q is left: a journal that forgets its end would start it again", names)
		}
		_, holdings, err := l.Deliver(t.Context(), syncproto.Desired{Index: 9, Full: true})
		if err != nil || fmt.Sprint(holdings) != "[lost]" {
			t.Errorf("holdings: %v, %v", holdings, err)
		}
		n.withLock(func() { n.states["unsure"] = journal.State{ClientStatus: fleet.ClientPending, BootID: boot1, Seq: 2} })
		_, holdings, err = l.Deliver(t.Context(), syncproto.Desired{Index: 10, Full: true})
		if err != nil || fmt.Sprint(holdings) != "[lost unsure]" {
			t.Errorf("holdings with a state of what nobody is known to want: %v, %v", holdings, err)
		}
		stop := []syncproto.DesiredStop{{ID: "unsure", Reason: "it is long over"}}
		if _, _, err := l.Deliver(t.Context(), syncproto.Desired{Index: 11, Stop: stop}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := n.States()["unsure"]; !s.Terminal() {
			t.Errorf("a hub said that it shall stop, and it stays %+v", s)
		}
		if err := l.Stop(t.Context(), "lost", allocs.StopOnSite{MayReturn: true}); err != nil {
			t.Errorf("stop it on site: %v", err)
		}
		synctest.Wait()
		if s := n.States()["lost"]; !s.Terminal() {
			t.Errorf("state: %+v", s)
		}
	})
}
