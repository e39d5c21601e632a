package check_test

import (
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// becomeBatch has the job of the plant be one of type batch.
func (p *violationHarness) becomeBatch() {
	job := *p.job
	job.Type = fleet.JobTypeBatch
	p.feedObservation(check.Observation{Job: &job})
}

// inRunning has violations that the Monitor finds by the processes of tasks, and by deadlines that are missing.
func inRunning() []violationCase {
	stopSoon := &fleet.Disconnect{StopOnClientAfter: ptr(time.Minute)}
	return []violationCase{
		{"two allocations of a node are given one port", check.NoOvercommit, nil, func(p *violationHarness) {
			p.mutateHub("hub-1", func(a *check.Applied) { a.Effects.Loads[0].Clash = "port 80 (http) is taken" })
			p.commitAllocs(p.id)
			p.mutate = nil
		}},
		{"a session loses its node by the deadline of an older one", check.Fencing, nil, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.reconnectEdge(heal)
			p.cutEdgeLink(p.e)
			p.advanceTime(15 * time.Second)
			p.applyEntry("node_status", &check.Effects{Moved: []check.Moved{{Node: p.e.node, Epoch: p.e.epoch - 1, Newest: p.e.epoch, Status: fleet.NodeDisconnected}}})
			p.e.status = fleet.NodeDisconnected
		}},
		{"a plan leaves one unknown on a node that is ready", check.LegalHistory, nil, func(p *violationHarness) {
			p.mutateHub("hub-1", func(a *check.Applied) {
				a.Effects.Nodes = []fleet.Node{{ID: p.e.node, Name: p.e.name, Status: fleet.NodeReady}}
				allocs := []fleet.Alloc{a.Effects.Allocs[0]}
				allocs[0].ClientStatus = fleet.ClientUnknown
				a.Effects.Allocs = allocs
			})
			p.commitAllocs(p.id)
			p.mutate = nil
			p.commitAllocs(p.id)
			p.feedObservation(check.Observation{Request: &check.Request{What: "stop", Edge: p.e.name}})
		}},
		{"a session has no deadline", check.Initializing, nil, func(p *violationHarness) {
			p.observeProcess(p.e, check.ProcessKill)
			p.advanceTime(100 * time.Second)
		}},
		{"a task of a batch job that had succeeded is run again", check.Instances, nil, func(p *violationHarness) {
			p.becomeBatch()
			p.observeTask(p.e, p.id, check.TaskExited)
			p.journalStatus(p.e, p.id, fleet.ClientRunning, fleet.TaskTerminated)
			p.advanceTime(10 * time.Second)
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.journalStatus(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.sendRows(p.e)
		}},
		{"a task runs for longer than its max_run_duration", check.StopDeadline, nil, func(p *violationHarness) {
			p.job.TaskGroups[0].MaxRunDuration = ptr(2 * time.Minute)
			p.commitAllocs(p.id)
			p.advanceTime(3 * time.Minute)
		}},
		{"a replacement starts while what it replaces may still end", check.StopDeadline, stopSoon, func(p *violationHarness) {
			p.disconnectEdge()
			p.advanceTime(20 * time.Second)
			p.placeRunningAlloc(p.job, 0, p.other, p.id)
		}},
	}
}
