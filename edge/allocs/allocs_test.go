package allocs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/fleet"
	"skerry/syncproto"
)

const (
	boot1 = fleet.BootID("11111111-1111-4111-8111-111111111111")
	boot2 = fleet.BootID("22222222-2222-4222-8222-222222222222")
)

// notebook is a journal in memory: what allocs wants of one, and no more.
type notebook struct {
	mu     sync.Mutex
	boot   fleet.BootID
	wants  map[fleet.AllocID]allocs.Want
	states map[fleet.AllocID]allocs.State
	rows   []fleet.Transition
	acked  fleet.Seq
	beat   time.Time // zero: never
	fenced string
	blind  bool // no hub has said what the time is
	mark   time.Duration
	full   bool                 // the disk takes nothing
	mono   func() time.Duration // nil: tasks' states are not kept
	// handles are by allocation and key.
	handles map[fleet.AllocID]map[string][]byte
}

func newNotebook() *notebook {
	return &notebook{boot: boot1, wants: map[fleet.AllocID]allocs.Want{}, states: map[fleet.AllocID]allocs.State{}}
}

func (n *notebook) Wants(context.Context) (map[fleet.AllocID]allocs.Want, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wants := map[fleet.AllocID]allocs.Want{}
	for id, w := range n.wants {
		wants[id] = w
	}
	return wants, nil
}

func (n *notebook) Deliver(_ context.Context, d syncproto.Desired) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range d.Run {
		w := n.wants[r.ID]
		w.Alloc.ID, w.Alloc.AllocModifyIndex, w.Mentioned = r.ID, r.ModifyIndex, d.Index
		if r.JobHash != "" {
			w.Alloc.Job, w.Alloc.TaskGroup = job(nil), "g"
		}
		n.wants[r.ID] = w
	}
	for _, s := range d.Stop {
		w := n.wants[s.ID]
		w.Alloc.ID, w.Stop, w.StopReason, w.Mentioned, w.Windows = s.ID, true, s.Reason, d.Index, nil
		w.NoDelay = w.NoDelay || s.NoDelay
		for _, window := range s.Windows {
			w.Windows = append(w.Windows, fleet.UpdateWindow(window))
		}
		n.wants[s.ID] = w
	}
	return nil, nil
}

func (n *notebook) Adopt(ctx context.Context, d syncproto.Desired) error {
	_, err := n.Deliver(ctx, d)
	return err
}

func (n *notebook) Stop(ctx context.Context, stop syncproto.DesiredStop, ts ...fleet.Transition) error {
	if err := n.Record(ctx, ts...); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wants[stop.ID]
	if !w.Stop || len(w.Windows) > 0 {
		w.StopReason = stop.Reason
	}
	w.Stop, w.Windows, w.NoDelay = true, nil, w.NoDelay || stop.NoDelay
	n.wants[stop.ID] = w
	return nil
}

func (n *notebook) KeepStopped(ctx context.Context, ids []fleet.AllocID, kept bool, ts ...fleet.Transition) error {
	n.mu.Lock()
	for _, id := range ids {
		w := n.wants[id]
		w.KeptStopped = kept
		n.wants[id] = w
	}
	n.mu.Unlock()
	return n.Record(ctx, ts...)
}

func (n *notebook) Remove(_ context.Context, id fleet.AllocID) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wants, id)
	return nil
}

func (n *notebook) Record(_ context.Context, ts ...fleet.Transition) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.full {
		return errors.New("the disk is full")
	}
	for _, t := range ts {
		t.Seq = fleet.Seq(len(n.rows) + 1)
		n.rows = append(n.rows, t)
		s := n.states[t.Alloc]
		s.BootID, s.Seq = n.boot, t.Seq
		if t.ClientStatus != "" {
			s.ClientStatus, s.ClientDescription = t.ClientStatus, t.ClientDescription
		}
		if t.Healthy != nil {
			s.Healthy, s.HealthOf = t.Healthy, t.Deployment
		}
		if n.mono != nil {
			s = n.noteTask(s, t)
		}
		n.states[t.Alloc] = s
	}
	return nil
}

// noteTask keeps what a row says of a task, and since when it runs.
func (n *notebook) noteTask(s allocs.State, t fleet.Transition) allocs.State {
	if t.TaskState == nil {
		return s
	}
	s.TaskStates, s.Since = maps.Clone(s.TaskStates), maps.Clone(s.Since)
	if s.TaskStates == nil {
		s.TaskStates = map[string]fleet.TaskState{}
	}
	if s.Since == nil {
		s.Since = map[string]time.Duration{}
	}
	s.TaskStates[t.Task] = *t.TaskState
	if delete(s.Since, t.Task); t.TaskState.State == fleet.TaskRunning {
		s.Since[t.Task] = n.mono() - t.TaskState.RunningFor
	}
	return s
}

func (n *notebook) PutHandle(ctx context.Context, id fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	if err := n.Record(ctx, ts...); err != nil && len(ts) > 0 {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handles == nil {
		n.handles = map[fleet.AllocID]map[string][]byte{}
	}
	if n.handles[id] == nil {
		n.handles[id] = map[string][]byte{}
	}
	n.handles[id][key] = handle
	return nil
}

func (n *notebook) Handles(_ context.Context, id fleet.AllocID) (map[string][]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.handles[id]), nil
}

func (n *notebook) States() map[fleet.AllocID]allocs.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	states := map[fleet.AllocID]allocs.State{}
	for id, s := range n.states {
		states[id] = s
	}
	return states
}

func (n *notebook) Acknowledged() fleet.Seq { n.mu.Lock(); defer n.mu.Unlock(); return n.acked }
func (n *notebook) Fenced() string          { n.mu.Lock(); defer n.mu.Unlock(); return n.fenced }

func (n *notebook) Away() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.beat.IsZero() {
		return 0
	}
	return time.Since(n.beat)
}

func (n *notebook) HubNow() (time.Time, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.blind {
		return time.Time{}, false
	}
	return time.Now(), true
}

func (n *notebook) MarkEvery(d time.Duration) { n.mu.Lock(); defer n.mu.Unlock(); n.mark = d }

func (n *notebook) set(f func()) { n.mu.Lock(); defer n.mu.Unlock(); f() }

// factory makes runners that do nothing but record, and remembers them.
type factory struct {
	mu   sync.Mutex
	made map[fleet.AllocID][]*runner
	fail error
}

func (f *factory) newRunner(a fleet.Alloc, last allocs.LastState, rec allocs.Recorder) (allocs.Runner, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	r := &runner{alloc: a, last: last, rec: rec, stop: make(chan string, 1), finish: make(chan error)}
	if f.made == nil {
		f.made = map[fleet.AllocID][]*runner{}
	}
	f.made[a.ID] = append(f.made[a.ID], r)
	return r, nil
}

func (f *factory) of(id fleet.AllocID) []*runner { f.mu.Lock(); defer f.mu.Unlock(); return f.made[id] }

type runner struct {
	alloc  fleet.Alloc
	last   allocs.LastState
	rec    allocs.Recorder
	stop   chan string
	finish chan error // makes Run return, with nothing recorded

	mu        sync.Mutex
	updates   []fleet.Index
	restarted []string
	stops     int
	linger    atomic.Bool // it goes on when it is told to stop
	did       []string    // "hasten" and "stop", in their order
}

func (r *runner) Run(ctx context.Context) error {
	select {
	case reason := <-r.stop:
		return r.end(ctx, reason)
	default:
	}
	up := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: r.alloc.ID, ClientStatus: fleet.ClientRunning, Task: "t", TaskState: &fleet.TaskState{State: fleet.TaskRunning}}
	if err := r.rec.Record(ctx, up); err != nil {
		return err
	}
	select {
	case reason := <-r.stop:
		if r.linger.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return r.end(ctx, reason)
	case err := <-r.finish:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *runner) end(ctx context.Context, reason string) error {
	return r.rec.Record(ctx, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: r.alloc.ID, ClientStatus: fleet.ClientComplete, ClientDescription: reason})
}

func (r *runner) Update(a fleet.Alloc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates = append(r.updates, a.AllocModifyIndex)
}

func (r *runner) Stop(reason string) {
	r.mu.Lock()
	r.stops++
	r.did = append(r.did, "stop")
	r.mu.Unlock()
	r.stop <- reason
}

func (r *runner) Hasten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did = append(r.did, "hasten")
}

func (r *runner) Restart(_ context.Context, task, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restarted = append(r.restarted, task+": "+reason)
	return nil
}

func (r *runner) RestartUnhealthy(_ context.Context, task, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restarted = append(r.restarted, task+": unhealthy, "+reason)
	return nil
}

func (r *runner) Signal(_ context.Context, task, signal, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restarted = append(r.restarted, task+": "+signal+", "+reason)
	return nil
}

func job(stopAfter *time.Duration) *fleet.Job {
	g := fleet.TaskGroup{Name: "g", Tasks: []fleet.Task{{Name: "t"}}}
	if stopAfter != nil {
		g.Disconnect = &fleet.Disconnect{StopOnClientAfter: stopAfter}
	}
	return &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{g}}
}

func want(id fleet.AllocID, stopAfter time.Duration) allocs.Want {
	var after *time.Duration
	if stopAfter > 0 {
		after = &stopAfter
	}
	return allocs.Want{Alloc: fleet.Alloc{ID: id, TaskGroup: "g", Job: job(after), AllocModifyIndex: 1}}
}

// life is one life of the agent.
type life struct {
	*allocs.Allocs
	cancel context.CancelFunc
	ended  chan error
}

func mustLive(t testing.TB, n *notebook, f *factory, change func(*allocs.Config)) *life {
	t.Helper()
	cfg := allocs.Config{Desired: n, Past: n, Recorder: n, NewRunner: f.newRunner, BootID: n.boot, Dir: t.TempDir()}
	if change != nil {
		change(&cfg)
	}
	a, err := allocs.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &life{Allocs: a, cancel: cancel, ended: make(chan error, 1)}
	go func() { l.ended <- a.Run(ctx) }()
	t.Cleanup(l.end)
	return l
}

// end stops this life of the agent; tasks go on.
func (l *life) end() {
	l.cancel()
	if err, ok := <-l.ended; ok && err != nil {
		panic(err)
	}
	select {
	case <-l.ended:
	default:
		close(l.ended)
	}
}

func TestWhatIsWantedRunsOnceAndIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		n.wants["a"] = want("a", 0)
		l := mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientRunning {
			t.Fatalf("state: %+v", s)
		}
		if r := f.of("a"); len(r) != 1 || r[0].last.Known {
			t.Fatalf("runners: %+v", r)
		}
		l.Nudge()
		synctest.Wait()
		l.end()
		l = mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if r := f.of("a"); len(r) != 2 || !r[1].last.Known || r[1].last.Rebooted || r[1].last.ClientStatus != fleet.ClientRunning {
			t.Fatalf("the second life's runner: %+v", r[1])
		}
		l.end()
		n.boot = boot2
		l = mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if r := f.of("a"); len(r) != 3 || !r[2].last.Rebooted {
			t.Fatalf("the runner after a reboot: %+v", r[2])
		}
	})
}

func TestOnlyExplicitStopsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		n, f := newNotebook(), &factory{}
		n.wants["a"], n.wants["b"], n.wants["c"] = want("a", 0), want("b", 0), want("c", 0)
		l := mustLive(t, n, f, nil)
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
		if s["never"].ClientStatus != fleet.ClientComplete || len(f.of("never")) != 0 {
			t.Fatalf("what never ran here: %+v", s["never"])
		}
		if r := f.of("a"); len(r) != 1 || len(r[0].updates) != 1 || r[0].updates[0] != 4 {
			t.Fatalf("the update in place: %+v", r[0])
		}
		// A hub that went back wants b to run again.
		n.set(func() { n.acked = fleet.Seq(len(n.rows)) })
		rows := len(n.rows)
		if _, _, err := l.Deliver(ctx, syncproto.Desired{Index: 2, Run: []syncproto.DesiredAlloc{{ID: "b"}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r := f.of("b"); len(r) != 1 {
			t.Fatalf("it was started again: %d runners", len(r))
		}
		if len(n.rows) != rows+1 || n.rows[rows].ClientStatus != fleet.ClientComplete {
			t.Fatalf("its end was not said again: %+v", n.rows[rows:])
		}
	})
}

func TestWaitsForItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		n.wants["a"] = allocs.Want{Alloc: fleet.Alloc{ID: "a", TaskGroup: "g"}}
		l := mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		all, err := l.Status(t.Context())
		if err != nil || all["a"].Note == "" || len(f.of("a")) != 0 {
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

func TestStopsAfterTimeWithoutAHubAlsoAcrossLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		n.wants["a"], n.wants["b"], n.wants["c"] = want("a", time.Minute), want("b", 0), want("c", time.Hour)
		n.beat = time.Now()
		l := mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		n.set(func() {
			if n.mark != 6*time.Second {
				t.Errorf("the last beat is remembered to within %s", n.mark)
			}
		})
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if all, _ := l.Status(t.Context()); all["a"].StopsIn != time.Second || all["b"].StopsIn != 0 || all["a"].State.Ended() {
			t.Fatalf("status: %+v", all["a"])
		}
		n.set(func() { n.beat = time.Now() }) // a beat in time
		time.Sleep(30 * time.Second)
		l.end()
		n.boot = boot2 // the machine reboots; the time goes on, it does not start again
		l = mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if n.States()["a"].Ended() {
			t.Fatal("it stopped too early")
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		s := n.States()
		if s["a"].ClientStatus != fleet.ClientComplete || s["b"].Ended() || s["c"].Ended() {
			t.Fatalf("states: %+v", s)
		}
		l.end()
		l = mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if len(f.of("a")) != 2 {
			t.Fatal("it was started again")
		}
	})
}

// A88: contact is lost with next to no time given: stopped once. A89: half a second, and
// beats that come for a while: it lives until they end.
func TestStopsOnceWhenBeatsEnd(t *testing.T) {
	for _, tc := range []struct {
		row          string
		after, beats time.Duration // beats come for so long
	}{
		{"A88", time.Microsecond, 0},
		{"A89", 500 * time.Millisecond, 5 * time.Second},
	} {
		t.Run(tc.row, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := newNotebook(), &factory{}
				n.wants["a"] = want("a", tc.after)
				n.set(func() { n.beat = time.Now() })
				l := mustLive(t, n, f, nil)
				<-l.Recovered()
				for begun := time.Now(); time.Since(begun) < tc.beats; time.Sleep(100 * time.Millisecond) {
					synctest.Wait()
					if s := n.States()["a"]; s.ClientStatus != fleet.ClientRunning {
						t.Fatalf("%s after %s of beats", s.ClientStatus, time.Since(begun))
					}
					n.set(func() { n.beat = time.Now() })
				}
				time.Sleep(tc.after + time.Second)
				synctest.Wait()
				if s := n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
					t.Fatalf("%s when no beat came for %s", s.ClientStatus, tc.after+time.Second)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				stops := 0
				for _, r := range f.of("a") {
					r.mu.Lock()
					stops += r.stops
					r.mu.Unlock()
				}
				if stops != 1 || len(f.of("a")) != 1 {
					t.Errorf("%d runners were stopped %d times", len(f.of("a")), stops)
				}
			})
		})
	}
}

func TestWhoIsOverdueAtBootDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		n.wants["a"] = want("a", time.Minute)
		n.states["a"] = allocs.State{ClientStatus: fleet.ClientRunning, BootID: boot1, Seq: 1}
		n.rows = make([]fleet.Transition, 1)
		n.beat = time.Now().Add(-2 * time.Minute)
		n.boot = boot2
		l := mustLive(t, n, f, nil)
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

func TestFencedStartsNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		n.wants["new"], n.wants["ran"] = want("new", 0), want("ran", 0)
		n.states["ran"] = allocs.State{ClientStatus: fleet.ClientRunning, BootID: boot1, Seq: 1}
		n.rows = make([]fleet.Transition, 1)
		n.fenced = "another machine has this identity"
		l := mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if len(f.of("ran")) != 1 || len(f.of("new")) != 0 {
			t.Fatalf("runners: %v", f.made)
		}
		if all, _ := l.Status(t.Context()); all["new"].Note == "" {
			t.Fatal("it does not say why")
		}
		n.set(func() { n.fenced = "" })
		l.Nudge()
		synctest.Wait()
		if len(f.of("new")) != 1 {
			t.Fatal("it is not started after the fence is gone")
		}
	})
}

func TestOperatorOnSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		n, f := newNotebook(), &factory{}
		n.wants["a"] = want("a", 0)
		l := mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		if err := l.Restart(ctx, "a", "t", "odd"); err != nil {
			t.Fatal(err)
		}
		if r := f.of("a")[0]; len(r.restarted) != 1 || r.restarted[0] != "t: restarted on site: odd" {
			t.Fatalf("restarted: %q", r.restarted)
		}
		hup := allocs.Order{Alloc: "a", Signal: "SIGHUP", Why: "signalled by an operator"}
		if err := l.Order(ctx, hup); err != nil {
			t.Fatal(err)
		}
		if r := f.of("a")[0]; len(r.restarted) != 2 || r.restarted[1] != ": SIGHUP, signalled by an operator" {
			t.Fatalf("signalled: %q", r.restarted)
		}
		if err := l.Stop(ctx, "a", allocs.StopOnSite{Reason: "too loud"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var said []string
		for _, row := range n.rows {
			if row.Kind == fleet.TransitionOperator {
				said = append(said, row.Message)
			}
		}
		if fmt.Sprint(said) != "[restarted on site: odd stopped on site: too loud]" {
			t.Fatalf("rows: %q", said)
		}
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
			t.Fatalf("state: %+v", s)
		}
		if err := l.Stop(ctx, "a", allocs.StopOnSite{}); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Fatalf("stop what has ended: %v", err)
		}
		if err := l.Restart(ctx, "nobody", "", ""); fleet.CodeOf(err) != fleet.CodeNotFound {
			t.Fatalf("restart what is not there: %v", err)
		}
	})
}

func TestRunnersThatFailEndTheirAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		n.wants["a"] = want("a", 0)
		l := mustLive(t, n, f, nil)
		<-l.Recovered()
		synctest.Wait()
		f.of("a")[0].finish <- errors.New("out of luck")
		synctest.Wait()
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientFailed || s.ClientDescription != "its runner gave up: out of luck" {
			t.Fatalf("state: %+v", s)
		}
		f.mu.Lock()
		f.fail = errors.New("no such driver")
		f.mu.Unlock()
		n.set(func() { n.wants["b"] = want("b", 0) })
		l.Nudge()
		synctest.Wait()
		if s := n.States()["b"]; s.ClientStatus != fleet.ClientFailed || s.ClientDescription != "no such driver" {
			t.Fatalf("state: %+v", s)
		}
	})
}

func TestOldEndedAllocationsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		dir, tasks := t.TempDir(), t.TempDir()
		for i := range 5 {
			id := fleet.AllocID(fmt.Sprint("a", i))
			n.wants[id] = want(id, 0)
			n.states[id] = allocs.State{ClientStatus: fleet.ClientComplete, BootID: boot1, Seq: fleet.Seq(i + 1)}
			for _, dir := range []string{dir, tasks} { // an agent that was killed left what drivers keep
				if err := os.MkdirAll(filepath.Join(dir, string(id), "alloc"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}
		n.acked = 4 // the cluster does not know of the last one's end
		l := mustLive(t, n, f, func(c *allocs.Config) { c.Dir, c.TasksDir, c.KeepEnded = dir, tasks, 2 })
		<-l.Recovered()
		synctest.Wait()
		for _, dir := range []string{dir, tasks} {
			if names := mustList(t, dir); fmt.Sprint(names) != "[a2 a3 a4]" || len(n.wants) != 3 {
				t.Errorf("left in %s: %q, wanted: %d", dir, names, len(n.wants))
			}
		}
	})
}

// TestCollect removes ended allocations before their turn, and no others.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		dir := t.TempDir()
		for i, id := range []fleet.AllocID{"old", "one", "kept", "new", "runs"} {
			w := want(id, 0)
			w.KeptStopped = id == "kept"
			n.wants[id] = w
			if id != "runs" {
				n.states[id] = allocs.State{ClientStatus: fleet.ClientComplete, BootID: boot1, Seq: fleet.Seq(i + 1)}
			}
			if err := os.Mkdir(filepath.Join(dir, string(id)), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		n.acked = 3
		l := mustLive(t, n, f, func(c *allocs.Config) { c.Dir = dir })
		<-l.Recovered()
		synctest.Wait()
		for id, why := range map[fleet.AllocID]string{
			"gone": "not held", "runs": "has not ended", "new": "not confirmed", "kept": "on site",
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

func TestRestate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		n.states["a"] = allocs.State{
			ClientStatus: fleet.ClientFailed, ClientDescription: "why", BootID: boot1, Seq: 1,
			TaskStates: map[string]fleet.TaskState{"t": {State: fleet.TaskDead, Failed: true, Events: make([]fleet.TaskEvent, 3)}},
		}
		l := mustLive(t, n, f, nil)
		if err := l.Restate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(n.rows) != 2 || n.rows[0].ClientStatus != fleet.ClientFailed || n.rows[1].TaskState == nil || n.rows[1].TaskState.Events != nil {
			t.Fatalf("rows: %+v", n.rows)
		}
	})
}

// A disk that takes nothing must not keep what ran from being taken back.
func TestFullDiskStillTakesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		never := want("a", 0)
		never.Stop = true // its end has to be recorded, and cannot be
		n.wants["a"], n.wants["b"] = never, want("b", 0)
		n.full = true
		l := mustLive(t, n, f, nil)
		synctest.Wait()
		if len(f.of("b")) != 1 {
			t.Fatal("what comes after it was not started")
		}
		n.set(func() { n.full = false })
		l.Nudge()
		synctest.Wait()
		if s := n.States()["a"]; s.ClientStatus != fleet.ClientComplete {
			t.Fatalf("its end is never recorded: %+v", s)
		}
	})
}

// What the journal has lost may run all the same: it is taken back to be ended.
func TestStopsWhatTheJournalHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNotebook(), &factory{}
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "a"), 0o755); err != nil {
			t.Fatal(err)
		}
		w := want("a", 0)
		w.Stop, w.StopReason = true, "not needed"
		n.wants["a"] = w
		w.Alloc.ID = "b" // of this one there is no trace
		n.wants["b"] = w
		l := mustLive(t, n, f, func(c *allocs.Config) { c.Dir = dir })
		<-l.Recovered()
		synctest.Wait()
		if len(f.of("a")) != 1 || len(f.of("b")) != 0 {
			t.Errorf("runners: %d of the one, %d of the other", len(f.of("a")), len(f.of("b")))
		}
		for id, s := range n.States() {
			if s.ClientStatus != fleet.ClientComplete {
				t.Errorf("%s: %+v", id, s)
			}
		}
	})
}
