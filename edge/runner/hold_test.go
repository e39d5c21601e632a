package runner_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/contract"
	"skerry/fleet"
)

// mustPark waits until the held allocation has ended its tasks.
func (a *agent) mustPark() {
	a.Helper()
	if err := <-a.done; !errors.Is(err, contract.ErrHeld) {
		a.Fatalf("Run: %v, want that the allocation is held", err)
	}
	a.mustBe(fleet.ClientPending)
}

// A held allocation ends its tasks, a leader first, and stays pending without poststop tasks. The next runner starts its
// tasks again, and counts no restart.
func TestHold(t *testing.T) {
	inVirtualTime(t, allHooks(fleet.JobTypeService, ""), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		time.Sleep(time.Minute)
		a.Hold("smoke")
		a.mustPark()
		m.mustStarts("before/1", "beside/1", "main/1", "after/1")

		a = m.startRunner(m.mustRunner()) // an agent that starts meanwhile
		a.Hold("smoke")
		a.mustPark()
		m.rebootMachine()
		r := m.mustRunner()
		r.Hold("smoke")
		m.startRunner(r).mustPark()
		m.mustStarts("before/1", "beside/1", "main/1", "after/1")

		a = m.startRunner(m.mustRunner())
		time.Sleep(time.Minute)
		synctest.Wait()
		m.mustBe(fleet.ClientRunning)
		for _, task := range []string{"main", "beside"} {
			if s := m.journal.lastState().TaskStates[task]; s.State != fleet.TaskRunning || s.Restarts != 0 {
				t.Errorf("task %s: %+v", task, s)
			}
		}
		a.Stop("an operator")
		a.mustEnd()
		m.mustBe(fleet.ClientComplete)
	})
}

// The machine reboots, or the agent dies, while the tasks of a held allocation end.
func TestHoldInterrupted(t *testing.T) {
	for _, reboots := range []bool{false, true} {
		inVirtualTime(t, allocOf(fleet.JobTypeBatch, nil, task("m", map[string]any{"ignore_signals": true})), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			time.Sleep(time.Minute)
			a.Hold("smoke")
			time.Sleep(time.Second)
			synctest.Wait()
			a.detachAgent()
			if reboots {
				m.rebootMachine()
			}
			r := m.mustRunner()
			r.Hold("smoke")
			m.startRunner(r).mustPark()
			m.mustStarts("m/1")
			a = m.startRunner(m.mustRunner())
			time.Sleep(time.Minute)
			synctest.Wait()
			m.mustBe(fleet.ClientRunning)
			m.mustStarts("m/1", "m/2")
			a.Stop("an operator")
			a.mustEnd()
		})
	}
}

// A stop by the hubs ends a held allocation for good, also while its tasks end.
func TestStopEndsHeld(t *testing.T) {
	inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("m", nil)), func(m *machine) {
		a := m.startRunner(m.mustRunner())
		time.Sleep(time.Minute)
		a.Hold("smoke")
		a.mustPark()
		r := m.mustRunner()
		r.Stop("drained")
		m.startRunner(r).mustEnd()
		m.mustBe(fleet.ClientComplete)
		m.mustStarts("m/1")
	})
}
