package real

import (
	"context"
	"maps"
	"slices"

	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// watchExpectations passes a snapshot of the fleet to the scenario's expectations each second until
// ctx is done. Without a scenario it returns at once.
func (w *fleetWatcher) watchExpectations(ctx context.Context) {
	for w.s.expect != nil && engine.Pause(ctx, lookEvery) {
		w.updateExpectations(ctx)
		if w.s.expect.AwaitsQuiet() && firstUnsettled(ctx, w.s.fleet) == "" {
			w.s.expect.RecordSettled(w.s.elapsedTime())
		}
	}
}

// updateExpectations takes a snapshot of the fleet, and passes it with the new starts of tasks to the scenario's
// expectations. Hubs and edges that do not answer are missing in it.
func (w *fleetWatcher) updateExpectations(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	seen := schedule.Snapshot{At: w.s.elapsedTime(), Tasks: map[string][]fleet.AllocID{}}
	if h, err := w.s.findRunningLeader(ctx); err == nil {
		f, failed := h.Fleet(ctx)
		allocs, err := h.Allocs(ctx)
		if seen.Hubs = err == nil && failed == nil; seen.Hubs {
			seen.Nodes, seen.Allocs = map[string]fleet.NodeStatus{}, allocs
			for _, n := range f.Nodes {
				seen.Nodes[n.Name] = n.Status
			}
		}
	}
	for _, e := range w.s.fleet.Edges {
		if tasks, err := processes(e); err == nil {
			seen.Tasks[e.Name] = []fleet.AllocID{}
			for task := range tasks {
				seen.Tasks[e.Name] = append(seen.Tasks[e.Name], task.Alloc)
			}
		}
	}
	starts, err := started(w.s.starts)
	if err != nil {
		return // a task is just recording its start
	}
	w.s.expect.Update(func(j *schedule.ExpectationChecker) {
		j.AddSnapshot(seen)
		for _, id := range slices.Sorted(maps.Keys(starts)) {
			for ; w.startsSeen[id] < starts[id]; w.startsSeen[id]++ {
				j.AddTaskStart(id, schedule.TaskName)
			}
		}
	})
}
