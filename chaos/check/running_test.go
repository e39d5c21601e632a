package check_test

import (
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// becomeBatch has the job of the plant be one of type batch.
func (p *plant) becomeBatch() {
	job := *p.job
	job.Type = fleet.JobTypeBatch
	p.see(check.Observation{Job: &job})
}

// inRunning breaks what is judged by what tasks really do, and by deadlines that nobody has.
func inRunning() []planting {
	stopSoon := &fleet.Disconnect{StopOnClientAfter: ptr(time.Minute)}
	return []planting{
		{"two allocations of a node are given one port", check.NoOvercommit, nil, func(p *plant) {
			p.spoilHub("hub-1", func(a *check.Applied) { a.Effects.Loads[0].Clash = "port 80 (http) is taken" })
			p.change(p.id)
			p.spoil = nil
		}},
		{"a session loses its node by the deadline of an older one", check.Fencing, nil, func(p *plant) {
			heal := p.away()
			p.back(heal)
			p.cut(p.e)
			p.pass(15 * time.Second)
			p.entry("node_status", &check.Effects{Moved: []check.Moved{{Node: p.e.node, Epoch: p.e.epoch - 1, Newest: p.e.epoch, Status: fleet.NodeDisconnected}}})
			p.e.status = fleet.NodeDisconnected
		}},
		{"a plan leaves one unknown on a node that is ready", check.LegalHistory, nil, func(p *plant) {
			p.spoilHub("hub-1", func(a *check.Applied) {
				a.Effects.Nodes = []fleet.Node{{ID: p.e.node, Name: p.e.name, Status: fleet.NodeReady}}
				allocs := []fleet.Alloc{a.Effects.Allocs[0]}
				allocs[0].ClientStatus = fleet.ClientUnknown
				a.Effects.Allocs = allocs
			})
			p.change(p.id)
			p.spoil = nil
			p.change(p.id)
			p.see(check.Observation{Request: &check.Request{What: "stop", Edge: p.e.name}})
		}},
		{"a session has no deadline", check.Initializing, nil, func(p *plant) {
			p.process(p.e, check.ProcessKill)
			p.pass(100 * time.Second)
		}},
		{"a task of a batch job that had succeeded is run again", check.Instances, nil, func(p *plant) {
			p.becomeBatch()
			p.task(p.e, p.id, check.TaskExited)
			p.status(p.e, p.id, fleet.ClientRunning, fleet.TaskTerminated)
			p.pass(10 * time.Second)
			p.task(p.e, p.id, check.TaskStarted)
			p.status(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.send(p.e)
		}},
		{"a task runs for longer than its max_run_duration", check.StopDeadline, nil, func(p *plant) {
			p.job.TaskGroups[0].MaxRunDuration = ptr(2 * time.Minute)
			p.change(p.id)
			p.pass(3 * time.Minute)
		}},
		{"a replacement starts while what it replaces may still end", check.StopDeadline, stopSoon, func(p *plant) {
			p.away()
			p.pass(20 * time.Second)
			p.place(p.job, 0, p.other, p.id)
		}},
	}
}
