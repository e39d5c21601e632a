package allocs_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/fleet"
)

// An allocation that was stopped on site stays stopped: its replacement does not start, also after a
// restart of the agent, until an operator on site starts it.
func TestStoppedOnSiteStaysStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		named := func(id fleet.AllocID, name string) {
			w := want(id, 0)
			w.Alloc.Name = name
			n.withLock(func() { n.wants[id] = w })
		}
		named("a", "shop.till[0]")
		named("b", "shop.till[1]")
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if _, _, err := l.Start(t.Context(), "a", ""); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Fatalf("start what nobody stopped: %v", err)
		}
		if err := l.Stop(t.Context(), "a", allocs.StopOnSite{Reason: "smoke"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		named("a2", "shop.till[0]") // the replacement that the hubs send
		named("c", "shop.till[2]")
		mustBegin := func(id fleet.AllocID, times int) {
			t.Helper()
			l.TriggerReconcile()
			synctest.Wait()
			if got := len(f.runnersOf(id)); got != times {
				t.Errorf("%s has begun %d times, want %d", id, got, times)
			}
		}
		mustBegin("a2", 0)
		mustBegin("c", 1)
		all, err := l.Status(t.Context())
		if err != nil || !strings.Contains(all["a2"].Note, "stopped on site") {
			t.Errorf("a2 says %q (%v), want that it was stopped on site", all["a2"].Note, err)
		}
		l.stopAgent()
		l = mustStartAgent(t, n, f, nil)
		synctest.Wait()
		mustBegin("a2", 0)
		said := 0
		for _, row := range n.rows {
			if row.Alloc == "a2" && strings.HasPrefix(row.Message, "not started") {
				said++
			}
		}
		if said != 1 {
			t.Errorf("the hubs are told %d times why a2 does not run, want once", said)
		}
		name, waiting, err := l.Start(t.Context(), "a2", "mended")
		if err != nil || name != "shop.till[0]" || waiting != 1 {
			t.Fatalf("start: %q, %d wait, %v", name, waiting, err)
		}
		mustBegin("a2", 1)
		if err := l.Stop(t.Context(), "b", allocs.StopOnSite{MayReturn: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		named("b2", "shop.till[1]")
		mustBegin("b2", 1)
		if !slices.ContainsFunc(n.rows, func(row fleet.Transition) bool { return row.Message == "may run again: mended" }) {
			t.Error("no row says that it may run again")
		}
	})
}

// TestSilenceIsThatOfTheShortest: the longest silence is a third of the shortest stop_on_client_after,
// in any order of the allocations.
func TestSilenceIsThatOfTheShortest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"], n.wants["b"], n.wants["c"], n.wants["d"] = want("a", time.Hour), want("b", 30*time.Second), want("c", time.Minute), want("d", 0)
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if got := l.MaxSilence(); got != 10*time.Second {
			t.Errorf("the link may be silent for %s, want 10s", got)
		}
	})
}
