package journal

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// State is an allocation's state as its rows add up to it. It is stored beside the rows, because those are
// deleted. Its maps and slices are shared and must not be changed.
type State struct {
	ClientStatus      string
	ClientDescription string
	TaskStates        map[string]fleet.TaskState // each with its newest events
	BootID            fleet.BootID               // of the newest row
	Seq               fleet.Seq                  // of the newest row
	// Since is the start of each running task as time since the boot BootID.
	Since map[string]time.Duration
	// Healthy is the newest health result, for the deployment HealthOf; nil: none.
	Healthy  *bool
	HealthOf fleet.DeploymentID
	// Held says that somebody on site stopped the allocation, and nobody has started it again; nil: it is not held.
	Held *fleet.Hold
	// Network is how the allocation is reached in a network of its own; nil: it has none.
	Network *fleet.NetworkStatus
}

// Terminal reports whether the allocation has ended on this edge.
func (s State) Terminal() bool { return fleet.IsClientTerminal(s.ClientStatus) }

// applyTransition returns the state after one more transition. It does not change s.
func (s State) applyTransition(t fleet.Transition) State {
	if t.BootID != s.BootID {
		s.Since = nil
	}
	s.BootID, s.Seq = t.BootID, t.Seq
	if t.ClientStatus != "" {
		s.ClientStatus, s.ClientDescription = t.ClientStatus, t.ClientDescription
	}
	if t.Kind == fleet.TransitionHealth && t.Healthy != nil {
		s.Healthy, s.HealthOf = t.Healthy, t.Deployment
	}
	if t.Network != nil && t.Task == "" {
		s.Network = t.Network
	}
	switch {
	case t.Hold != nil:
		s.Held = t.Hold
	case t.Released:
		s.Held = nil
	}
	if t.Task == "" || t.TaskState == nil && t.Event == nil && t.Network == nil {
		return s
	}
	task := s.TaskStates[t.Task]
	events, address := task.Events, task.Address
	if t.TaskState != nil {
		task = *t.TaskState
	}
	switch task.Address = address; {
	case t.Network != nil:
		task.Address = t.Network.Address
	case t.Event != nil && t.Event.Type == fleet.TaskStarted:
		task.Address = "" // until the driver says the new one
	}
	if t.Event != nil {
		keep := max(0, len(events)+1-fleet.TaskEventsKept)
		events = append(slices.Clone(events[keep:]), *t.Event)
	}
	task.Events = events
	s.TaskStates = maps.Clone(s.TaskStates)
	if s.TaskStates == nil {
		s.TaskStates = map[string]fleet.TaskState{}
	}
	s.TaskStates[t.Task] = task
	if t.TaskState != nil {
		s.Since = maps.Clone(s.Since)
		if delete(s.Since, t.Task); task.State == fleet.TaskRunning {
			if s.Since == nil {
				s.Since = map[string]time.Duration{}
			}
			s.Since[t.Task] = t.Mono - task.RunningFor
		}
	}
	return s
}

// State returns the durable state of one allocation; false if this journal has no row of it. It reads memory
// only.
func (j *Journal) State(alloc fleet.AllocID) (s State, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok = j.durable.states[alloc]
	return s, ok
}

// States returns the durable states of all allocations with rows, also of removed ones. It reads memory only.
// The map must not be changed.
func (j *Journal) States() map[fleet.AllocID]State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durable.states
}

// States on disk.

// storedState is State as the table states stores it. A field never gets another meaning.
type storedState struct {
	ClientStatus      string                `cbor:"1,keyasint"`
	ClientDescription string                `cbor:"2,keyasint,omitempty"`
	Tasks             map[string]storedTask `cbor:"3,keyasint,omitempty"`
	BootID            fleet.BootID          `cbor:"4,keyasint"`
	Seq               fleet.Seq             `cbor:"5,keyasint"`
	Healthy           *bool                 `cbor:"6,keyasint,omitempty"`
	HealthOf          fleet.DeploymentID    `cbor:"7,keyasint,omitempty"`
	Held              *storedHold           `cbor:"8,keyasint,omitempty"`
	Network           *storedNetwork        `cbor:"9,keyasint,omitempty"`
}

// storedNetwork is fleet.NetworkStatus as stored.
type storedNetwork struct {
	InterfaceName string `cbor:"1,keyasint,omitempty"`
	Address       string `cbor:"2,keyasint,omitempty"`
}

// storedHold is fleet.Hold as stored.
type storedHold struct {
	By         string `cbor:"1,keyasint,omitempty"`
	Reason     string `cbor:"2,keyasint,omitempty"`
	Since      int64  `cbor:"3,keyasint"`
	JobVersion uint64 `cbor:"4,keyasint"`
	NoDelay    bool   `cbor:"5,keyasint,omitempty"`
}

// storedTask is the state of a task within a storedState. Times are UnixNano.
type storedTask struct {
	State       string        `cbor:"1,keyasint"`
	Failed      bool          `cbor:"2,keyasint,omitempty"`
	Restarts    uint64        `cbor:"3,keyasint,omitempty"`
	LastRestart int64         `cbor:"4,keyasint,omitempty"` // UnixNano, 0: never
	StartedAt   int64         `cbor:"5,keyasint,omitempty"`
	FinishedAt  int64         `cbor:"6,keyasint,omitempty"`
	RunningFor  time.Duration `cbor:"7,keyasint,omitempty"`
	Events      []storedEvent `cbor:"8,keyasint,omitempty"`
	// Since is State.Since; nil: the task does not run.
	Since   *time.Duration `cbor:"9,keyasint,omitempty"`
	Address string         `cbor:"10,keyasint,omitempty"`
}

// storedEvent is fleet.TaskEvent as stored.
type storedEvent struct {
	Type           string            `cbor:"1,keyasint"`
	Time           int64             `cbor:"2,keyasint"`
	DisplayMessage string            `cbor:"3,keyasint,omitempty"`
	Details        map[string]string `cbor:"4,keyasint,omitempty"`
	ExitCode       int               `cbor:"5,keyasint,omitempty"`
	Signal         int               `cbor:"6,keyasint,omitempty"`
	FailsTask      bool              `cbor:"7,keyasint,omitempty"`
}

// putStates writes changed states, and deletes those without a boot id.
func (d *database) putStates(states map[fleet.AllocID]State) error {
	for _, id := range slices.Sorted(maps.Keys(states)) {
		s := states[id]
		if s.BootID == "" {
			if err := d.execStatement("DELETE FROM states WHERE alloc = ?", string(id)); err != nil {
				return err
			}
			continue
		}
		b, err := encode(newStoredState(s))
		if err != nil {
			return fmt.Errorf("encode the state of allocation %s: %w", id, err)
		}
		if _, err := d.stmtState.ExecContext(background, withChecksum(string(id), b)...); err != nil {
			return err
		}
	}
	return nil
}

// newStoredState converts a state to the form in which it is stored. It writes nothing.
func newStoredState(s State) storedState {
	st := storedState{
		ClientStatus: s.ClientStatus, ClientDescription: s.ClientDescription, BootID: s.BootID, Seq: s.Seq,
		Healthy: s.Healthy, HealthOf: s.HealthOf, Held: (*storedHold)(s.Held), Network: (*storedNetwork)(s.Network),
	}
	for name, t := range s.TaskStates {
		task := storedTask{
			State: t.State, Failed: t.Failed, Restarts: t.Restarts, RunningFor: t.RunningFor, Address: t.Address,
			LastRestart: unixNanoOf(t.LastRestart), StartedAt: unixNanoOf(t.StartedAt), FinishedAt: unixNanoOf(t.FinishedAt),
		}
		for _, e := range t.Events {
			task.Events = append(task.Events, storedEvent(e))
		}
		if since, ok := s.Since[name]; ok {
			task.Since = &since
		}
		if st.Tasks == nil {
			st.Tasks = make(map[string]storedTask, len(s.TaskStates))
		}
		st.Tasks[name] = task
	}
	return st
}

// toAllocState is the reverse of newStoredState.
func (st storedState) toAllocState() State {
	s := State{
		ClientStatus: st.ClientStatus, ClientDescription: st.ClientDescription, BootID: st.BootID, Seq: st.Seq,
		Healthy: st.Healthy, HealthOf: st.HealthOf, Held: (*fleet.Hold)(st.Held), Network: (*fleet.NetworkStatus)(st.Network),
	}
	for name, t := range st.Tasks {
		task := fleet.TaskState{
			State: t.State, Failed: t.Failed, Restarts: t.Restarts, RunningFor: t.RunningFor, Address: t.Address,
			LastRestart: timeOfUnixNano(t.LastRestart), StartedAt: timeOfUnixNano(t.StartedAt), FinishedAt: timeOfUnixNano(t.FinishedAt),
		}
		for _, e := range t.Events {
			task.Events = append(task.Events, fleet.TaskEvent(e))
		}
		if s.TaskStates == nil {
			s.TaskStates = make(map[string]fleet.TaskState, len(st.Tasks))
		}
		s.TaskStates[name] = task
		if t.Since != nil {
			if s.Since == nil {
				s.Since = map[string]time.Duration{}
			}
			s.Since[name] = *t.Since
		}
	}
	return s
}

// unixNanoOf returns a time as stored; 0 for nil.
func unixNanoOf(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixNano()
}

// timeOfUnixNano is the reverse of unixNanoOf.
func timeOfUnixNano(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	t := time.Unix(0, ns)
	return &t
}

const selectStates = "SELECT alloc, body, sum FROM states"

// scanState reads one row of table states and checks its checksum. Each error wraps errDamaged.
func scanState(rows *sql.Rows) (fleet.AllocID, State, error) {
	var id string
	var body []byte
	var sum sql.NullInt64
	if err := rows.Scan(&id, &body, &sum); err != nil {
		return "", State{}, damaged("read a row of table states: %v", err)
	}
	if err := checkUnaltered(sum, "states", id, body); err != nil {
		return "", State{}, err
	}
	s, err := decodeState(body)
	if err != nil {
		return "", State{}, damaged("decode the state of allocation %s: %v", id, err)
	}
	return fleet.AllocID(id), s, nil
}

// decodeState decodes a stored state. Any bytes give a state or an error, never a panic. A state without a boot
// id is an error.
func decodeState(b []byte) (State, error) {
	var st storedState
	if err := decode(b, &st); err != nil {
		return State{}, err
	}
	if st.BootID == "" {
		return State{}, errors.New("it has no boot id")
	}
	return st.toAllocState(), nil
}
