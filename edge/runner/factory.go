package runner

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// Recorder is where a runner writes what happens: the journal. Record returns
// when the transitions are durable, PutHandle when the handle is, and what is
// recorded with it: both are, or neither. A nil handle removes it.
type Recorder interface {
	Record(ctx context.Context, ts ...fleet.Transition) error
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// LastState is what the journal knows of an allocation when its runner is made.
// It has the fields of edge.LastState, so that one converts to the other.
type LastState struct {
	Known        bool // it ran here before
	Rebooted     bool // and the machine has booted since it last said anything
	ClientStatus string
	TaskStates   map[string]fleet.TaskState
}

// Steps of a start, in order: see Factory.Step.
const (
	StepReceived = "received" // the allocation's first transitions are journaled
	StepIntent   = "intent"   // the attempt is journaled, and about to be started
	StepStarted  = "started"  // the driver has started it
	StepHandle   = "handle"   // its handle is journaled
	StepRunning  = "running"  // that it runs is journaled
)

// Factory makes runners. All fields but Jitter and Step are required.
type Factory struct {
	Drivers map[string]drivers.Driver // by name
	Node    func() fleet.Node         // the machine, for interpolation
	Dirs    Dirs
	BootID  fleet.BootID
	Mono    func() time.Duration // since boot; the journal's
	Now     func() time.Time     // wall clock, shown in events
	Jitter  func() float64       // in [0, 1); nil: random
	// Step is called after each labelled step of a start, so that a test can end
	// the process there. nil: nothing.
	Step func(label string)
	Log  *slog.Logger
}

// New makes the runner of a. It touches no disk. An allocation that cannot be
// run is not refused here: its runner records that it failed, and why.
func (f *Factory) New(a fleet.Alloc, last LastState, rec Recorder) (*Runner, error) {
	if f.Node == nil || f.Mono == nil || f.Now == nil || f.Log == nil || f.Dirs.Allocs == "" || f.Dirs.State == "" {
		return nil, errors.New("make runner: the factory is not complete")
	}
	if a.ID == "" || rec == nil {
		return nil, errors.New("make runner: no allocation or no recorder")
	}
	r := &Runner{
		factory:      *f,
		rec:          rec,
		log:          f.Log.With("component", "runner", "alloc_id", string(a.ID)),
		id:           a.ID,
		last:         last,
		alloc:        a,
		status:       last.ClientStatus,
		stopped:      make(chan struct{}),
		delaySkipped: make(chan struct{}),
		done:         make(chan struct{}),
		reports:      make(chan report),
		ended:        make(chan *task),
		updated:      make(chan struct{}, 1),
		attempts:     make(map[string]*attempt),
	}
	if r.factory.Jitter == nil {
		r.factory.Jitter = rand.Float64
	}
	if r.factory.Step == nil {
		r.factory.Step = func(string) {}
	}
	if g := a.Group(); g != nil {
		for i := range g.Tasks {
			r.tasks = append(r.tasks, newTask(r, &g.Tasks[i], last.TaskStates[g.Tasks[i].Name]))
		}
	}
	return r, nil
}
