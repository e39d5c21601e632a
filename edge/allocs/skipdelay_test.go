package allocs_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"skerry/edge/allocs"
	"skerry/fleet"
	"skerry/syncproto"
)

// A runner is told once to skip the shutdown_delay: before the stop, or later if the request comes
// later, and again after a restart of the agent.
func TestStopsWithoutTheirDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"], n.wants["b"] = want("a", 0), want("b", 0)
		l := mustStartAgent(t, n, f, nil)
		synctest.Wait()
		stop := func(id fleet.AllocID, noDelay bool) {
			t.Helper()
			d := syncproto.Desired{Index: 9, Stop: []syncproto.DesiredStop{{ID: id, Reason: "r", NoDelay: noDelay}}}
			if _, _, err := l.Deliver(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		did := func(id fleet.AllocID, want ...string) {
			t.Helper()
			r := f.runnersOf(id)[len(f.runnersOf(id))-1]
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Equal(r.did, want) {
				t.Errorf("%s: %v, want %v", id, r.did, want)
			}
		}
		f.runnersOf("b")[0].linger.Store(true)
		stop("a", true)
		stop("a", true)
		did("a", "skip delay", "stop")
		stop("b", false)
		did("b", "stop")
		stop("b", true)
		stop("b", true)
		did("b", "stop", "skip delay")
		l.stopAgent()
		l = mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		did("b", "skip delay", "stop")
		if s := n.States()["b"]; s.ClientStatus != fleet.ClientComplete {
			t.Errorf("b is %q", s.ClientStatus)
		}
	})
}

// An operator on site may also skip the shutdown_delay of an allocation that is stopping, once.
func TestStopsOnSiteWithoutTheirDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = want("a", 0)
		l := mustStartAgent(t, n, f, nil)
		synctest.Wait()
		f.runnersOf("a")[0].linger.Store(true)
		stop := func(noDelay bool, code fleet.Code, did ...string) {
			t.Helper()
			if err := l.Stop(t.Context(), "a", allocs.StopOnSite{Person: allocs.Person{Reason: "smoke"}, NoDelay: noDelay}); fleet.CodeOf(err) != code {
				t.Fatalf("without delay %t: %v", noDelay, err)
			}
			synctest.Wait()
			r := f.runnersOf("a")[0]
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Equal(r.did, did) {
				t.Fatalf("without delay %t: %v, want %v", noDelay, r.did, did)
			}
		}
		stop(false, "", "hold")
		stop(false, fleet.CodeConflict, "hold")
		stop(true, "", "hold", "skip delay")
		stop(true, fleet.CodeConflict, "hold", "skip delay")
		var said []string
		for _, row := range n.rows {
			if row.Kind == fleet.TransitionOperator {
				said = append(said, row.Message)
			}
		}
		if want := []string{"stopped on site: smoke", "stopped on site without its shutdown_delay: smoke"}; !slices.Equal(said, want) {
			t.Errorf("rows: %q", said)
		}
	})
}
