package check_test

import (
	"fmt"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// What may happen in a tale.

// register registers a job that is one task, count times.
func (t *tale) register(id fleet.JobID, count int, d *fleet.Disconnect) *fleet.Job {
	job := &fleet.Job{ID: id, Namespace: "default", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{
		Name: "g", Count: count, Disconnect: d, Tasks: []fleet.Task{{Name: "main", Driver: "sim", KillTimeout: time.Second}},
	}}}
	t.entry("job_register", &check.Effects{Jobs: []check.JobChange{{Job: id}}})
	registered := *job
	t.see(check.Observation{Job: &registered})
	return job
}

// place places an allocation and lets it run.
func (t *tale) place(job *fleet.Job, slot int, e *told, previous fleet.AllocID) fleet.AllocID {
	id := t.plan(job, slot, e, previous)
	t.pass(time.Second)
	t.run(e, id)
	return id
}

// plan commits an allocation.
func (t *tale) plan(job *fleet.Job, slot int, e *told, previous fleet.AllocID) fleet.AllocID {
	t.drawn++
	a := &fleet.Alloc{
		ID: fleet.AllocID(fmt.Sprintf("alloc%03d", t.drawn)), Namespace: "default", Name: fmt.Sprintf("%s.g[%d]", job.ID, slot),
		NodeID: e.node, NodeName: e.name, JobID: job.ID, Job: job, TaskGroup: "g", DesiredStatus: fleet.DesiredRun,
		ClientStatus: fleet.ClientPending, PreviousAllocation: previous, AllocatedResources: fleet.Resources{CPU: 10, MemoryMB: 10},
	}
	t.allocs[a.ID] = a
	t.order = append(t.order, a.ID)
	t.change(a.ID)
	return a.ID
}

// change commits allocations as they are now.
func (t *tale) change(ids ...fleet.AllocID) {
	e := &check.Effects{}
	for _, id := range ids {
		a := t.allocs[id]
		a.ModifyIndex = t.index + 1
		e.Allocs = append(e.Allocs, *a)
		e.Loads = append(e.Loads, check.Load{Node: a.NodeID, Name: a.NodeName, Used: a.AllocatedResources, Free: fleet.Resources{CPU: 1000, MemoryMB: 1000}})
	}
	t.entry("plan", e)
}

// run has an edge start a task and say so.
func (t *tale) run(e *told, id fleet.AllocID) {
	t.status(e, id, fleet.ClientPending, fleet.TaskReceived)
	t.task(e, id, check.TaskStarted)
	t.status(e, id, fleet.ClientRunning, fleet.TaskStarted)
	if e.linked && !e.cut {
		t.send(e)
	}
}

func (t *tale) task(e *told, id fleet.AllocID, what string) {
	t.see(check.Observation{Task: &check.Task{Edge: e.name, Alloc: id, Task: "main", What: what}})
}

// fault begins a fault and returns what ends it.
func (t *tale) fault(kind string, effects []check.Effect, targets ...string) (end func()) {
	t.faults++
	f := check.Fault{ID: t.faults, Kind: kind, Targets: targets, Effects: effects}
	t.see(check.Observation{Fault: &f})
	return func() {
		over := f
		over.End, over.Hits = true, 1
		t.see(check.Observation{Fault: &over})
	}
}

// putBack puts the hubs back to what they had applied up to an entry; started again they
// apply all of it in a moment.
func (t *tale) putBack(to fleet.Index) { t.putBackApart(nil, 0, to) }

// putBackApart does so with a hub that shows an older picture first (nil: none does), before
// the others apply what comes after an entry.
func (t *tale) putBackApart(shown *check.Hub, after, to fleet.Index) {
	end := t.fault("restore", []check.Effect{check.Rewinds, check.Halts})
	replay := slices.Clone(t.all)
	for _, h := range t.hubs {
		t.see(check.Observation{Process: &check.Process{Name: h, What: check.ProcessStart}})
	}
	end()
	for _, e := range t.edges {
		t.see(check.Observation{Edge: e.look(t.at)})
	}
	if shown != nil {
		t.see(check.Observation{Hub: shown})
	}
	last := map[string]fleet.Index{}
	for _, o := range replay {
		if o.Applied != nil && o.Applied.Index > after && o.Applied.Index <= to && o.Applied.Index > last[o.Applied.Hub] {
			last[o.Applied.Hub] = o.Applied.Index
			t.see(check.Observation{Applied: o.Applied})
		}
	}
	t.index = to
}

// cut takes an edge's link; heal gives it back, with a replay of what happened.
func (t *tale) cut(e *told) (heal func()) {
	end := t.fault("cut", []check.Effect{check.Severs}, e.name)
	e.cut = true
	t.pass(4 * time.Second)
	e.linked = false
	t.row(e, fleet.Transition{Kind: fleet.TransitionDisconnect})
	return func() {
		end()
		e.cut = false
		t.pass(time.Second)
		t.open(e)
		t.row(e, fleet.Transition{Kind: fleet.TransitionReconnect})
		t.send(e)
	}
}

// miss has the cluster notice that an edge is gone, and its allocations with it.
func (t *tale) miss(e *told) {
	e.status = fleet.NodeDisconnected
	t.entry("node_status", &check.Effects{Moved: []check.Moved{{Node: e.node, Epoch: e.epoch, Newest: e.epoch, Status: e.status}}})
	for _, id := range t.order {
		if a := t.allocs[id]; a.NodeID == e.node && !a.Terminal() {
			t.conclude(id, fleet.ClientUnknown)
		}
	}
}

// conclude has the hubs conclude what an allocation is.
func (t *tale) conclude(id fleet.AllocID, status string) {
	t.become(id, status)
	t.change(id)
}

func (t *tale) become(id fleet.AllocID, status string) {
	a := t.allocs[id]
	a.ClientStatus = status
	a.AllocStates = append(a.AllocStates[:len(a.AllocStates):len(a.AllocStates)],
		fleet.AllocState{Field: fleet.AllocStateClientStatus, Value: status, Time: time.Unix(0, int64(t.at)).UTC()})
}

// settle has the hubs keep one allocation and stop the other, whose edge carries it
// out.
func (t *tale) settle(winner, loser fleet.AllocID, e *told) {
	t.become(winner, fleet.ClientRunning)
	t.allocs[loser].DesiredStatus = fleet.DesiredStop
	t.change(winner, loser)
	t.pass(time.Second)
	t.end(e, loser)
}

// stop has the hubs want an allocation gone, and its edge carry it out.
func (t *tale) stop(e *told, id fleet.AllocID) {
	t.allocs[id].DesiredStatus = fleet.DesiredStop
	t.change(id)
	t.pass(time.Second)
	t.end(e, id)
}

// reap has the hubs forget what is over.
func (t *tale) reap() {
	t.order = slices.DeleteFunc(t.order, func(id fleet.AllocID) bool {
		a := t.allocs[id]
		if a.ClientTerminal() {
			delete(t.allocs, id)
		}
		return a.ClientTerminal()
	})
}

// end has an edge end a task.
func (t *tale) end(e *told, id fleet.AllocID) {
	t.task(e, id, check.TaskStopped)
	t.status(e, id, fleet.ClientComplete, fleet.TaskKilled)
	if e.linked && !e.cut {
		t.send(e)
	}
}

// process tells of an edge's process.
func (t *tale) process(e *told, what string) {
	p := &check.Process{Name: e.name, Edge: true, What: what}
	switch what {
	case check.ProcessStart:
		p.Boot = e.boot()
	case check.ProcessReboot, check.ProcessPowerCut:
		for _, id := range t.order {
			if a := t.allocs[id]; a.NodeID == e.node && !a.Terminal() {
				t.task(e, id, check.TaskVanished)
			}
		}
		e.boots++
		e.booted = t.at
		e.linked = false
	default:
		e.linked = false
	}
	t.see(check.Observation{Process: p})
}

// picture is the fleet at the end.
func (t *tale) finish() []check.Violation {
	return t.m.Finish(t.at, check.Picture{})
}

func (t *tale) only(want check.Invariant) {
	t.tb.Helper()
	t.pass(20 * time.Second)
	found := t.finish()
	if len(found) == 0 {
		t.tb.Fatalf("nothing was found, want %s", want)
	}
	for _, v := range found {
		if v.Invariant != want {
			t.tb.Errorf("want %s alone, found %v\n\t%v", want, v, v.Evidence)
		}
	}
}

func (t *tale) nothing() {
	t.tb.Helper()
	t.pass(20 * time.Second)
	for _, v := range t.finish() {
		t.tb.Errorf("%v\n\t%v", v, v.Evidence)
	}
}
