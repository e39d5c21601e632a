package allocs_test

import (
	"errors"
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

func TestWhatIsWantedRunsOnceAndIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = want("a", 0)
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientRunning {
			t.Fatalf("state: %+v", s)
		}
		if r := f.runnersOf("a"); len(r) != 1 || r[0].last.Known {
			t.Fatalf("runners: %+v", r)
		}
		l.TriggerReconcile()
		synctest.Wait()
		l.stopAgent()
		l = mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if r := f.runnersOf("a"); len(r) != 2 || !r[1].last.Known || r[1].last.Rebooted || r[1].last.ClientStatus != fleet.ClientRunning {
			t.Fatalf("the second life's runner: %+v", r[1])
		}
		l.stopAgent()
		n.boot = boot2
		l = mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if r := f.runnersOf("a"); len(r) != 3 || !r[2].last.Rebooted {
			t.Fatalf("the runner after a reboot: %+v", r[2])
		}
	})
}

func TestOnlyExplicitStopsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		n, f := newFakeJournal(), &factory{}
		n.wants["a"], n.wants["b"], n.wants["c"] = want("a", 0), want("b", 0), want("c", 0)
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		_, holdings, err := l.Deliver(ctx, syncproto.Desired{
			Index: 5, Full: true,
			Run:  []syncproto.DesiredAlloc{{ID: "a", ModifyIndex: 4}},
			Stop: []syncproto.DesiredStop{{ID: "b", Reason: "scaled down"}, {ID: "never", Reason: "too late"}},
		})
		if err != nil || len(holdings) != 1 || holdings[0] != "c" {
			t.Fatalf("holdings: %q, %v", holdings, err)
		}
		synctest.Wait()
		s := n.States()
		if s["a"].ClientStatus != fleet.ClientRunning || s["c"].ClientStatus != fleet.ClientRunning {
			t.Fatalf("what was not named to stop: %+v", s)
		}
		if s["b"].ClientStatus != fleet.ClientComplete || s["b"].ClientDescription != "scaled down" {
			t.Fatalf("what was: %+v", s["b"])
		}
		if s["never"].ClientStatus != fleet.ClientComplete || len(f.runnersOf("never")) != 0 {
			t.Fatalf("what never ran here: %+v", s["never"])
		}
		if r := f.runnersOf("a"); len(r) != 1 || len(r[0].updates) != 1 || r[0].updates[0] != 4 {
			t.Fatalf("the update in place: %+v", r[0])
		}
		// A hub that went back delivers b to run again.
		n.withLock(func() { n.acked = fleet.Seq(len(n.rows)) })
		rows := len(n.rows)
		if _, _, err := l.Deliver(ctx, syncproto.Desired{Index: 2, Run: []syncproto.DesiredAlloc{{ID: "b"}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r := f.runnersOf("b"); len(r) != 1 {
			t.Fatalf("it was started again: %d runners", len(r))
		}
		if len(n.rows) != rows+1 || n.rows[rows].ClientStatus != fleet.ClientComplete {
			t.Fatalf("its end was not recorded again: %+v", n.rows[rows:])
		}
	})
}

func TestWaitsForItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = journal.DesiredAlloc{Alloc: fleet.Alloc{ID: "a", TaskGroup: "g"}}
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		all, err := l.Status(t.Context())
		if err != nil || all["a"].Note == "" || len(f.runnersOf("a")) != 0 {
			t.Fatalf("status: %+v, %v", all["a"], err)
		}
		if _, _, err := l.Deliver(t.Context(), syncproto.Desired{Run: []syncproto.DesiredAlloc{{ID: "a", JobHash: "h"}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if all, _ := l.Status(t.Context()); all["a"].Note != "" || all["a"].State.ClientStatus != fleet.ClientRunning {
			t.Fatalf("status: %+v", all["a"])
		}
	})
}

// TestNoteEndsWithTheStop stops an allocation that waits for its job: its status does not say any more that it
// waits.
func TestNoteEndsWithTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = journal.DesiredAlloc{Alloc: fleet.Alloc{ID: "a", TaskGroup: "g"}}
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		if _, _, err := l.Deliver(t.Context(), syncproto.Desired{Stop: []syncproto.DesiredStop{{ID: "a", Reason: "scaled down"}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all, err := l.Status(t.Context())
		if s := all["a"]; err != nil || s.State.ClientStatus != fleet.ClientComplete || s.Note != "" {
			t.Fatalf("status: %+v, %v", s, err)
		}
	})
}

// An allocation with stop_on_client_after stops once the edge was without a hub for that time, across
// restarts of the agent and reboots.
func TestStopsAfterTimeWithoutAHubAlsoAcrossLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"], n.wants["b"], n.wants["c"] = want("a", time.Minute), want("b", 0), want("c", time.Hour)
		n.lastHeartbeat = time.Now()
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		n.withLock(func() {
			if n.mark != 3*time.Second {
				t.Errorf("the last beat is remembered to within %s", n.mark)
			}
		})
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if all, _ := l.Status(t.Context()); all["a"].StopsIn != time.Second || all["b"].StopsIn != 0 || all["a"].State.Terminal() {
			t.Fatalf("status: %+v", all["a"])
		}
		n.withLock(func() { n.lastHeartbeat = time.Now() }) // a heartbeat in time
		time.Sleep(30 * time.Second)
		l.stopAgent()
		n.boot = boot2 // the machine reboots; the time continues
		l = mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if n.States()["a"].Terminal() {
			t.Fatal("it stopped too early")
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		s := n.States()
		if s["a"].ClientStatus != fleet.ClientComplete || s["b"].Terminal() || s["c"].Terminal() {
			t.Fatalf("states: %+v", s)
		}
		n.wantStoppedOnEdge(t, "a")
		l.stopAgent()
		l = mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if len(f.runnersOf("a")) != 2 {
			t.Fatal("it was started again")
		}
	})
}

// Only the hubs act on lost_after: without a hub the edge keeps the allocation running.
func TestLostAfterStopsNothingAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		w, after := want("a", 0), time.Minute
		w.Alloc.Job.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &after}
		n.wants["a"], n.lastHeartbeat = w, time.Now()
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := n.States()["a"]; s.Terminal() {
			t.Fatalf("it stopped: %+v", s)
		}
	})
}

// A88: with almost no time, it stops once. A89: with half a second and regular heartbeats, it lives
// until the heartbeats end.
func TestStopsOnceWhenBeatsEnd(t *testing.T) {
	for _, tc := range []struct {
		row          string
		after, beats time.Duration // how long heartbeats arrive
	}{
		{"A88", time.Microsecond, 0},
		{"A89", 500 * time.Millisecond, 5 * time.Second},
	} {
		t.Run(tc.row, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := newFakeJournal(), &factory{}
				n.wants["a"] = want("a", tc.after)
				n.withLock(func() { n.lastHeartbeat = time.Now() })
				l := mustStartAgent(t, n, f, nil)
				<-l.Recovered()
				for begun := time.Now(); time.Since(begun) < tc.beats; time.Sleep(100 * time.Millisecond) {
					synctest.Wait()
					if s := n.States()["a"]; s.ClientStatus != fleet.ClientRunning {
						t.Fatalf("%s after %s of beats", s.ClientStatus, time.Since(begun))
					}
					n.withLock(func() { n.lastHeartbeat = time.Now() })
				}
				time.Sleep(tc.after + time.Second)
				synctest.Wait()
				if s := n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
					t.Fatalf("%s when no beat came for %s", s.ClientStatus, tc.after+time.Second)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				stops := 0
				for _, r := range f.runnersOf("a") {
					r.mu.Lock()
					stops += r.stops
					r.mu.Unlock()
				}
				if stops != 1 || len(f.runnersOf("a")) != 1 {
					t.Errorf("%d runners were stopped %d times", len(f.runnersOf("a")), stops)
				}
			})
		})
	}
}

// TestStopsWhileABodyIsMissing: the time of the version that runs counts while the job of a newer one is not here yet.
func TestStopsWhileABodyIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = want("a", time.Minute)
		n.lastHeartbeat = time.Now()
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		n.withLock(func() {
			newer := n.wants["a"]
			newer.Alloc.Job, newer.Alloc.AllocModifyIndex = nil, 2
			n.wants["a"] = newer
		})
		l.TriggerReconcile()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
			t.Errorf("it is %s two minutes after the last heartbeat", s.ClientStatus)
		}
	})
}

// TestADeliveryIsNoContactForWhatRuns: a hub that an edge hears, and that does not hear the edge, delivers what is wanted. That
// gives a new allocation its time, and no more to one that runs.
func TestADeliveryIsNoContactForWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["runs"] = want("runs", time.Minute)
		n.lastHeartbeat = time.Now()
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		time.Sleep(50 * time.Second)
		if _, _, err := l.Deliver(t.Context(), syncproto.Desired{Run: []syncproto.DesiredAlloc{{ID: "runs"}, {ID: "new"}}}); err != nil {
			t.Fatal(err)
		}
		n.withLock(func() { n.wants["runs"], n.wants["new"] = want("runs", time.Minute), want("new", time.Minute) })
		l.TriggerReconcile()
		for _, c := range []struct {
			until     time.Duration // after the last heartbeat
			runs, new string
		}{
			{59 * time.Second, fleet.ClientRunning, fleet.ClientRunning},
			{61 * time.Second, fleet.ClientComplete, fleet.ClientRunning},
			{109 * time.Second, fleet.ClientComplete, fleet.ClientRunning},
			{111 * time.Second, fleet.ClientComplete, fleet.ClientComplete},
		} {
			time.Sleep(time.Until(n.lastHeartbeat.Add(c.until)))
			synctest.Wait()
			if s := n.States(); s["runs"].ClientStatus != c.runs || s["new"].ClientStatus != c.new {
				t.Errorf("%s after the last heartbeat: %s and %s, want %s and %s", c.until, s["runs"].ClientStatus, s["new"].ClientStatus, c.runs, c.new)
			}
		}
	})
}

func TestWhoIsOverdueAtBootDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = want("a", time.Minute)
		n.states["a"] = journal.State{ClientStatus: fleet.ClientRunning, BootID: boot1, Seq: 1}
		n.rows = make([]fleet.Transition, 1)
		n.lastHeartbeat = time.Now().Add(-2 * time.Minute)
		n.boot = boot2
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		synctest.Wait()
		for _, row := range n.rows {
			if row.ClientStatus == fleet.ClientRunning {
				t.Fatalf("it ran: %+v", row)
			}
		}
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
			t.Fatalf("state: %+v", s)
		}
	})
}

// TestTheTimeIsSavedForTheShortestLimit takes the shortest of stop_on_client_after and max_age, and ends a task early by the
// time that a loss of power may have taken.
func TestTheTimeIsSavedForTheShortestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = want("a", 20*time.Minute)
		aged := want("b", 0)
		aged.Alloc.Job.TaskGroups[0].Tasks[0].Templates = []fleet.Template{{MaxAge: 5 * time.Minute}, {}}
		n.wants["b"] = aged
		n.lastHeartbeat, n.uncounted = time.Now(), 90*time.Second
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		n.withLock(func() {
			if n.mark != 15*time.Second {
				t.Errorf("the time is saved every %s, want 15s", n.mark)
			}
		})
		for i, ran := range []time.Duration{18 * time.Minute, 19 * time.Minute} {
			time.Sleep(time.Until(n.lastHeartbeat.Add(ran)))
			synctest.Wait()
			if s := n.States()["a"]; (i == 1) != (s.ClientStatus == fleet.ClientComplete) {
				t.Errorf("%s after the last heartbeat it is %s", ran, s.ClientStatus)
			}
		}
	})
}

func TestFencedStartsNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["new"], n.wants["ran"] = want("new", 0), want("ran", 0)
		n.states["ran"] = journal.State{ClientStatus: fleet.ClientRunning, BootID: boot1, Seq: 1}
		n.rows = make([]fleet.Transition, 1)
		n.fenced = "another machine has this identity"
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if len(f.runnersOf("ran")) != 1 || len(f.runnersOf("new")) != 0 {
			t.Fatalf("runners: %v", f.made)
		}
		if all, _ := l.Status(t.Context()); all["new"].Note == "" {
			t.Fatal("it does not say why")
		}
		n.withLock(func() { n.fenced = "" })
		l.TriggerReconcile()
		synctest.Wait()
		if len(f.runnersOf("new")) != 1 {
			t.Fatal("it is not started after the fence is gone")
		}
	})
}

func TestOperatorOnSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = want("a", 0)
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if err := l.Restart(ctx, "a", "t", allocs.Person{By: "anna", Reason: "odd"}); err != nil {
			t.Fatal(err)
		}
		if r := f.runnersOf("a")[0]; len(r.restarted) != 1 || r.restarted[0] != "t: restarted on site by anna: odd" {
			t.Fatalf("restarted: %q", r.restarted)
		}
		hup := allocs.Order{Alloc: "a", Signal: "SIGHUP", Why: "signalled by an operator"}
		if err := l.Order(ctx, hup); err != nil {
			t.Fatal(err)
		}
		if r := f.runnersOf("a")[0]; len(r.restarted) != 2 || r.restarted[1] != ": SIGHUP, signalled by an operator" {
			t.Fatalf("signalled: %q", r.restarted)
		}
		if err := l.Stop(ctx, "a", allocs.StopOnSite{Person: allocs.Person{Reason: "too loud"}, MayReturn: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var said []string
		for _, row := range n.rows {
			if row.Kind == fleet.TransitionOperator {
				said = append(said, row.Message)
			}
		}
		if fmt.Sprint(said) != "[restarted on site by anna: odd stopped on site: too loud]" {
			t.Fatalf("rows: %q", said)
		}
		n.wantStoppedOnEdge(t, "a")
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
			t.Fatalf("state: %+v", s)
		}
		if err := l.Stop(ctx, "a", allocs.StopOnSite{}); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Fatalf("stop what has ended: %v", err)
		}
		if err := l.Restart(ctx, "nobody", "", allocs.Person{}); fleet.CodeOf(err) != fleet.CodeNotFound {
			t.Fatalf("restart what is not there: %v", err)
		}
	})
}

func TestRunnersThatFailEndTheirAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"] = want("a", 0)
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		f.runnersOf("a")[0].finish <- errors.New("out of luck")
		synctest.Wait()
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientFailed || s.ClientDescription != "its runner gave up: out of luck" {
			t.Fatalf("state: %+v", s)
		}
		f.mu.Lock()
		f.fail = errors.New("no such driver")
		f.mu.Unlock()
		n.withLock(func() { n.wants["b"] = want("b", 0) })
		l.TriggerReconcile()
		synctest.Wait()
		if s := n.States()["b"]; s.ClientStatus != fleet.ClientFailed || s.ClientDescription != "no such driver" {
			t.Fatalf("state: %+v", s)
		}
	})
}

// TestEndThatIsNotRecordedIsNoRecovery ends an agent whose runner failed on a full disk: nothing says that the allocation
// runs or has ended, and no other runner of it begins.
func TestEndThatIsNotRecordedIsNoRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.wants["a"], n.full = want("a", 0), true
		l := mustStartAgent(t, n, f, nil)
		time.Sleep(time.Minute)
		l.stopAgent()
		select {
		case <-l.Recovered():
			t.Error("the agent says that all is recovered")
		default:
		}
		if r := f.runnersOf("a"); len(r) != 1 {
			t.Errorf("%d runners, want 1", len(r))
		}
	})
}

func TestRestate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		n.states["a"] = journal.State{
			ClientStatus: fleet.ClientFailed, ClientDescription: "why", BootID: boot1, Seq: 1,
			TaskStates: map[string]fleet.TaskState{"t": {State: fleet.TaskDead, Failed: true, Events: make([]fleet.TaskEvent, 3)}},
		}
		l := mustStartAgent(t, n, f, nil)
		if err := l.Restate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(n.rows) != 2 || n.rows[0].ClientStatus != fleet.ClientFailed || n.rows[1].TaskState == nil || n.rows[1].TaskState.Events != nil {
			t.Fatalf("rows: %+v", n.rows)
		}
	})
}

// A full disk does not prevent the recovery of running allocations.
func TestFullDiskStillTakesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		never := want("a", 0)
		never.Stop = true // its end cannot be recorded
		n.wants["a"], n.wants["b"] = never, want("b", 0)
		n.full = true
		l := mustStartAgent(t, n, f, nil)
		synctest.Wait()
		if len(f.runnersOf("b")) != 1 {
			t.Fatal("what comes after it was not started")
		}
		n.withLock(func() { n.full = false })
		l.TriggerReconcile()
		synctest.Wait()
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
			t.Fatalf("its end is never recorded: %+v", s)
		}
	})
}

// An allocation whose state the journal has lost may run: it is recovered to be stopped.
func TestStopsWhatTheJournalHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "a"), 0o755); err != nil {
			t.Fatal(err)
		}
		w := want("a", 0)
		w.Stop, w.StopReason = true, "not needed"
		n.wants["a"] = w
		w.Alloc.ID = "b" // this one left no trace
		n.wants["b"] = w
		l := mustStartAgent(t, n, f, func(c *allocs.Config) { c.Dir = dir })
		<-l.Recovered()
		synctest.Wait()
		if len(f.runnersOf("a")) != 1 || len(f.runnersOf("b")) != 0 {
			t.Errorf("runners: %d of the one, %d of the other", len(f.runnersOf("a")), len(f.runnersOf("b")))
		}
		for id, s := range n.States() {
			if s.ClientStatus != fleet.ClientComplete {
				t.Errorf("%s: %+v", id, s)
			}
		}
	})
}

// TestUsesVolume: a volume is in use by an allocation that has not ended, of the same namespace.
func TestUsesVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		user := want("a", 0)
		user.Alloc.Namespace = "red"
		user.Alloc.Job.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"v": {Name: "v", Type: fleet.VolumeHost, Source: "data"}}
		n.wants["a"] = user
		l := mustStartAgent(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		uses := func(namespace, name string, want bool) {
			t.Helper()
			if got, err := l.UsesVolume(t.Context(), namespace, name); err != nil || got != want {
				t.Errorf("volume %s of namespace %s is in use: %v, %v", name, namespace, got, err)
			}
		}
		uses("red", "data", true)
		uses("blue", "data", false)
		uses("red", "other", false)
		n.withLock(func() { n.wants["b"] = journal.DesiredAlloc{Alloc: fleet.Alloc{ID: "b", Namespace: "blue"}} })
		uses("blue", "data", true) // its job is not known yet
	})
}
