package runner_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
)

// mustRecordEvents checks a task's events, in order, without those of a task that was found running.
func (m *machine) mustRecordEvents(task string, kinds ...string) {
	m.Helper()
	var got []string
	for _, row := range m.journal.recordedRows() {
		if row.Task == task && row.Event.Type != fleet.TaskRestored {
			got = append(got, row.Event.Type)
		}
	}
	if !slices.Equal(got, kinds) {
		m.Errorf("task %s told %q, want %q\n  %s", task, got, kinds, strings.Join(m.journal.rowLines(), "\n  "))
	}
}

// TestCutWhileItIsKilled ends the agent again and again between a task's Killing and its end: one stop,
// recorded once.
func TestCutWhileItIsKilled(t *testing.T) {
	slow := task("a", map[string]any{"kill_after": "1m"})
	slow.KillTimeout = 2 * time.Minute
	for _, delay := range []time.Duration{0, 30 * time.Second} {
		t.Run(fmt.Sprintf("shutdown_delay %v", delay), func(t *testing.T) {
			inVirtualTime(t, lingering(delay, slow), func(m *machine) {
				first := m.startRunner(m.mustRunner())
				time.Sleep(time.Minute)
				first.detachAgent()
				begin := time.Now()
				for range 15 { // more agents than a task's state holds events
					r := m.mustRunner()
					r.Stop("an operator")
					a := m.startRunner(r)
					time.Sleep((delay + 20*time.Second) / 15)
					synctest.Wait()
					a.detachAgent()
				}
				r := m.mustRunner()
				r.Stop("an operator")
				m.startRunner(r).mustEnd()
				m.mustBe(fleet.ClientComplete)
				want := []string{fleet.TaskReceived, fleet.TaskStarted, fleet.TaskWaitsToStop, fleet.TaskKilling, fleet.TaskTerminated, fleet.TaskKilled}
				if delay == 0 {
					want = slices.Delete(want, 2, 3)
				}
				m.mustRecordEvents("a", want...)
				m.mustStarts("a/1")
				if got, want := m.eventOffsets(begin, fleet.TaskKilling), fmt.Sprintf("a Killing %v", delay); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}

// TestStopCutAtEveryWrite ends the agent at each write to the journal while the allocation is stopped
// after its shutdown delays, and starts the next: every event is recorded once and in time.
func TestStopCutAtEveryWrite(t *testing.T) {
	alloc := lingering(30*time.Second, leading(delayed(task("a", map[string]any{"kill_after": "1s"}), 10*time.Second)), delayed(task("b", nil), 20*time.Second))
	stopped := func(m *machine) *agent {
		r := m.mustRunner()
		r.Stop("an operator")
		return m.startRunner(r)
	}
	// run starts the allocation and stops it with a journal that dies at its nth write from there on.
	run := func(m *machine, n int, applied bool) (writes int) {
		a := m.startRunner(m.mustRunner())
		time.Sleep(time.Minute)
		a.detachAgent()
		m.journal.dieWith(n, applied)
		begin := time.Now()
		a = stopped(m)
		select {
		case <-m.journal.dead:
			a.cancel()
			<-a.done // ctx's error, or nil if the write was the last one
			writes = n
			m.journal.reviveJournal()
			stopped(m).mustEnd()
		case err := <-a.done:
			if err != nil {
				m.Fatal(err)
			}
			writes = m.journal.writeCount()
		}
		m.mustBe(fleet.ClientComplete)
		m.mustStarts("a/1", "b/1")
		for _, name := range []string{"a", "b"} {
			m.mustRecordEvents(name, fleet.TaskReceived, fleet.TaskStarted, fleet.TaskWaitsToStop, fleet.TaskKilling, fleet.TaskTerminated, fleet.TaskKilled)
		}
		want := "a Waiting 0s, a Killing 40s, b Waiting 41s, b Killing 1m1s"
		if got := m.eventOffsets(begin, fleet.TaskWaitsToStop, fleet.TaskKilling); got != want {
			m.Errorf("%s, want %s", got, want)
		}
		return writes
	}
	writes := 0
	inVirtualTime(t, alloc, func(m *machine) { writes = run(m, 0, false) })
	if writes < 8 {
		t.Fatalf("only %d writes end the allocation", writes)
	}
	for n := 1; n <= writes; n++ {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, on disk: %v", n, applied), func(t *testing.T) {
				inVirtualTime(t, alloc, func(m *machine) { run(m, n, applied) })
			})
		}
	}
}

// TestRestartCutAtEveryWrite does the same for an operator's restart: it is recorded and done once, or neither.
func TestRestartCutAtEveryWrite(t *testing.T) {
	alloc := lingering(0, task("a", map[string]any{"kill_after": "1s"}))
	run := func(m *machine, n int, applied bool) (writes int) {
		a := m.startRunner(m.mustRunner())
		time.Sleep(time.Minute)
		m.journal.dieWith(n, applied)
		asked := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { asked <- a.Restart(ctx, "a", "an operator") }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if writes = m.journal.writeCount(); n > 0 {
			a.cancel()
			<-a.done
			cancel()
			<-asked
			m.journal.reviveJournal()
			a = m.startRunner(m.mustRunner())
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		m.mustBe(fleet.ClientRunning)
		if n == 1 && !applied { // the operator got no answer
			m.mustRecordEvents("a", fleet.TaskReceived, fleet.TaskStarted)
			m.mustStarts("a/1")
			return writes
		}
		m.mustRecordEvents("a", fleet.TaskReceived, fleet.TaskStarted, fleet.TaskRestartSignal, fleet.TaskTerminated, fleet.TaskRestarting, fleet.TaskStarted)
		m.mustStarts("a/1", "a/2")
		return writes
	}
	writes := 0
	inVirtualTime(t, alloc, func(m *machine) { writes = run(m, 0, false) })
	if writes < 6 {
		t.Fatalf("only %d writes restart the task", writes)
	}
	for n := 1; n <= writes; n++ {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, on disk: %v", n, applied), func(t *testing.T) {
				inVirtualTime(t, alloc, func(m *machine) { run(m, n, applied) })
			})
		}
	}
}
