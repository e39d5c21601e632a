package allocs

import (
	"context"

	"skerry/fleet"
)

// Recorder is where a runner writes what happened: the journal. Record returns
// when the transitions are durable; they are numbered in the order given. It
// fills in Seq, BootID, Mono and Wall. Record never waits for a hub. A
// Transition's TaskState holds no events: each travels as the Transition's
// Event, and the journal keeps the newest fleet.TaskEventsKept of a task.
type Recorder interface {
	Record(ctx context.Context, ts ...fleet.Transition) error
	// PutHandle keeps what finds a task again, durably, under a key of the
	// runner's choice; a nil handle removes it. Transitions are recorded with it, as
	// Record does: both are durable, or neither is.
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	// Handles reads all handles of an allocation back, by key.
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// Runner runs one allocation. It is made by Config.NewRunner, so that a
// simulated one can take its place. Run is called once; the others at any time
// before, during and after it, from any goroutine.
type Runner interface {
	// Run starts or recovers the allocation's tasks and returns when the
	// allocation is terminal, which it has then recorded. Where ctx ends first it
	// detaches: tasks go on, and the next agent's runner takes them back.
	Run(ctx context.Context) error
	// Update hands over a newer version of the allocation (an in-place update).
	Update(a fleet.Alloc)
	// Stop ends the tasks, records that and why, and lets Run return. It does not
	// wait. Called before Run it makes Run take back what still runs, end it, and
	// start nothing.
	Stop(reason string)
	// Restart restarts one task, or all for "". Of a task that does not exist it
	// gives a fleet.CodeNotFound, of an allocation that has ended a
	// fleet.CodeConflict.
	Restart(ctx context.Context, task, reason string) error
	// RestartUnhealthy restarts as Restart does, and counts as a failure by the restart
	// policy: a task whose attempts are used up fails.
	RestartUnhealthy(ctx context.Context, task, reason string) error
	// Signal sends a signal to one task, or to all that run for "", with the errors of
	// Restart; fleet.CodeInvalid where there is no such signal.
	Signal(ctx context.Context, task, signal, reason string) error
}

// DelaySkipper is a Runner that can leave out the shutdown_delay.
type DelaySkipper interface {
	// SkipDelay has tasks that are to end, now or later, wait for no shutdown_delay; one that
	// has begun ends. Called before Stop it holds for that.
	SkipDelay()
}

// NewRunner makes the Runner of an allocation. last is its client status and
// task states as the journal has them from an earlier life of the agent (zero
// for an allocation that is new here); a.Job is set.
type NewRunner func(a fleet.Alloc, last LastState, rec Recorder) (Runner, error)

// LastState is what the journal knows of an allocation when a runner is made.
type LastState struct {
	Known        bool // it ran here before
	Rebooted     bool // and the machine has booted since it last said anything
	ClientStatus string
	TaskStates   map[string]fleet.TaskState
}
