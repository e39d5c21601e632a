package allocs

import (
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// Moment is a machine's now.
type Moment struct {
	Boot fleet.BootID
	Mono time.Duration // since boot
	Wall time.Time
}

// taskStateAt is a task's state at a moment, without its events.
func (s State) taskStateAt(name string, now Moment) fleet.TaskState {
	state := s.TaskStates[name]
	state.Events = nil
	if since, ok := s.Since[name]; ok && s.BootID == now.Boot && state.State == fleet.TaskRunning {
		state.RunningFor = max(state.RunningFor, now.Mono-since)
	}
	return state
}

// wentBack is why a state is said again that the cluster has heard of once.
const wentBack = "said again: the cluster went back behind it"

// Restatement are the rows that say states again, and why.
func Restatement(states map[fleet.AllocID]State, now Moment, why string) []fleet.Transition {
	var ts []fleet.Transition
	for _, id := range sortedKeys(states) {
		ts = append(ts, restated(id, states[id], now, why)...)
	}
	return ts
}

// restated are the rows that say an allocation's state again, and why.
func restated(id fleet.AllocID, s State, now Moment, why string) []fleet.Transition {
	if s.ClientStatus == "" {
		return nil
	}
	ts := []fleet.Transition{{
		Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: s.ClientStatus, ClientDescription: s.ClientDescription, Message: why,
	}}
	if s.Healthy != nil {
		ts = append(ts, fleet.Transition{
			Kind: fleet.TransitionHealth, Alloc: id, Healthy: s.Healthy, Deployment: s.HealthOf, Message: why,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(s.TaskStates)) {
		state := s.taskStateAt(name, now)
		ts = append(ts, fleet.Transition{
			Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: s.ClientStatus, ClientDescription: s.ClientDescription,
			Task: name, TaskState: &state, Message: why,
		})
	}
	return ts
}

// Reconnected are the rows that say of each running task, where the cluster had
// missed this edge and has it back, for how long it has been running.
func Reconnected(states map[fleet.AllocID]State, now Moment) []fleet.Transition {
	var ts []fleet.Transition
	for _, id := range sortedKeys(states) {
		s := states[id]
		if s.Ended() || s.BootID != now.Boot {
			continue // the runner has yet to say what the boot did to it
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

func (a *Allocs) currentMoment() Moment {
	return Moment{Boot: a.cfg.BootID, Mono: a.cfg.Mono(), Wall: time.Now()}
}
