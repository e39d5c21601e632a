package allocs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// launchTest is an edge with an allocation that it launches every ten minutes. Its clock can be set.
type launchTest struct {
	*testing.T
	n   *fakeJournal
	f   *factory
	l   *runningAgent
	dir string
	set atomic.Int64 // by which the clock is ahead, in nanoseconds
}

func newLaunchTest(t *testing.T) *launchTest {
	s := &launchTest{T: t, n: newFakeJournal(), f: &factory{}, dir: t.TempDir()}
	time.Sleep(5*time.Minute + time.Second) // synctest begins at midnight
	s.n.wants["a"] = launched("a")
	s.runAgent()
	return s
}

func launched(id fleet.AllocID) journal.DesiredAlloc {
	w := want(id, 0)
	w.Alloc.Namespace, w.Alloc.Name, w.Alloc.JobID = "default", "shop.g[0]", "shop"
	w.Alloc.Job.Type = fleet.JobTypeBatch
	w.Alloc.Job.Periodic = &fleet.Periodic{Enabled: true, Spec: "*/10 * * * *", ProhibitOverlap: true, RunAtEdge: true}
	return w
}

func (s *launchTest) runAgent() {
	s.l = mustStartAgent(s.T, s.n, s.f, func(c *allocs.Config) {
		c.Dir, c.TasksDir = filepath.Join(s.dir, "allocs"), filepath.Join(s.dir, "tasks")
		c.Now = func() time.Time { return time.Now().Add(time.Duration(s.set.Load())) }
	})
	synctest.Wait()
}

// pass lets time pass.
func (s *launchTest) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// end ends the tasks of the newest launch, and its runner.
func (s *launchTest) end(id fleet.AllocID, status string) {
	s.Helper()
	s.endTasks(id, status).finish <- nil
	synctest.Wait()
}

// endTasks ends the tasks of the newest launch, and returns its runner, which has not returned.
func (s *launchTest) endTasks(id fleet.AllocID, status string) *runner {
	s.Helper()
	made := s.f.runnersOf(id)
	r := made[len(made)-1]
	err := r.rec.PutHandle(s.Context(), id, "t", []byte("ended"), fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: status, ClientDescription: "why", Task: "t", TaskState: &fleet.TaskState{State: fleet.TaskDead},
	})
	if err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
	return r
}

// wantLaunches checks how often the allocation was launched, how many rows say that it was not, and its status.
func (s *launchTest) wantLaunches(when string, id fleet.AllocID, launched, skipped int, status string) {
	s.Helper()
	got, not := 0, 0
	var rows []string
	for _, r := range s.n.rows {
		if r.Alloc != id {
			continue
		}
		rows = append(rows, r.Message)
		if strings.HasPrefix(r.Message, "launched for ") {
			got++
		}
		if strings.HasPrefix(r.Message, "not launched for ") {
			not++
		}
	}
	if now := s.n.States()[id].ClientStatus; got != launched || not != skipped || now != status {
		s.Fatalf("%s: %d launches, %d skipped, %s; want %d, %d, %s:\n%s", when, got, not, now, launched, skipped, status, strings.Join(rows, "\n"))
	}
}

// An allocation is launched at its times, each from the beginning. It does not end with a launch, also if that fails.
func TestLaunchedAtItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLaunchTest(t)
		s.wantLaunches("before the first time", "a", 0, 0, fleet.ClientRunning)
		s.pass(2 * time.Millisecond)
		all, err := s.l.Status(t.Context())
		if err != nil || !all["a"].BetweenLaunches || all["a"].Note != "waits for its launch at 2000-01-01T00:10:00Z" {
			t.Errorf("it says %q (%v)", all["a"].Note, err)
		}
		s.pass(5 * time.Minute)
		s.wantLaunches("at the first time", "a", 1, 0, fleet.ClientRunning)
		s.end("a", fleet.ClientFailed)
		s.wantLaunches("after the first launch", "a", 1, 0, fleet.ClientRunning)
		if d := s.n.States()["a"].ClientDescription; d != "the launch for 2000-01-01T00:10:00Z is over: failed (why)" {
			t.Errorf("it says %q of the first launch", d)
		}
		left := filepath.Join(s.dir, "tasks", "a", "t", "artifacts")
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := s.n.PutHandle(t.Context(), "a", "t", []byte("of the first launch")); err != nil {
			t.Fatal(err)
		}
		s.pass(10 * time.Minute)
		s.wantLaunches("at the second time", "a", 2, 0, fleet.ClientRunning)
		_, stat := os.Stat(left)
		if h, _ := s.n.Handles(t.Context(), "a"); len(h) != 0 || !os.IsNotExist(stat) {
			t.Errorf("the second launch begins with %v, and with a folder of the first one: %v", h, stat)
		}
		made := s.f.runnersOf("a")
		if last := made[1].last; !last.Known || last.Rebooted || last.ClientStatus != fleet.ClientRunning {
			t.Errorf("the second runner is made with %+v", last)
		}
		s.pass(10 * time.Minute) // it takes longer
		s.wantLaunches("at the third time", "a", 2, 1, fleet.ClientRunning)
		s.end("a", fleet.ClientComplete)
		s.pass(time.Minute)
		s.wantLaunches("after a long launch", "a", 2, 1, fleet.ClientRunning)
		s.pass(9 * time.Minute)
		s.wantLaunches("at the fourth time", "a", 3, 1, fleet.ClientRunning)

		s.n.mono = func() time.Duration { return 0 } // with states of tasks
		s.end("a", fleet.ClientComplete)
		if task := s.n.States()["a"].TaskStates["t"]; task.State != fleet.TaskPending {
			t.Errorf("its task is %q between launches", task.State)
		}
	})
}

// A launch that is due while the runner of the one before still cleans up begins when that runner has returned.
func TestLaunchWaitsForTheRunnerBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLaunchTest(t)
		s.pass(5 * time.Minute)
		s.wantLaunches("at the first time", "a", 1, 0, fleet.ClientRunning)
		r := s.endTasks("a", fleet.ClientComplete)
		s.pass(10 * time.Minute)
		s.wantLaunches("while the runner cleans up", "a", 1, 0, fleet.ClientRunning)
		r.finish <- nil
		synctest.Wait()
		s.wantLaunches("after the runner has returned", "a", 2, 0, fleet.ClientRunning)
		s.end("a", fleet.ClientComplete)
		s.wantLaunches("after the second launch", "a", 2, 0, fleet.ClientRunning)
	})
}

// A launch goes on after a kill of the agent and after a reboot. What was missed while the node was off is launched
// once, for the newest time.
func TestLaunchesOverLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLaunchTest(t)
		s.pass(5 * time.Minute)
		s.l.stopAgent()
		s.runAgent()
		s.wantLaunches("after a kill", "a", 1, 0, fleet.ClientRunning)
		s.l.stopAgent()
		s.n.boot = boot2
		s.runAgent()
		made := s.f.runnersOf("a")
		if len(made) != 3 || !made[1].last.Known || made[1].last.Rebooted || !made[2].last.Rebooted {
			t.Fatalf("%d runners: %+v", len(made), made[len(made)-1].last)
		}
		s.wantLaunches("after a reboot", "a", 1, 0, fleet.ClientRunning)
		s.end("a", fleet.ClientComplete)
		s.l.stopAgent()
		s.pass(34 * time.Minute)
		s.runAgent()
		s.wantLaunches("after an outage", "a", 2, 0, fleet.ClientRunning)
		if m := s.n.rows[len(s.n.rows)-2].Message; m != "launched for 2000-01-01T00:40:00Z, 4m1s late" {
			t.Errorf("it says %q", m)
		}
		s.end("a", fleet.ClientComplete)
		s.runAgainWithin(9*time.Minute, 2)
	})
}

// runAgainWithin restarts the agent, lets time pass, and checks that the allocation was not launched.
func (s *launchTest) runAgainWithin(d time.Duration, launches int) {
	s.Helper()
	s.l.stopAgent()
	s.runAgent()
	s.pass(d - 5*time.Minute)
	s.wantLaunches("after another start of the agent", "a", launches, 0, fleet.ClientRunning)
}

// A clock that is set back launches no time again, nor does a newer version of the job. One that is behind the time of
// the hubs is not believed.
func TestLaunchesOnceWhateverTheClockSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLaunchTest(t)
		launches := 0
		for range 3 {
			s.pass(10 * time.Minute)
			launches++
			s.wantLaunches("on time", "a", launches, 0, fleet.ClientRunning)
			s.end("a", fleet.ClientComplete)
		}
		s.set.Store(int64(-25 * time.Minute))
		s.pass(24 * time.Minute)
		s.wantLaunches("with the clock set back", "a", launches, 0, fleet.ClientRunning)
		next := launched("b")
		next.Alloc.PreviousAllocation = "a"
		s.n.withLock(func() { s.n.wants["b"] = next })
		if _, _, err := s.l.Deliver(t.Context(), syncproto.Desired{Stop: []syncproto.DesiredStop{{ID: "a", Reason: "version 2"}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.wantLaunches("stopped between launches", "a", launches, 0, fleet.ClientComplete)
		s.set.Store(int64(-40 * time.Minute))
		s.pass(20 * time.Minute)
		s.wantLaunches("a newer version, with the clock set back", "b", 0, 0, fleet.ClientRunning)
		s.n.withLock(func() { s.n.floor = time.Now().Add(time.Minute).UnixNano() })
		s.pass(2 * time.Minute)
		s.wantLaunches("with the time of a hub", "b", 1, 0, fleet.ClientRunning)
	})
}

// A stop during a launch ends the allocation. Its replacement waits for that, and begins with the next time.
func TestStopDuringALaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLaunchTest(t)
		s.pass(5 * time.Minute)
		r := s.f.runnersOf("a")[0]
		r.linger.Store(true)
		s.n.withLock(func() { s.n.wants["b"] = launched("b") })
		if _, _, err := s.l.Deliver(t.Context(), syncproto.Desired{Stop: []syncproto.DesiredStop{{ID: "a", Reason: "version 2"}}}); err != nil {
			t.Fatal(err)
		}
		s.pass(10 * time.Minute)
		s.wantLaunches("beside an old launch", "b", 0, 1, fleet.ClientRunning)
		s.l.stopAgent()
		s.runAgent()
		s.wantLaunches("stopped", "a", 1, 0, fleet.ClientComplete)
		s.pass(10 * time.Minute)
		s.wantLaunches("at the next time", "b", 1, 1, fleet.ClientRunning)
	})
}

// A stop on site holds back launches. During a launch its tasks stop, and the launch goes on when it is released.
func TestHeldLaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLaunchTest(t)
		hold := func() {
			t.Helper()
			if err := s.l.Stop(t.Context(), "a", smoke); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		release := func() {
			t.Helper()
			if _, _, err := s.l.Start(t.Context(), "a", allocs.Person{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		hold()
		s.pass(30 * time.Minute)
		s.wantLaunches("held", "a", 0, 0, fleet.ClientRunning)
		release()
		s.wantLaunches("released", "a", 1, 0, fleet.ClientRunning)
		hold()
		s.wantLaunches("held in a launch", "a", 1, 0, fleet.ClientPending)
		release()
		s.wantLaunches("released in a launch", "a", 1, 0, fleet.ClientRunning)
		if n := len(s.f.runnersOf("a")); n != 2 {
			t.Errorf("%d runners, want 2", n)
		}
	})
}

// A disabled job is not launched. One whose times are over ends.
func TestNoLaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLaunchTest(t)
		for id, change := range map[fleet.AllocID]func(*fleet.Periodic){
			"disabled": func(p *fleet.Periodic) { p.Enabled = false },
			"over":     func(p *fleet.Periodic) { p.Spec = "8 0 1 1 * 2000" },
		} {
			w := launched(id)
			w.Alloc.Name = string(id)
			change(w.Alloc.Job.Periodic)
			s.n.withLock(func() { s.n.wants[id] = w })
		}
		s.l.TriggerReconcile()
		s.pass(time.Minute)
		s.wantLaunches("its last time is to come", "over", 0, 0, fleet.ClientRunning)
		s.pass(10 * time.Minute)
		s.wantLaunches("not enabled", "disabled", 0, 0, fleet.ClientRunning)
		s.end("over", fleet.ClientComplete)
		s.pass(time.Minute)
		s.wantLaunches("its times are over", "over", 1, 0, fleet.ClientComplete)
		keys := func() (keys []string) {
			h, _ := s.n.Handles(t.Context(), "")
			for key := range h {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			return keys
		}
		s.n.withLock(func() { delete(s.n.wants, "over") })
		s.l.TriggerReconcile()
		synctest.Wait()
		if got := fmt.Sprint(keys()); got != "[launch/default/disabled launch/default/shop.g[0]]" {
			t.Errorf("the journal has the launches of %s", got)
		}
	})
}

func FuzzDecodeLaunch(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0xa2, 1, 1, 2, 0x81, 0xa2, 1, 1, 2, 2})
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = allocs.DecodeLaunch(b) })
}
