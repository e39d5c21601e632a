package checks_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/edge/checks"
	"skerry/fleet"
)

// fakeJournal keeps rows and handles.
type fakeJournal struct {
	mu      sync.Mutex
	handles map[string][]byte
	rows    []fleet.Transition
	times   []time.Time
	broken  error
}

func (j *fakeJournal) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if j.handles[key] = handle; handle == nil {
		delete(j.handles, key)
	}
	for _, tr := range ts {
		j.rows, j.times = append(j.rows, tr), append(j.times, time.Now())
	}
	return nil
}

func (j *fakeJournal) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.handles), nil
}

func (j *fakeJournal) setBroken(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = err
}

// texts returns the messages of all rows.
func (j *fakeJournal) texts() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for _, tr := range j.rows {
		all = append(all, tr.Message)
	}
	return all
}

// expectRows compares all rows with the wanted ones.
func (w *checksTest) expectRows(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := w.journal.texts(); !slices.Equal(got, want) {
		t.Errorf("%s: rows\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const (
	rowFails  = `check "alive" of service "web" fails: exit code 2: down`
	rowPasses = `check "alive" of service "web" passes again: up`
)

// A change of a check's status is a row, also across restarts of the task and of the agent. The first passing is none.
func TestStatusRows(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		var s *scripts
		w, s = newScriptTest(t, fleet.ServiceCheck{Name: "alive"})
		s.setExit(0, "up")
		agent, kill := context.WithCancel(ctx)
		w.followRunning(agent, 0)
		passVirtualTime(10 * time.Minute)
		w.expectRows(t, "it passes")
		s.setExit(2, "down\nand more")
		passVirtualTime(10 * time.Minute)
		w.expectRows(t, "it fails", rowFails)
		if tr := w.journal.rows[0]; tr.Kind != fleet.TransitionCheck || tr.Alloc != "a" || tr.ClientStatus != "" || tr.TaskState != nil {
			t.Errorf("row %+v", tr)
		}
		s.setExit(0, "up")
		w.followRunning(agent, time.Minute) // the task started again
		w.expectRows(t, "it passes again", rowFails, rowPasses)
		passVirtualTime(10 * time.Minute)
		s.setExit(1, "slow")
		passVirtualTime(10 * time.Minute)
		const rowWarns = `check "alive" of service "web" has a warning: slow`
		w.expectRows(t, "a warning", rowFails, rowPasses, rowWarns)
		kill()
		w.Wait()
		w.startAgentForScripts(t, s)
		again, killAgain := context.WithCancel(ctx)
		w.followRunning(again, time.Minute)
		passVirtualTime(10 * time.Minute)
		w.expectRows(t, "the agent is restarted", rowFails, rowPasses, rowWarns)
		killAgain()
		w.Wait()
		s.setExit(0, "up")
		w.startAgentForScripts(t, s)
		w.followRunning(ctx, time.Minute)
		w.expectRows(t, "it passes after a restart of the agent", rowFails, rowPasses, rowWarns, rowPasses)
		if len(w.journal.handles) != 0 {
			t.Errorf("the journal keeps %v of a check that passes", w.journal.handles)
		}
	}, func() *checks.Checks { return w.Checks })
}

// A check that has never passed has its first row a minute after its start: tasks need time to start.
func TestStatusRowOfASlowStart(t *testing.T) {
	for _, ready := range []bool{true, false} {
		var w *checksTest
		inVirtualTime(t, func(t *testing.T, ctx context.Context) {
			var s *scripts
			w, s = newScriptTest(t, fleet.ServiceCheck{Name: "alive"})
			s.setExit(2, "down")
			w.followRunning(ctx, 0)
			passVirtualTime(45 * time.Second)
			w.expectRows(t, "it starts")
			if ready {
				s.setExit(0, "up")
			}
			passVirtualTime(5 * time.Minute)
			if ready {
				w.expectRows(t, "it is ready")
				return
			}
			w.expectRows(t, "it never is", `check "alive" of service "web" fails (for 1m0s): exit code 2: down`)
		}, func() *checks.Checks { return w.Checks })
	}
}

// A check that changes all the time has few rows, and one with the last status when that stays.
func TestFlappingCheckHasFewRows(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		var s *scripts
		w, s = newScriptTest(t, fleet.ServiceCheck{Name: "alive"})
		s.setExit(0, "up")
		w.followRunning(ctx, 0)
		for range 3 * 180 { // three hours
			s.setExit(2, "down")
			passVirtualTime(10 * time.Second)
			s.setExit(0, "up")
			passVirtualTime(10 * time.Second)
		}
		s.setExit(2, "down")
		flapped := len(w.journal.texts())
		passVirtualTime(time.Hour)
		all := w.journal.texts()
		if flapped < 10 || flapped > 24 || len(all) > flapped+1 {
			t.Errorf("%d rows while it changed every 10 s for three hours, %d after it\n%s", flapped, len(all)-flapped, strings.Join(all, "\n"))
		}
		for i, at := range w.journal.times[1:] {
			if pause := at.Sub(w.journal.times[i]); pause < time.Minute {
				t.Errorf("rows %d and %d are only %s apart", i, i+1, pause)
			}
		}
		if last := all[len(all)-1]; !strings.Contains(last, " fails") {
			t.Errorf("the last row is %q, and the check fails", last)
		}
		if !strings.Contains(all[1], "earlier changes without a row") {
			t.Errorf("a later row does not say that there were more changes: %q", all[1])
		}
		passVirtualTime(time.Hour)
		s.setExit(0, "up")
		passVirtualTime(10 * time.Second)
		if all := w.journal.texts(); !strings.Contains(all[len(all)-1], " passes again") || strings.Contains(all[len(all)-1], "for ") {
			t.Errorf("the first change after a calm hour is written late: %q", all[len(all)-1])
		}
	}, func() *checks.Checks { return w.Checks })
}

func TestStatusRowIsTriedAgain(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		var s *scripts
		w, s = newScriptTest(t, fleet.ServiceCheck{Name: "alive"})
		s.setExit(0, "up")
		w.followRunning(ctx, 0)
		w.journal.setBroken(errors.New("the disk is full"))
		s.setExit(2, "down")
		passVirtualTime(90 * time.Second)
		w.journal.setBroken(nil)
		passVirtualTime(time.Minute)
		if all := w.journal.texts(); len(all) != 1 || !strings.Contains(all[0], "fails (for 2m0s)") {
			t.Errorf("rows %q", all)
		}
	}, func() *checks.Checks { return w.Checks })
}

// A check that gets no answer says so, with what to do, in its result and in its row.
func TestChecksThatNeverAnswer(t *testing.T) {
	const hint = " (the task may hang, or the check's timeout is too short; see skerry alloc logs a)"
	for _, tc := range []struct{ kind, hang, want string }{
		{fleet.CheckTCP, "dial", "no answer from 10.0.0.5:20000 within 2s: context deadline exceeded" + hint},
		{fleet.CheckHTTP, "dial", "no answer from 10.0.0.5:20000 within 2s: context deadline exceeded" + hint},
		{fleet.CheckHTTP, "answer", "no answer from 10.0.0.5:20000 within 2s: context deadline exceeded" + hint},
		{fleet.CheckGRPC, "answer", "no answer from 10.0.0.5:20000 within 2s: context deadline exceeded" + hint},
		{fleet.CheckTCP, "", "nothing listens on 10.0.0.5:20000: connect: connection refused " +
			"(the task may still start, or listens on another port or address; see skerry alloc logs a)"},
	} {
		var w *checksTest
		inVirtualTime(t, func(t *testing.T, ctx context.Context) {
			w = newChecksTest(t, service(fleet.ServiceCheck{Name: "alive", Type: tc.kind}))
			w.site.hang = tc.hang
			w.followRunning(ctx, 0)
			passVirtualTime(3 * time.Second)
			if r := w.onlyResult(t); r.Status != checks.Failure || r.Output != tc.want {
				t.Errorf("%s, no %s: %+v", tc.kind, tc.hang, r)
			}
			passVirtualTime(time.Minute)
			if all := w.journal.texts(); len(all) != 1 || !strings.HasSuffix(all[0], "): "+tc.want) {
				t.Errorf("%s, no %s: rows %q", tc.kind, tc.hang, all)
			}
		}, func() *checks.Checks { return w.Checks })
	}
}
