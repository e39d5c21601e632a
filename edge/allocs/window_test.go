package allocs_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// The virtual clock starts at midnight UTC.
var night = []syncproto.DesiredWindow{{Cron: "0 2 * * *", Duration: time.Hour}}

// windowTest is an edge on which "old" runs.
type windowTest struct {
	*testing.T
	n *fakeJournal
	f *factory
	l *runningAgent
}

func newSlot(t *testing.T) *windowTest {
	s := &windowTest{T: t, n: newFakeJournal(), f: &factory{}}
	s.n.wants["old"] = named("old")
	s.runAgent()
	s.wantClientStatus("old", fleet.ClientRunning)
	return s
}

func named(id fleet.AllocID) journal.DesiredAlloc {
	w := want(id, 0)
	w.Alloc.Name, w.Alloc.JobID = "shop.g[0]", "shop"
	return w
}

func (s *windowTest) runAgent() {
	s.Helper()
	s.l = mustStartAgent(s.T, s.n, s.f, func(c *allocs.Config) { c.TimeZone = "Europe/Berlin" })
	synctest.Wait()
}

// deliverReplacement delivers a replacement of old with update windows.
func (s *windowTest) deliverReplacement(windows []syncproto.DesiredWindow, by ...fleet.AllocID) {
	s.Helper()
	s.n.withLock(func() {
		for _, id := range by {
			s.n.wants[id] = named(id)
		}
	})
	s.deliverStop(windows, "old")
}

// runSecondName delivers an allocation with another name of the job.
func (s *windowTest) runSecondName(id fleet.AllocID) {
	s.Helper()
	s.n.withLock(func() {
		w := named(id)
		w.Alloc.Name = "shop.g[1]"
		s.n.wants[id] = w
	})
	s.l.TriggerReconcile()
	synctest.Wait()
}

func (s *windowTest) deliverStop(windows []syncproto.DesiredWindow, id fleet.AllocID) {
	s.Helper()
	stop := syncproto.DesiredStop{ID: id, Reason: "version 2", Windows: windows}
	if _, _, err := s.l.Deliver(s.Context(), syncproto.Desired{Index: 9, Stop: []syncproto.DesiredStop{stop}}); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
}

func (s *windowTest) wantClientStatus(id fleet.AllocID, status string) {
	s.Helper()
	if got := s.n.States()[id].ClientStatus; got != status {
		s.Fatalf("at %s %s is %q, want %q", time.Now().UTC().Format(time.TimeOnly), id, got, status)
	}
}

// sleepUntilClock sleeps until an hour of the virtual day, UTC.
func (s *windowTest) sleepUntilClock(clock string) {
	s.Helper()
	when, err := time.Parse("2006-01-02 15:04", clock)
	if err != nil {
		s.Fatal(err)
	}
	time.Sleep(time.Until(when))
	synctest.Wait()
}

func TestWindows(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(s *windowTest)
	}{
		// 02:00 in Berlin is 01:00 UTC in January.
		{"what came while it was closed begins when it opens, in the site's zone", func(s *windowTest) {
			s.deliverReplacement(night, "new")
			s.sleepUntilClock("2000-01-01 00:59")
			s.wantClientStatus("old", fleet.ClientRunning)
			s.wantClientStatus("new", "")
			status, err := s.l.Status(s.Context())
			if err != nil || !strings.Contains(status["old"].Note, "2000-01-01T01:00:00Z") || !strings.Contains(status["new"].Note, "2000-01-01T01:00:00Z") {
				s.Fatalf("%v: %q, %q", err, status["old"].Note, status["new"].Note)
			}
			s.sleepUntilClock("2000-01-01 01:01")
			s.wantClientStatus("old", fleet.ClientComplete)
			s.wantClientStatus("new", fleet.ClientRunning)
		}},
		{"what opens first begins in the second in which it opens", func(s *windowTest) {
			time.Sleep(30 * time.Second) // moves the checks to the middle of each minute
			s.runSecondName("later")
			s.deliverReplacement(night, "new")
			s.deliverStop([]syncproto.DesiredWindow{{Cron: "0 3 * * *", Duration: time.Hour}}, "later")
			s.sleepUntilClock("2000-01-01 01:00")
			time.Sleep(2 * time.Second)
			synctest.Wait()
			s.wantClientStatus("old", fleet.ClientComplete)
			s.wantClientStatus("later", fleet.ClientRunning)
		}},
		{"a window that never opens makes no other one late", func(s *windowTest) {
			time.Sleep(32 * time.Second)      // moves the checks of what has no time away from full minutes
			s.runSecondName("waits for ever") // which comes after old
			s.deliverReplacement(night, "new")
			s.deliverStop([]syncproto.DesiredWindow{{Cron: "0 0 30 2 *", Duration: time.Hour}}, "waits for ever")
			s.sleepUntilClock("2000-01-01 01:00")
			time.Sleep(time.Second)
			synctest.Wait()
			s.wantClientStatus("old", fleet.ClientComplete)
			s.wantClientStatus("waits for ever", fleet.ClientRunning)
		}},
		{"in the zone that the window names", func(s *windowTest) {
			s.deliverReplacement([]syncproto.DesiredWindow{{Cron: "0 2 * * *", Duration: time.Hour, TimeZone: "America/New_York"}}, "new")
			s.sleepUntilClock("2000-01-01 06:59")
			s.wantClientStatus("old", fleet.ClientRunning)
			s.sleepUntilClock("2000-01-01 07:01")
			s.wantClientStatus("new", fleet.ClientRunning)
		}},
		{"what comes while it is open begins at once", func(s *windowTest) {
			s.sleepUntilClock("2000-01-01 01:30")
			s.deliverReplacement(night, "new")
			s.wantClientStatus("old", fleet.ClientComplete)
			s.wantClientStatus("new", fleet.ClientRunning)
		}},
		{"what comes late waits for the next one", func(s *windowTest) {
			s.sleepUntilClock("2000-01-01 02:00")
			s.deliverReplacement(night, "new")
			s.sleepUntilClock("2000-01-02 00:59")
			s.wantClientStatus("old", fleet.ClientRunning)
			s.sleepUntilClock("2000-01-02 01:01")
			s.wantClientStatus("new", fleet.ClientRunning)
		}},
		{"an agent that starts again, and a machine that reboots, hold it back", func(s *windowTest) {
			s.deliverReplacement(night, "new")
			s.l.stopAgent()
			s.runAgent()
			s.wantClientStatus("old", fleet.ClientRunning)
			s.l.stopAgent()
			s.n.boot = boot2
			s.runAgent()
			s.wantClientStatus("old", fleet.ClientRunning)
			s.wantClientStatus("new", "")
			s.sleepUntilClock("2000-01-01 01:01")
			s.wantClientStatus("new", fleet.ClientRunning)
			if r := s.f.runnersOf("new"); len(r) != 1 {
				s.Fatalf("%d runners of what waited", len(r))
			}
		}},
		{"a clock that no hub has set since the machine booted begins nothing", func(s *windowTest) {
			s.deliverReplacement(night, "new")
			s.n.withLock(func() { s.n.hubTimeUnknown = true })
			s.sleepUntilClock("2000-01-03 01:30")
			s.wantClientStatus("old", fleet.ClientRunning)
			s.wantClientStatus("new", "")
			s.n.withLock(func() { s.n.hubTimeUnknown = false })
			s.sleepUntilClock("2000-01-03 01:31")
			s.wantClientStatus("old", fleet.ClientComplete)
			s.wantClientStatus("new", fleet.ClientRunning)
		}},
		{"what has begun ends after its window, in another life of the agent", func(s *windowTest) {
			s.sleepUntilClock("2000-01-01 01:30")
			s.deliverStop(night, "old")
			if w := s.n.wants["old"]; len(w.Windows) != 0 || w.StopReason != "version 2" {
				s.Fatalf("that it began is not journaled: %+v", w)
			}
		}},
		{"a stop that waits is let go by one that does not", func(s *windowTest) {
			s.deliverReplacement(night, "new")
			s.deliverStop(nil, "old")
			s.wantClientStatus("old", fleet.ClientComplete)
			s.wantClientStatus("new", fleet.ClientRunning)
		}},
		{"somebody on site waits for no window", func(s *windowTest) {
			s.deliverReplacement(night, "new")
			if err := s.l.Stop(s.Context(), "old", allocs.StopOnSite{Person: allocs.Person{Reason: "smoke"}, MayReturn: true}); err != nil {
				s.Fatal(err)
			}
			synctest.Wait()
			s.wantClientStatus("old", fleet.ClientComplete)
			if s.n.wants["old"].StopReason != "stopped on site: smoke" {
				s.Fatalf("%+v", s.n.wants["old"])
			}
		}},
		{"another version takes the place of one that waited", func(s *windowTest) {
			s.deliverReplacement(night, "new")
			s.n.withLock(func() { s.n.wants["newer"] = named("newer") })
			s.deliverStop(night, "new")
			s.wantClientStatus("old", fleet.ClientRunning)
			s.wantClientStatus("new", fleet.ClientComplete)
			s.wantClientStatus("newer", "")
			s.sleepUntilClock("2000-01-01 01:01")
			s.wantClientStatus("old", fleet.ClientComplete)
			s.wantClientStatus("newer", fleet.ClientRunning)
			if len(s.f.runnersOf("new")) != 0 {
				s.Fatal("the version between has run")
			}
		}},
		{"a window that cannot be read does not open", func(s *windowTest) {
			s.deliverReplacement([]syncproto.DesiredWindow{{Cron: "soon", Duration: time.Hour}}, "new")
			s.sleepUntilClock("2000-01-02 00:00")
			s.wantClientStatus("old", fleet.ClientRunning)
		}},
		{"others of the job are not held back", func(s *windowTest) {
			s.deliverReplacement(night, "new")
			s.runSecondName("second")
			s.wantClientStatus("second", fleet.ClientRunning)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.run(newSlot(t)) })
		})
	}
}

// The health deadline does not run while an allocation is held back.
func TestHealthIsNotJudgedWhileAWindowIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlot(t)
		s.n.withLock(func() {
			w := named("new")
			w.Alloc.DeploymentID = "d"
			w.Alloc.Job.TaskGroups[0].Update = &fleet.Update{HealthyDeadline: time.Minute, MinHealthyTime: time.Second}
			s.n.wants["new"] = w
		})
		s.deliverReplacement(night)
		s.sleepUntilClock("2000-01-01 00:59")
		if h := s.n.States()["new"].Healthy; h != nil {
			t.Fatalf("judged before it began: healthy %t", *h)
		}
	})
}

// If the beginning of a stop cannot be journaled, the allocation runs on.
func TestAStopThatIsNotJournaledDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlot(t)
		s.deliverReplacement(night, "new")
		s.n.withLock(func() { s.n.full = true })
		s.sleepUntilClock("2000-01-01 01:10")
		s.wantClientStatus("old", fleet.ClientRunning)
		s.n.withLock(func() { s.n.full = false })
		s.sleepUntilClock("2000-01-01 01:11")
		s.wantClientStatus("old", fleet.ClientComplete)
		s.wantClientStatus("new", fleet.ClientRunning)
	})
}

// An allocation does not start if another one of its name was stopped on site. One that has started
// goes on, and the cluster can stop it.
func TestNamesThatAreKeptStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeJournal()
		for _, id := range []fleet.AllocID{"kept", "begun", "over", "new"} {
			w := named(id)
			w.Stop, w.KeptStopped = id == "kept" || id == "over", id == "kept"
			n.wants[id] = w
		}
		n.states["kept"] = journal.State{ClientStatus: fleet.ClientComplete, BootID: boot1, Seq: 1}
		n.states["begun"] = journal.State{ClientStatus: fleet.ClientRunning, BootID: boot1, Seq: 2}
		s := &windowTest{T: t, n: n, f: &factory{}}
		s.runAgent()
		status, err := s.l.Status(s.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.wantClientStatus("new", "")
		s.wantClientStatus("over", fleet.ClientComplete)
		if status["begun"].Note != "" || !strings.Contains(status["new"].Note, "stopped on site") {
			t.Errorf("begun: %q, new: %q", status["begun"].Note, status["new"].Note)
		}
	})
}
