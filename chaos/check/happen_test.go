package check_test

import (
	"fmt"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// The events that a test can have happen in a fleetModel.

// registerJob registers a job that is one task, count times.
func (t *fleetModel) registerJob(id fleet.JobID, count int, d *fleet.Disconnect) *fleet.Job {
	job := &fleet.Job{ID: id, Namespace: "default", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{
		Name: "g", Count: count, Disconnect: d, Tasks: []fleet.Task{{Name: "main", Driver: "sim", KillTimeout: time.Second}},
	}}}
	t.applyEntry("job_register", &check.Effects{Jobs: []check.JobChange{{Job: id}}})
	registered := *job
	t.feedObservation(check.Observation{Job: &registered})
	return job
}

// placeRunningAlloc places an allocation and lets it run.
func (t *fleetModel) placeRunningAlloc(job *fleet.Job, slot int, e *told, previous fleet.AllocID) fleet.AllocID {
	id := t.commitPlacement(job, slot, e, previous)
	t.advanceTime(time.Second)
	t.runAllocation(e, id)
	return id
}

// commitPlacement commits an allocation.
func (t *fleetModel) commitPlacement(job *fleet.Job, slot int, e *told, previous fleet.AllocID) fleet.AllocID {
	t.drawn++
	a := &fleet.Alloc{
		ID: fleet.AllocID(fmt.Sprintf("alloc%03d", t.drawn)), Namespace: "default", Name: fmt.Sprintf("%s.g[%d]", job.ID, slot),
		NodeID: e.node, NodeName: e.name, JobID: job.ID, Job: job, TaskGroup: "g", DesiredStatus: fleet.DesiredRun,
		ClientStatus: fleet.ClientPending, PreviousAllocation: previous, AllocatedResources: fleet.Resources{CPU: 10, MemoryMB: 10},
	}
	t.allocs[a.ID] = a
	t.order = append(t.order, a.ID)
	t.commitAllocs(a.ID)
	return a.ID
}

// commitAllocs commits allocations as they are now.
func (t *fleetModel) commitAllocs(ids ...fleet.AllocID) {
	e := &check.Effects{}
	for _, id := range ids {
		a := t.allocs[id]
		a.ModifyIndex = t.index + 1
		e.Allocs = append(e.Allocs, *a)
		e.Loads = append(e.Loads, check.Load{Node: a.NodeID, Name: a.NodeName, Used: a.AllocatedResources, Free: fleet.Resources{CPU: 1000, MemoryMB: 1000}})
	}
	t.applyEntry("plan", e)
}

// runAllocation has an edge start a task and say so.
func (t *fleetModel) runAllocation(e *told, id fleet.AllocID) {
	t.journalStatus(e, id, fleet.ClientPending, fleet.TaskReceived)
	t.observeTask(e, id, check.TaskStarted)
	t.journalStatus(e, id, fleet.ClientRunning, fleet.TaskStarted)
	if e.linked && !e.cut {
		t.sendRows(e)
	}
}

func (t *fleetModel) observeTask(e *told, id fleet.AllocID, what string) {
	t.feedObservation(check.Observation{Task: &check.Task{Edge: e.name, Alloc: id, Task: "main", What: what}})
}

// beginFault begins a fault and returns what ends it.
func (t *fleetModel) beginFault(kind string, effects []check.Effect, targets ...string) (end func()) {
	t.faults++
	f := check.Fault{ID: t.faults, Kind: kind, Targets: targets, Effects: effects}
	t.feedObservation(check.Observation{Fault: &f})
	return func() {
		over := f
		over.End, over.Hits = true, 1
		t.feedObservation(check.Observation{Fault: &over})
	}
}

// putBack puts the hubs back to their state of an entry. The started hubs apply all entries up to it again in a
// moment.
func (t *fleetModel) putBack(to fleet.Index) { t.putBackApart(nil, 0, to) }

// putBackApart does so with a hub that shows an older snapshot first (nil: none does), before
// the others apply what comes after an entry.
func (t *fleetModel) putBackApart(shown *check.Hub, after, to fleet.Index) {
	end := t.beginFault("restore", []check.Effect{check.Rewinds, check.Halts})
	replay := slices.Clone(t.all)
	for _, h := range t.hubs {
		t.feedObservation(check.Observation{Process: &check.Process{Name: h, What: check.ProcessStart}})
	}
	end()
	for _, e := range t.edges {
		t.feedObservation(check.Observation{Edge: e.edgeView(t.at)})
	}
	if shown != nil {
		t.feedObservation(check.Observation{Hub: shown})
	}
	last := map[string]fleet.Index{}
	for _, o := range replay {
		if o.Applied != nil && o.Applied.Index > after && o.Applied.Index <= to && o.Applied.Index > last[o.Applied.Hub] {
			last[o.Applied.Hub] = o.Applied.Index
			t.feedObservation(check.Observation{Applied: o.Applied})
		}
	}
	t.index = to
}

// cutEdgeLink takes an edge's link; heal gives it back, with a replay of what happened.
func (t *fleetModel) cutEdgeLink(e *told) (heal func()) {
	end := t.beginFault("cut", []check.Effect{check.Severs}, e.name)
	e.cut = true
	t.advanceTime(4 * time.Second)
	e.linked = false
	t.journalRow(e, fleet.Transition{Kind: fleet.TransitionDisconnect})
	return func() {
		end()
		e.cut = false
		t.advanceTime(time.Second)
		t.openSession(e)
		t.journalRow(e, fleet.Transition{Kind: fleet.TransitionReconnect})
		t.sendRows(e)
	}
}

// missDeadline has the cluster notice that an edge is gone, and its allocations with it.
func (t *fleetModel) missDeadline(e *told) {
	e.status = fleet.NodeDisconnected
	t.applyEntry("node_status", &check.Effects{Moved: []check.Moved{{Node: e.node, Epoch: e.epoch, Newest: e.epoch, Status: e.status}}})
	for _, id := range t.order {
		if a := t.allocs[id]; a.NodeID == e.node && !a.Terminal() {
			t.commitClientStatus(id, fleet.ClientUnknown)
		}
	}
}

// commitClientStatus has the hubs set the client status of an allocation.
func (t *fleetModel) commitClientStatus(id fleet.AllocID, status string) {
	t.setClientStatus(id, status)
	t.commitAllocs(id)
}

func (t *fleetModel) setClientStatus(id fleet.AllocID, status string) {
	a := t.allocs[id]
	a.ClientStatus = status
	a.AllocStates = append(a.AllocStates[:len(a.AllocStates):len(a.AllocStates)],
		fleet.AllocState{Field: fleet.AllocStateClientStatus, Value: status, Time: time.Unix(0, int64(t.at)).UTC()})
}

// settleReconnect has the hubs keep one allocation and stop the other, whose edge carries it
// out.
func (t *fleetModel) settleReconnect(winner, loser fleet.AllocID, e *told) {
	t.setClientStatus(winner, fleet.ClientRunning)
	t.allocs[loser].DesiredStatus = fleet.DesiredStop
	t.commitAllocs(winner, loser)
	t.advanceTime(time.Second)
	t.endEdgeTask(e, loser)
}

// stopAllocation has the hubs want an allocation gone, and its edge carry it out.
func (t *fleetModel) stopAllocation(e *told, id fleet.AllocID) {
	t.allocs[id].DesiredStatus = fleet.DesiredStop
	t.commitAllocs(id)
	t.advanceTime(time.Second)
	t.endEdgeTask(e, id)
}

// reapEndedAllocs has the hubs forget the allocations that have ended.
func (t *fleetModel) reapEndedAllocs() {
	t.order = slices.DeleteFunc(t.order, func(id fleet.AllocID) bool {
		a := t.allocs[id]
		if a.ClientTerminal() {
			delete(t.allocs, id)
		}
		return a.ClientTerminal()
	})
}

// endEdgeTask has an edge end a task.
func (t *fleetModel) endEdgeTask(e *told, id fleet.AllocID) {
	t.observeTask(e, id, check.TaskStopped)
	t.journalStatus(e, id, fleet.ClientComplete, fleet.TaskKilled)
	if e.linked && !e.cut {
		t.sendRows(e)
	}
}

// observeProcess tells of an edge's process.
func (t *fleetModel) observeProcess(e *told, what string) {
	p := &check.Process{Name: e.name, Edge: true, What: what}
	switch what {
	case check.ProcessStart:
		p.Boot = e.currentBootID()
	case check.ProcessReboot, check.ProcessPowerCut:
		for _, id := range t.order {
			if a := t.allocs[id]; a.NodeID == e.node && !a.Terminal() {
				t.observeTask(e, id, check.TaskVanished)
			}
		}
		e.boots++
		e.booted = t.at
		e.linked = false
	default:
		e.linked = false
	}
	t.feedObservation(check.Observation{Process: p})
}

// finishRun ends the run with the last snapshot.
func (t *fleetModel) finishRun() []check.Violation {
	return t.m.Finish(t.at, t.last)
}

func (t *fleetModel) mustFindOnly(want check.Invariant) {
	t.tb.Helper()
	t.advanceTime(20 * time.Second)
	found := t.finishRun()
	if len(found) == 0 {
		t.tb.Fatalf("nothing was found, want %s", want)
	}
	for _, v := range found {
		if v.Invariant != want {
			t.tb.Errorf("want %s alone, found %v\n\t%v", want, v, v.Evidence)
		}
	}
}

func (t *fleetModel) mustFindNothing() {
	t.tb.Helper()
	t.advanceTime(20 * time.Second)
	for _, v := range t.finishRun() {
		t.tb.Errorf("%v\n\t%v", v, v.Evidence)
	}
}
