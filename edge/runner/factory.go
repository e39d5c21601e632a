package runner

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"skerry/drivers"
	"skerry/edge/contract"
	"skerry/fleet"
)

// Steps of a start, in order, for Factory.Step.
const (
	StepReceived = "received" // the allocation's first rows are journaled
	StepIntent   = "intent"   // the attempt is journaled and will be started
	StepStarted  = "started"  // the driver has started it
	StepHandle   = "handle"   // its handle is journaled
	StepRunning  = "running"  // the running task is journaled
)

// Factory makes runners. All fields but Hooks, Jitter and Step are required.
type Factory struct {
	Drivers map[string]drivers.Driver // by name
	// Node returns the node of this machine, whose attributes ${…} may name.
	Node func() fleet.Node
	// Hooks prepare each attempt, in this order.
	Hooks []Hook
	Dirs  Dirs
	// MemoryDir makes a folder in memory for an attempt of a task, for drivers.TaskConfig.MemoryDir. A fleet.CodeUnsupported
	// says why this machine has none. nil: it has none.
	MemoryDir func(id fleet.AllocID, task string, attempt int) (string, error)
	BootID    fleet.BootID
	Mono      func() time.Duration // since boot, as the journal has it
	Now       func() time.Time     // wall clock, shown in events
	Jitter    func() float64       // in [0, 1); nil: random
	// Step is called after each labelled step of a start; tests end the process in it. nil: nothing.
	Step func(label string)
	Log  *slog.Logger
}

// NewRunner calls New and returns the interface type, as contract.New does.
func (f *Factory) NewRunner(a fleet.Alloc, last contract.LastState, rec contract.Recorder) (contract.Runner, error) {
	r, err := f.New(a, last, rec)
	if err != nil {
		return nil, fmt.Errorf("make the runner of allocation %s: %w", fleet.Short(a.ID), err)
	}
	return r, nil
}

// New makes the runner of a. last is the allocation's journaled state, and rec journals the runner's rows. New does no
// I/O. It accepts an allocation that cannot run: the runner records that it failed, and why.
func (f *Factory) New(a fleet.Alloc, last contract.LastState, rec contract.Recorder) (*Runner, error) {
	if f.Node == nil || f.Mono == nil || f.Now == nil || f.Log == nil || f.Dirs.Allocs == "" || f.Dirs.State == "" {
		return nil, errors.New("make runner: a node, clocks, a logger and folders are required")
	}
	if a.ID == "" || rec == nil {
		return nil, errors.New("make runner: an allocation and a recorder are required")
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
		held:         make(chan struct{}),
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
