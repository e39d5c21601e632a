package allocs_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry/edge/allocs"
	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/fleet"
)

// factory makes runners that only record, and remembers them.
type factory struct {
	mu   sync.Mutex
	made map[fleet.AllocID][]*runner
	fail error
}

func (f *factory) newRunner(a fleet.Alloc, last contract.LastState, rec contract.Recorder) (contract.Runner, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	r := &runner{alloc: a, last: last, rec: rec, stop: make(chan string, 1), hold: make(chan string, 1), finish: make(chan error)}
	if f.made == nil {
		f.made = map[fleet.AllocID][]*runner{}
	}
	f.made[a.ID] = append(f.made[a.ID], r)
	return r, nil
}

func (f *factory) runnersOf(id fleet.AllocID) []*runner {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[id]
}

type runner struct {
	alloc  fleet.Alloc
	last   contract.LastState
	rec    contract.Recorder
	stop   chan string
	hold   chan string
	finish chan error // lets Run return without a record

	mu        sync.Mutex
	updates   []fleet.Index
	restarted []string
	stops     int
	linger    atomic.Bool // it ignores Stop
	did       []string    // "skip delay" and "stop", in order
}

func (r *runner) Run(ctx context.Context) error {
	select {
	case reason := <-r.stop:
		return r.recordComplete(ctx, reason)
	case reason := <-r.hold:
		return r.recordHeld(ctx, reason)
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
		return r.recordComplete(ctx, reason)
	case reason := <-r.hold:
		if r.linger.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return r.recordHeld(ctx, reason)
	case err := <-r.finish:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *runner) recordComplete(ctx context.Context, reason string) error {
	return r.rec.Record(ctx, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: r.alloc.ID, ClientStatus: fleet.ClientComplete, ClientDescription: reason})
}

func (r *runner) recordHeld(ctx context.Context, reason string) error {
	down := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: r.alloc.ID, ClientStatus: fleet.ClientPending, ClientDescription: reason}
	if err := r.rec.Record(ctx, down); err != nil {
		return err
	}
	return contract.ErrHeld
}

func (r *runner) Hold(reason string) {
	r.mu.Lock()
	r.did = append(r.did, "hold")
	r.mu.Unlock()
	r.hold <- reason
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

func (r *runner) SkipDelay() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did = append(r.did, "skip delay")
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

func want(id fleet.AllocID, stopAfter time.Duration) journal.DesiredAlloc {
	var after *time.Duration
	if stopAfter > 0 {
		after = &stopAfter
	}
	return journal.DesiredAlloc{Alloc: fleet.Alloc{ID: id, TaskGroup: "g", Job: job(after), AllocModifyIndex: 1}}
}

// runningAgent is one run of the agent.
type runningAgent struct {
	*allocs.Allocs
	cancel context.CancelFunc
	ended  chan error
}

func mustStartAgent(t testing.TB, n *fakeJournal, f *factory, change func(*allocs.Config)) *runningAgent {
	t.Helper()
	cfg := allocs.Config{Journal: n, NewRunner: f.newRunner, BootID: n.boot, Dir: t.TempDir()}
	if change != nil {
		change(&cfg)
	}
	a, err := allocs.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &runningAgent{Allocs: a, cancel: cancel, ended: make(chan error, 1)}
	go func() { l.ended <- a.Run(ctx) }()
	t.Cleanup(l.stopAgent)
	return l
}

// stopAgent stops this run of the agent; tasks go on.
func (l *runningAgent) stopAgent() {
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
