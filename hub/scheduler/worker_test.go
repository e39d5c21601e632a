package scheduler_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/scheduler"
	"skerry/hub/state"
)

// fakeHub is a broker and planner that notes when what was called.
type fakeHub struct {
	store *state.Store
	start time.Time

	mu    sync.Mutex
	queue []fleet.Delivery
	calls []string
	fail  int // Dequeue fails that often first

	submit    func(n int) fleet.PlanResult // answers the nth plan; nil: none is expected
	submitted int
}

func (d *fakeHub) recordCall(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, fmt.Sprintf("%s %s", time.Since(d.start).Round(time.Second), fmt.Sprintf(format, args...)))
}

func (d *fakeHub) Dequeue(ctx context.Context, _ []string) (fleet.Delivery, error) {
	d.mu.Lock()
	if d.fail > 0 {
		d.fail--
		d.mu.Unlock()
		return fleet.Delivery{}, fleet.Errorf(fleet.CodeUnavailable, "no leader")
	}
	if len(d.queue) > 0 {
		next := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		d.recordCall("dequeue %s", next.Eval.ID)
		return next, nil
	}
	d.mu.Unlock()
	<-ctx.Done()
	return fleet.Delivery{}, ctx.Err()
}

func (d *fakeHub) Ack(_ context.Context, id fleet.EvalID, _ string) error {
	d.recordCall("ack %s", id)
	return nil
}

func (d *fakeHub) Nack(ctx context.Context, id fleet.EvalID, _ string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.recordCall("nack %s", id)
	return nil
}

func (d *fakeHub) Submit(_ context.Context, p fleet.Plan) (fleet.PlanResult, error) {
	if hasEvalsOnly(p) {
		d.recordCall("update %s %s by %s of %s", p.Evals[0].ID, p.Evals[0].Status, p.EvalToken, p.EvalID)
		return fleet.PlanResult{}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.submitted++; d.submit == nil {
		return fleet.PlanResult{}, errors.New("no plan is expected")
	}
	return d.submit(d.submitted), nil
}

// runScheduler runs a scheduler in virtual time for as long, and returns what was called
// and logged. during is called at second 0.
func (d *fakeHub) runScheduler(t *testing.T, level slog.Level, length time.Duration, during func()) (calls []string, logged string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d.store, d.start = state.New(), time.Now()
		var out bytes.Buffer
		s, err := scheduler.New(scheduler.Config{
			State: d.store, Broker: d, Planner: d, Workers: 1,
			Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), length)
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		if during != nil {
			running.Go(during)
		}
		running.Wait()
		calls, logged = d.calls, out.String()
	})
	return calls, logged
}

func delivery(id string, index fleet.Index) fleet.Delivery {
	return fleet.Delivery{Token: "t", Eval: &fleet.Evaluation{
		ID: fleet.EvalID(id), Namespace: fleet.DefaultNamespace, JobID: "gone", Type: fleet.JobTypeService, ModifyIndex: index,
	}}
}

func checkCalls(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// E40: a worker whose state is behind waits 5 s, gives the evaluation back, and takes
// no other for 50 s more.
func TestBehind(t *testing.T) {
	d := &fakeHub{queue: []fleet.Delivery{delivery("one", 7), delivery("two", 0)}}
	calls, logged := d.runScheduler(t, slog.LevelWarn, time.Minute, nil)
	checkCalls(t, calls, "0s dequeue one", "5s nack one", "55s dequeue two", "55s update two complete by t of two", "55s ack two")
	if !strings.Contains(logged, "given back") {
		t.Errorf("logged %s", logged)
	}
}

// It does not hold off for longer than it is behind.
func TestBehindForShort(t *testing.T) {
	d := &fakeHub{queue: []fleet.Delivery{delivery("one", 7), delivery("two", 0)}}
	calls, _ := d.runScheduler(t, slog.LevelWarn, time.Minute, func() {
		time.Sleep(20 * time.Second)
		d.store.Apply(7, state.Evals{})
	})
	checkCalls(t, calls, "0s dequeue one", "5s nack one", "20s dequeue two", "20s update two complete by t of two", "20s ack two")
}

// E40: the broker's wait index counts as well as the evaluation's own.
func TestWaitIndex(t *testing.T) {
	one := delivery("one", 2)
	one.WaitIndex = 9
	d := &fakeHub{queue: []fleet.Delivery{one}}
	calls, _ := d.runScheduler(t, slog.LevelWarn, time.Minute, func() {
		time.Sleep(time.Second)
		d.store.Apply(2, state.Evals{})
		time.Sleep(2 * time.Second)
		d.store.Apply(9, state.Evals{})
	})
	checkCalls(t, calls, "0s dequeue one", "3s update one complete by t of one", "3s ack one")
}

// Shutting down is no failure: the evaluation goes back at once, and the log is
// quiet.
func TestStopping(t *testing.T) {
	d := &fakeHub{queue: []fleet.Delivery{delivery("one", 7)}}
	calls, logged := d.runScheduler(t, slog.LevelDebug, 3*time.Second, nil)
	checkCalls(t, calls, "0s dequeue one", "3s nack one")
	if !strings.Contains(logged, scheduler.ErrStopping.Error()) || strings.Contains(logged, "WARN") {
		t.Errorf("logged %s", logged)
	}
	d = &fakeHub{queue: []fleet.Delivery{delivery("one", 7)}}
	if _, logged := d.runScheduler(t, slog.LevelInfo, 3*time.Second, nil); logged != "" {
		t.Errorf("logged %s", logged)
	}
}

// Without a leader a worker asks again, ever more rarely.
func TestNoLeader(t *testing.T) {
	d := &fakeHub{queue: []fleet.Delivery{delivery("one", 0)}, fail: 9}
	calls, logged := d.runScheduler(t, slog.LevelInfo, time.Minute, nil)
	if len(calls) != 3 || !strings.Contains(calls[0], "dequeue one") || logged != "" {
		t.Errorf("calls %v, logged %s", calls, logged)
	}
	at, err := time.ParseDuration(strings.Fields(calls[0])[0])
	if err != nil || at < 3*time.Second || at > 20*time.Second {
		t.Errorf("asked after %s", at)
	}
}

// E49: a planner that fails gives the evaluation back; the next delivery does it.
func TestPlannerFails(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	c.submitErr = fleet.Errorf(fleet.CodeUnavailable, "no leader")
	e := &fleet.Evaluation{
		ID: "e", Namespace: fleet.DefaultNamespace, JobID: "web", Type: fleet.JobTypeService, Priority: 50, Status: fleet.EvalPending,
	}
	c.mustApplyCommand(state.JobRegister{Job: job(1), Eval: e})
	c.deliver <- fleet.Delivery{Eval: e, Token: "t"}
	if got := <-c.dealt; got != "nack" {
		t.Errorf("got %s", got)
	}
	c.submitErr = nil
	if done := c.scheduleEval("e"); done.Status != fleet.EvalComplete || len(c.nonTerminalAllocs()) != 1 {
		t.Errorf("%s, placed %s", done.Status, names(c.nonTerminalAllocs()))
	}
	// Delivered again by mistake, it is left alone.
	c.scheduleEval("e")
	if len(c.entries) != 0 {
		t.Errorf("%d entries for an evaluation that is over", len(c.entries))
	}
}

// A job that is registered anew while the plan for what it was is on its way: the
// worker looks again at once, as often as it would for a full node.
func TestOvertaken(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	anew := 2
	c.sub = func(p fleet.Plan) (fleet.PlanResult, bool) {
		if anew > 0 {
			anew--
			c.mustApplyCommand(state.JobRegister{Job: job(1, func(j *fleet.Job) {
				j.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": fmt.Sprint(p.Job.Version + 1)}
			})})
		}
		return fleet.PlanResult{}, false
	}
	if e := c.registerAndSchedule(job(1)); e.Status != fleet.EvalComplete || len(c.plans) != 3 {
		t.Errorf("%s after %d plans", e.Status, len(c.plans))
	}
	if all := c.webJobAllocs(); len(all) != 1 || all[0].JobVersion != 2 {
		t.Errorf("placed: %s", names(all))
	}
}

// A plan that was made on too old a picture is made again at once, on a newer one; its
// evaluation is not given back for it, but where that does not end.
func TestAPlanThatLostARaceIsMadeAgainAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name             string
		refused          int
		submitted        int
		want             string
		earliest, latest time.Duration
	}{
		{"once", 1, 2, "ack", 0, 0},
		{"three times", 3, 4, "ack", 0, time.Second},
		{"always", 1000, 11, "nack", time.Second, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := delivery("e", 2)
			e.Eval.JobID, e.Eval.Status = "web", fleet.EvalPending
			d := &fakeHub{queue: []fleet.Delivery{e}}
			d.submit = func(n int) fleet.PlanResult {
				if n > tt.refused {
					return fleet.PlanResult{RefreshIndex: 1}
				}
				return fleet.PlanResult{Refused: "made on an older picture", RefreshIndex: 1}
			}
			var took time.Duration
			calls, _ := d.runScheduler(t, slog.LevelWarn, time.Minute, func() {
				n := node(0)
				d.store.Apply(1, state.JobRegister{Job: job(1)})
				d.store.Apply(2, state.SessionOpen{NodeID: n.ID, Session: 1, Node: n})
			})
			for _, call := range calls {
				var after, what string
				if _, err := fmt.Sscan(call, &after, &what); err == nil && what == tt.want && took == 0 {
					took, _ = time.ParseDuration(after)
				}
			}
			if d.submitted != tt.submitted || !strings.Contains(strings.Join(calls, "\n"), tt.want+" e") || took < tt.earliest || took > tt.latest {
				t.Errorf("%d plans, %s after %s: %q", d.submitted, tt.want, took, calls)
			}
		})
	}
}

// A job that cannot be scheduled fails its evaluation, and says why.
func TestUnschedulable(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	e := c.registerAndSchedule(job(1, func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{LTarget: "${attr.kernel.name}", Operand: fleet.OpRegexp, RTarget: "("}}
	}))
	if e.Status != fleet.EvalFailed || !strings.Contains(e.StatusDescription, "constraint") {
		t.Errorf("%s: %s", e.Status, e.StatusDescription)
	}
}
