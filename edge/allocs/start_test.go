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

// onSite has the allocations of an agent, and does what people on site do with them.
type onSite struct {
	*testing.T
	n *fakeJournal
	f *factory
	l *runningAgent
}

// mustPut adds an allocation of a job's version to the desired state.
func (o *onSite) mustPut(id fleet.AllocID, name string, version uint64, until string) {
	w := want(id, 0)
	w.Alloc.Name, w.Alloc.JobVersion = name, version
	w.Alloc.Job.TaskGroups[0].LocalControl = &fleet.LocalControl{Until: until}
	o.n.withLock(func() { o.n.wants[id] = w })
	if o.l != nil {
		o.l.TriggerReconcile()
		synctest.Wait()
	}
}

// restartAgent ends the agent and starts another one.
func (o *onSite) restartAgent() {
	if o.l != nil {
		o.l.stopAgent()
	}
	o.l = mustStartAgent(o.T, o.n, o.f, nil)
	synctest.Wait()
}

// wantState checks how often an allocation was begun, and its client status.
func (o *onSite) wantState(id fleet.AllocID, begun int, status string) {
	o.Helper()
	if got := o.n.States()[id].ClientStatus; len(o.f.runnersOf(id)) != begun || got != status {
		o.Errorf("%s was begun %d times and is %q, want %d times and %q", id, len(o.f.runnersOf(id)), got, begun, status)
	}
}

func (o *onSite) mustStop(id fleet.AllocID, how allocs.StopOnSite) {
	o.Helper()
	if err := o.l.Stop(o.Context(), id, how); err != nil {
		o.Fatal(err)
	}
	synctest.Wait()
}

func (o *onSite) mustStart(id fleet.AllocID, waiting int) {
	o.Helper()
	if _, n, err := o.l.Start(o.Context(), id, allocs.Person{By: "anna", Reason: "mended"}); err != nil || n != waiting {
		o.Fatalf("start: %d wait, %v", n, err)
	}
	synctest.Wait()
}

var smoke = allocs.StopOnSite{Person: allocs.Person{By: "anna", Reason: "smoke"}}

// A stop on site holds over restarts of the agent and reboots, until somebody starts the allocation again, which
// needs no hub. A replacement that a hub sends is held too.
func TestStopOnSiteHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &onSite{T: t, n: newFakeJournal(), f: &factory{}}
		o.mustPut("a", "shop.till[0]", 0, "")
		o.mustPut("b", "shop.till[1]", 0, "")
		o.restartAgent()
		if _, _, err := o.l.Start(t.Context(), "a", allocs.Person{}); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Fatalf("start what nobody stopped: %v", err)
		}
		o.mustStop("a", smoke)
		o.wantState("a", 1, fleet.ClientPending)
		if err := o.l.Stop(t.Context(), "a", smoke); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("stop what is held: %v", err)
		}
		err := o.l.Order(t.Context(), allocs.Order{Alloc: "a", Why: "restarted by an operator"})
		if fleet.CodeOf(err) != fleet.CodeConflict || !strings.Contains(err.Error(), "stopped on site by anna: smoke") {
			t.Errorf("a hub restarts what is held: %v", err)
		}
		o.restartAgent()
		o.wantState("a", 2, fleet.ClientPending) // a runner looks whether anything of it still runs
		if did := o.f.runnersOf("a")[1].did; len(did) != 1 || did[0] != "hold" {
			t.Errorf("after a restart of the agent the runner is told %q, want hold", did)
		}
		o.l.TriggerReconcile()
		synctest.Wait()
		o.wantState("a", 2, fleet.ClientPending)
		all, err := o.l.Status(t.Context())
		if err != nil || !strings.Contains(all["a"].Note, "stopped on site by anna: smoke") {
			t.Errorf("a says %q (%v)", all["a"].Note, err)
		}
		o.mustStart("a", 1)
		o.wantState("a", 3, fleet.ClientRunning)

		o.mustStop("a", smoke)
		o.n.withLock(func() { // a hub replaces it
			w := o.n.wants["a"]
			w.Stop, w.StopReason = true, "drained"
			o.n.wants["a"] = w
		})
		o.mustPut("a2", "shop.till[0]", 0, "")
		o.wantState("a", 4, fleet.ClientComplete)
		o.wantState("a2", 0, "")
		o.restartAgent()
		o.wantState("a2", 0, "")
		o.mustStart("a2", 1)
		o.wantState("a2", 1, fleet.ClientRunning)

		o.mustStop("b", allocs.StopOnSite{MayReturn: true})
		o.wantState("b", 3, fleet.ClientComplete)
		o.mustPut("b2", "shop.till[1]", 0, "")
		o.wantState("b2", 1, fleet.ClientRunning)
	})
}

// TestHoldsThatAreKnownNeedNoDisk starts an agent on a full disk: an allocation that is held keeps no other one from being
// taken back.
func TestHoldsThatAreKnownNeedNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &onSite{T: t, n: newFakeJournal(), f: &factory{}}
		o.mustPut("a", "shop.till[0]", 0, "")
		o.mustPut("b", "shop.till[1]", 0, "")
		o.restartAgent()
		o.mustStop("a", smoke)
		o.n.withLock(func() { o.n.full = true })
		o.restartAgent()
		o.wantState("b", 2, fleet.ClientRunning)
		o.wantState("a", 2, fleet.ClientPending)
	})
}

// A newer version of the job ends a hold only if it says so, whether it changes the allocation in place or replaces it.
func TestNewerVersionsAndHolds(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := &onSite{T: t, n: newFakeJournal(), f: &factory{}}
			o.mustPut("a", "shop.till[0]", 0, "")
			o.restartAgent()
			o.mustStop("a", smoke)
			next := fleet.AllocID("a")
			if replaced {
				next = "a2"
				o.n.withLock(func() {
					w := o.n.wants["a"]
					w.Stop = true
					o.n.wants["a"] = w
				})
			}
			o.mustPut(next, "shop.till[0]", 1, fleet.HoldUntilReleased)
			if held := o.n.States()[next].Held; held == nil || held.By != "anna" || held.JobVersion != 0 {
				t.Errorf("%s is held by %v, want anna", next, held)
			}
			o.mustPut(next, "shop.till[0]", 2, fleet.HoldUntilNextVersion)
			if s := o.n.States()[next]; s.Held != nil || s.ClientStatus != fleet.ClientRunning {
				t.Errorf("%s is %s, held by %v: the newer version overrules that", next, s.ClientStatus, s.Held)
			}
		})
	}
}

// TestHeldOneIsReplacedByANewerVersion has a newer version overrule a stop on site, while the stop of the older allocation waits
// for an update window: the older one does not start again, and as nothing of it runs, the newer one does at once.
func TestHeldOneIsReplacedByANewerVersion(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := &onSite{T: t, n: newFakeJournal(), f: &factory{}}
			o.mustPut("a", "shop.till[0]", 0, "")
			o.restartAgent()
			o.mustStop("a", smoke)
			o.n.withLock(func() {
				w := o.n.wants["a"]
				w.Stop, w.StopReason, w.Windows = true, "version 1", []fleet.UpdateWindow{{Cron: "0 0 29 2 *", Duration: time.Minute}}
				o.n.wants["a"] = w
			})
			if restarted { // the agent hears of it as it starts
				o.l.stopAgent()
				o.l = nil
			}
			o.mustPut("a2", "shop.till[0]", 1, fleet.HoldUntilNextVersion)
			if restarted {
				o.restartAgent()
			}
			time.Sleep(time.Minute)
			for i, r := range o.f.runnersOf("a") {
				if i > 0 && !slices.Contains(r.did, "hold") && !slices.Contains(r.did, "stop") {
					t.Errorf("restarted %t: the older allocation is started again: %q", restarted, r.did)
				}
			}
			if s := o.n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
				t.Errorf("restarted %t: the older allocation is %s", restarted, s.ClientStatus)
			}
			if s := o.n.States()["a2"]; s.ClientStatus != fleet.ClientRunning {
				t.Errorf("restarted %t: the newer allocation is %s", restarted, s.ClientStatus)
			}
		})
	}
}

// TestNewestStopOfANameHolds stops two allocations of one name, of two versions: the newer version does not overrule the
// stop of the older one.
func TestNewestStopOfANameHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &onSite{T: t, n: newFakeJournal(), f: &factory{}}
		o.mustPut("a", "shop.till[0]", 0, "")
		o.mustPut("b", "shop.till[0]", 1, fleet.HoldUntilNextVersion)
		o.restartAgent()
		o.mustStop("b", smoke)
		o.mustStop("a", smoke)
		o.wantState("a", 1, fleet.ClientPending)
		o.wantState("b", 1, fleet.ClientPending)
	})
}

// A job may forbid actions of people on site.
func TestForbiddenOnSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &onSite{T: t, n: newFakeJournal(), f: &factory{}}
		w := want("a", 0)
		w.Alloc.Job.TaskGroups[0].LocalControl = &fleet.LocalControl{Allow: []string{fleet.LocalRestart}}
		o.n.wants["a"] = w
		o.restartAgent()
		_, _, started := o.l.Start(t.Context(), "a", allocs.Person{})
		_, ran := o.l.ExecOnSite(t.Context(), "a", "t", "anna", fleet.Exec{Command: []string{"/bin/true"}})
		for action, err := range map[string]error{
			"stop": o.l.Stop(t.Context(), "a", smoke), "start": started, "exec": ran,
		} {
			if fleet.CodeOf(err) != fleet.CodeForbidden {
				t.Errorf("%s: %v, want that the job forbids it", action, err)
			}
		}
		if err := o.l.Restart(t.Context(), "a", "", allocs.Person{}); err != nil {
			t.Errorf("restart: %v", err)
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
