// Package contract declares the interfaces between edge/allocs, runners and the journal.
//
// edge/runner runs real tasks, edge/swarm simulates them; both implement Runner. edge.Config
// takes the New that makes them, so that edge knows no driver. The package has no state.
package contract

import (
	"context"
	"errors"

	"skerry/fleet"
	"skerry/fleet/usage"
)

// ErrHeld is returned by the Run of a Holder after Hold, when no task of the allocation runs any more.
var ErrHeld = errors.New("the allocation is held")

// Recorder is the part of the journal that a runner writes to. A write returns when it is durable.
type Recorder interface {
	// Record appends transitions in the given order and returns when they are durable. It
	// fills in Seq, BootID, Mono and Wall, and never waits for a hub. A TaskState in ts has
	// no events: each event travels in a transition of its own.
	Record(ctx context.Context, ts ...fleet.Transition) error
	// PutHandle stores the data that finds a task again, under a key of the runner's choice;
	// nil removes it. The handle and the transitions are durable together, or not at all.
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	// Handles returns all handles of an allocation, by key.
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// Runner runs one allocation. Run is called once; the other methods may be called before,
// during and after Run, from any goroutine.
type Runner interface {
	// Run starts or recovers the tasks. It returns when the allocation has ended and its end is
	// recorded. When ctx ends first it returns, and the tasks go on for the next agent.
	Run(ctx context.Context) error
	// Update gives the runner a newer version of the allocation (an in-place update). It does not wait.
	Update(a fleet.Alloc)
	// Stop ends the tasks, records the reason, and lets Run return. It does not wait. Before
	// Run, it makes Run recover and end what still runs, and start nothing.
	Stop(reason string)
	// Restart restarts one task, or all for "", and returns when that is journaled. An unknown task is a
	// fleet.CodeNotFound, an allocation that has ended a fleet.CodeConflict.
	Restart(ctx context.Context, task, reason string) error
	// RestartUnhealthy is Restart for a failed check: the restart policy counts it, and may make the task fail
	// instead.
	RestartUnhealthy(ctx context.Context, task, reason string) error
	// Signal sends a signal to one task, or to all that run for "". Its errors are those of
	// Restart, and fleet.CodeInvalid for an unknown signal.
	Signal(ctx context.Context, task, signal, reason string) error
}

// DelaySkipper is implemented by a Runner that can skip the shutdown_delay.
type DelaySkipper interface {
	// SkipDelay ends every shutdown_delay that has begun, and lets none begin. It may be called before Stop.
	SkipDelay()
}

// Holder is implemented by a Runner that can end its tasks without ending the allocation.
type Holder interface {
	// Hold ends the tasks for the reason and lets Run return ErrHeld. It does not wait. Before Run, it makes Run
	// recover and end what still runs, and start nothing. The tasks start again in another runner.
	Hold(reason string)
}

// Execer is implemented by a Runner that can run a command beside a task.
type Execer interface {
	// Exec runs a command beside a task and returns its exit code. The command ends with ctx and with the task.
	// A task that does not run is a fleet.CodeConflict, a driver without exec a fleet.CodeUnsupported.
	Exec(ctx context.Context, task string, x fleet.Exec) (code int, err error)
}

// Meter is implemented by a Runner that can measure its tasks.
type Meter interface {
	// Usage measures for a moment what one task uses, or each running one for "". mhz is the clock rate of a
	// core.
	Usage(ctx context.Context, task string, mhz float64) (map[string]*usage.Task, error)
}

// New makes the Runner of an allocation whose Job is set. last is zero for an allocation that
// is new on this machine.
type New func(a fleet.Alloc, last LastState, rec Recorder) (Runner, error)

// LastState is the state of an allocation in the journal when its runner is made.
type LastState struct {
	Known        bool // the allocation ran here before
	Rebooted     bool // the machine has booted since its newest row
	ClientStatus string
	TaskStates   map[string]fleet.TaskState
}
