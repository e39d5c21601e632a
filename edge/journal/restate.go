package journal

import (
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// Moment is the present by the machine's clocks: its boot, the time since that boot, and the wall clock.
type Moment struct {
	Boot fleet.BootID
	Mono time.Duration // since boot
	Wall time.Time
}

// RowsOfStates makes rows to append from the states of all allocations. The writer calls it within a commit, so
// it must not call the journal or change the map.
type RowsOfStates func(map[fleet.AllocID]State) []fleet.Transition

// Restatement returns rows that repeat the given states for a cluster that has lost them, each with the reason
// as its message. It records nothing.
func Restatement(states map[fleet.AllocID]State, now Moment, reason string) []fleet.Transition {
	var ts []fleet.Transition
	for _, id := range slices.Sorted(maps.Keys(states)) {
		ts = append(ts, states[id].restateRows(id, now, reason)...)
	}
	return ts
}

// Reconnected returns a row for each running task, with the time that it has been running. The caller records
// them when the cluster takes this edge back after it had counted it as disconnected.
func Reconnected(states map[fleet.AllocID]State, now Moment) []fleet.Transition {
	var ts []fleet.Transition
	for _, id := range slices.Sorted(maps.Keys(states)) {
		s := states[id]
		if s.Terminal() || s.BootID != now.Boot {
			continue // after a boot the runner has yet to record what became of its tasks
		}
		for _, name := range slices.Sorted(maps.Keys(s.TaskStates)) {
			state := s.taskStateAt(name, now)
			if state.State != fleet.TaskRunning {
				continue
			}
			ts = append(ts, fleet.Transition{
				Kind: fleet.TransitionTask, Alloc: id, Task: name, TaskState: &state,
				Event: &fleet.TaskEvent{Type: fleet.TaskReconnected, Time: now.Wall.UnixNano()},
			})
		}
	}
	return ts
}

// restateRows returns the rows that repeat the state of allocation id: its status, its health if known, and one
// for each task. It returns none if the state has no status.
func (s State) restateRows(id fleet.AllocID, now Moment, reason string) []fleet.Transition {
	if s.ClientStatus == "" && s.Held == nil {
		return nil
	}
	status := fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: s.ClientStatus, ClientDescription: s.ClientDescription, Message: reason,
	}
	first := status
	// Without a hold the row says that there is none: a cluster that went back may still know one.
	first.Hold, first.Released, first.Network = s.Held, s.Held == nil, s.Network
	ts := []fleet.Transition{first}
	if s.Healthy != nil {
		ts = append(ts, fleet.Transition{
			Kind: fleet.TransitionHealth, Alloc: id, Healthy: s.Healthy, Deployment: s.HealthOf, Message: reason,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(s.TaskStates)) {
		state, row := s.taskStateAt(name, now), status
		row.Task, row.TaskState = name, &state
		if state.Address != "" {
			row.Network = &fleet.NetworkStatus{Address: state.Address}
		}
		ts = append(ts, row)
	}
	return ts
}

// taskStateAt returns a task's state without its events. RunningFor of a running task is brought up to now.
func (s State) taskStateAt(name string, now Moment) fleet.TaskState {
	state := s.TaskStates[name]
	state.Events = nil
	if since, ok := s.Since[name]; ok && s.BootID == now.Boot && state.State == fleet.TaskRunning {
		state.RunningFor = max(state.RunningFor, now.Mono-since)
	}
	return state
}
