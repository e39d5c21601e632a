package check_test

import (
	"slices"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// TestExcused has things happen that look like a violation, and are none.
func TestExcused(t *testing.T) {
	stopSoon := &fleet.Disconnect{StopOnClientAfter: ptr(time.Minute)}
	stopSooner := &fleet.Disconnect{StopOnClientAfter: ptr(25 * time.Second)}
	window := &fleet.Disconnect{LostAfter: ptr(30 * time.Second)}
	for _, c := range []struct {
		name string
		d    *fleet.Disconnect
		do   func(p *plant)
	}{
		{"one more is taken down beside what has just come into sight", nil, func(p *plant) {
			p.away()()
			p.conclude(p.id, fleet.ClientRunning)
			p.plans(check.Rollout{MaxParallel: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.e.node, Site: "mall"}}})
		}},
		{"canaries that start while others are taken down", nil, func(p *plant) {
			p.plans(check.Rollout{MaxParallel: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.other.node, Canary: true}}})
		}},
		{"more are taken down than may, since they are drained", nil, func(p *plant) {
			p.entry("drain_step", &check.Effects{Flagged: []fleet.AllocID{"old0", "old1"}})
			p.plans(check.Rollout{MaxParallel: 1, MaxPerSite: 1, Turns: turns(3, "mall")})
		}},
		{"an update stops what is on a node whose drain has just ended", nil, func(p *plant) {
			p.drain(check.Drain{Over: true})
			p.plans(check.Rollout{MaxParallel: 1, MaxPerSite: 1, Turns: stops(3, p.e.node, "mall")})
		}},
		{"an update begins in its window", nil, func(p *plant) { p.stopInWindow(4 * time.Minute) }},
		{"an update begins in its window, and takes a while", nil, func(p *plant) { p.stopInWindow(5*time.Minute + 3*time.Second) }},
		{"a service stays whose stop waits for a window", nil, func(p *plant) {
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.allocs[p.id].StopWindows = []fleet.UpdateWindow{{Cron: "0 * * * *", Duration: 5 * time.Minute}}
			p.offers(5, "shop")
			p.allocs[p.id].DesiredStatus, p.allocs[p.id].StopWindows = fleet.DesiredRun, nil
		}},
		{"a service comes, and who follows the catalogue is told", nil, func(p *plant) {
			p.offers(5, "shop")
			p.offers(6, "shop", "till")
		}},
		{"canaries that somebody promoted", nil, func(p *plant) {
			p.see(check.Observation{Request: &check.Request{What: check.AskPromote, Job: "job"}})
			p.entry("deployment_promote", &check.Effects{Promoted: []check.Promotion{{Deployment: "deployment", Job: "job"}}})
		}},
		{"a rollout that fails for one who has just gone", nil, func(p *plant) {
			heal := p.away()
			p.ends(fleet.DeploymentFailed, fleet.DescProgressDeadline, check.Reached{Group: "main", Total: 2, Healthy: 1, Deferred: 1, Away: []fleet.NodeID{p.e.node}})
			heal()
			p.conclude(p.id, fleet.ClientRunning)
		}},
		{"a rollout that fails for one that is within reach", nil, func(p *plant) {
			p.ends(fleet.DeploymentFailed, fleet.DescProgressDeadline, check.Reached{Group: "main", Total: 3, Healthy: 1, Deferred: 1, Away: []fleet.NodeID{"node-9"}})
		}},
		{"a rollout that succeeds without one who is away", nil, func(p *plant) {
			heal := p.away()
			p.pass(time.Minute)
			p.ends(fleet.DeploymentSuccessful, "", check.Reached{
				Group: "main", Total: 2, Healthy: 1, Deferred: 1, Behind: []check.Part{{Alloc: p.id, Node: p.e.node, Away: true}},
			})
			heal()
			p.conclude(p.id, fleet.ClientRunning)
		}},
		{"a rollout that succeeds without those whose site's budget one holds who is away", nil, func(p *plant) {
			heal := p.away()
			p.pass(time.Minute)
			p.ends(fleet.DeploymentSuccessful, "", check.Reached{
				Group: "main", Total: 3, Healthy: 1, Deferred: 1, PerSite: 1, Away: []fleet.NodeID{p.e.node}, AwaySites: []string{"mall"},
				Behind: []check.Part{{Alloc: "b", Node: p.other.node, Site: "mall"}},
			})
			heal()
			p.conclude(p.id, fleet.ClientRunning)
		}},
		{"a version that was the newest when its plan was made", nil, func(p *plant) {
			p.version(1)
			p.pass(time.Minute)
			p.version(2)
			p.entry("plan", &check.Effects{Advances: []check.Advance{{Alloc: "new", Node: p.e.node, Job: "job", From: 0, To: 1}}})
		}},
		{"the first version of a job that was purged", nil, func(p *plant) {
			p.version(7)
			p.entry("job_deregister", &check.Effects{Jobs: []check.JobChange{{Job: "job", Stop: true}}})
			p.version(0)
			p.pass(70 * time.Second)
			p.entry("plan", &check.Effects{Advances: []check.Advance{{Alloc: "new", Node: p.e.node, Job: "job", From: 0, To: 1}}})
		}},
		{"a launch that hubs forgot when they were put back", nil, func(p *plant) {
			p.launch(check.Launch{Child: "job/periodic-300"})
			p.putBack(p.index - 1)
			p.launch(check.Launch{Child: "job/periodic-300"})
		}},
		{"a launch beside others of a job that allows it", nil, func(p *plant) {
			p.launch(check.Launch{Child: "job/periodic-300", Beside: []fleet.JobID{"job/periodic-0"}})
		}},
		{"a drain that nobody can end, for no hub leads", nil, func(p *plant) {
			p.drain(check.Drain{Deadline: 30 * time.Second})
			end := p.fault("majority-cut", []check.Effect{check.Severs}, p.hubs...)
			p.pass(time.Minute)
			end()
			p.drain(check.Drain{Over: true})
		}},
		{"a drain that was called off", nil, func(p *plant) {
			p.drain(check.Drain{Deadline: 30 * time.Second})
			p.drain(check.Drain{Over: true})
			p.pass(2 * time.Minute)
		}},
		{"a deployment that waits for a person", nil, func(p *plant) {
			p.deployments = []fleet.Deployment{{
				ID: "deployment", JobID: "job", Status: fleet.DeploymentRunning, ModifyIndex: 1,
				TaskGroups: map[string]fleet.DeploymentState{"main": {DesiredCanaries: 1, ProgressDeadline: time.Minute, RequireProgressBy: time.Unix(60, 0)}},
			}}
			p.pass(5 * time.Minute)
			p.deployments = nil
		}},
		{"a stop that was told just before the link went", nil, func(p *plant) {
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.change(p.id)
			heal := p.cut(p.e)
			p.end(p.e, p.id)
			heal()
		}},
		{"a stop that a hub told of while it was being put back", nil, func(p *plant) {
			heal := p.away()
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.change(p.id)
			over := p.fault("restore", []check.Effect{check.Rewinds}, "hub-1")
			p.end(p.e, p.id)
			over()
			heal()
		}},
		{"a stop that a person on site asked for", nil, func(p *plant) {
			heal := p.cut(p.e)
			p.see(check.Observation{Request: &check.Request{Edge: p.e.name, Alloc: p.id, What: "stop"}})
			p.end(p.e, p.id)
			heal()
		}},
		{"a stop after stop_on_client_after", stopSoon, func(p *plant) {
			heal := p.away()
			p.pass(45 * time.Second)
			p.end(p.e, p.id)
			heal()
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"the same, a little early, since its agent was killed and forgot the last beats", stopSoon, func(p *plant) {
			heal := p.away()
			p.process(p.e, check.ProcessKill)
			p.pass(time.Second)
			p.process(p.e, check.ProcessStart)
			p.pass(35 * time.Second)
			p.end(p.e, p.id)
			heal()
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"the same, and a hub is back before it has ended", stopSoon, func(p *plant) {
			heal := p.away()
			p.pass(45 * time.Second)
			heal()
			p.pass(2 * time.Second)
			p.end(p.e, p.id)
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"the same, soon after a longer silence", stopSooner, func(p *plant) {
			heal := p.away()
			p.pass(12 * time.Second)
			p.end(p.e, p.id)
			p.pass(20 * time.Second)
			heal()
			p.conclude(p.id, fleet.ClientComplete)
			next := p.place(p.register("next", 1, stopSooner), 0, p.e, "")
			heal = p.cut(p.e)
			p.pass(26 * time.Second)
			heal()
			p.pass(2 * time.Second)
			p.end(p.e, next)
			p.conclude(next, fleet.ClientComplete)
		}},
		{"the same across a boot, by its machine's own time", stopSoon, func(p *plant) {
			heal := p.away()
			p.pass(20 * time.Second)
			p.process(p.e, check.ProcessPowerCut)
			p.pass(10 * time.Minute) // the machine is off: that does not count
			p.e.beat += 10 * time.Minute
			p.startMachine(fleet.ClientPending, fleet.TaskLostAtReboot)
			p.task(p.e, p.id, check.TaskStarted)
			p.status(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.pass(25 * time.Second)
			p.end(p.e, p.id)
			heal()
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"the answer of an agent that was killed, seen after its end", nil, func(p *plant) {
			p.spoilEdge(func(e *check.Edge) { e.AgentSince = 1 })
			p.pass(time.Second)
			p.process(p.e, check.ProcessKill)
			p.process(p.e, check.ProcessStart)
			p.pass(time.Second)
			p.spoilEdge(func(e *check.Edge) { e.AgentSince, e.Journal.Acknowledged = 2, 0 })
			p.pass(time.Second)
		}},
		{"a boot in the middle of such a stop, with a hub in sight again", stopSoon, func(p *plant) {
			heal := p.away()
			p.pass(46 * time.Second)
			p.back(heal)
			p.pass(time.Second)
			p.process(p.e, check.ProcessReboot)
			p.pass(3 * time.Second)
			p.startMachine(fleet.ClientComplete, "")
			p.open(p.e)
			p.send(p.e)
			p.pass(30 * time.Second)
		}},
		{"given up when its window is over, and stopped when its edge is back", window, func(p *plant) {
			heal := p.away()
			p.pass(40 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.conclude(p.id, fleet.ClientLost)
			heal()
			p.pass(time.Second)
			p.end(p.e, p.id)
		}},
		{"a task of a group that ends with another one", nil, func(p *plant) {
			p.see(check.Observation{Task: &check.Task{Edge: p.e.name, Alloc: p.id, Task: "side", What: check.TaskStarted}})
			p.see(check.Observation{Task: &check.Task{Edge: p.e.name, Alloc: p.id, Task: "side", What: check.TaskExited}})
			for _, event := range []string{fleet.TaskStarted, fleet.TaskTerminated} {
				p.row(p.e, fleet.Transition{Kind: fleet.TransitionTask, Alloc: p.id, Task: "side", Event: &fleet.TaskEvent{Type: event}})
			}
			p.end(p.e, p.id)
		}},
		{"a session that takes over, with rows that it has yet to send", nil, func(p *plant) {
			p.health(1)
			p.open(p.e)
			p.send(p.e)
		}},
		{"rows that are sent again", nil, func(p *plant) {
			b := p.batch(p.e)
			b.First, b.Rows = 1, append(b.Rows, p.e.rows...)
			p.entry("alloc_updates", &check.Effects{Batches: []check.Batch{b}})
		}},
		{"a refusal that ends its session", nil, func(p *plant) {
			p.entry("alloc_updates", &check.Effects{Batches: []check.Batch{{
				Node: p.e.node, Epoch: p.e.epoch - 1, First: 9, Code: fleet.CodeStaleEpoch, Applied: p.e.applied, Status: fleet.NodeReady,
			}}})
			p.open(p.e)
		}},
		{"a journal that was damaged and is rebuilt", nil, func(p *plant) {
			heal := p.cut(p.e)
			p.process(p.e, check.ProcessKill)
			end := p.fault("bit-flip", []check.Effect{check.Damages}, p.e.name)
			p.process(p.e, check.ProcessStart)
			end()
			p.e.rows, p.e.looked = p.e.rows[:p.e.applied], 0
			p.task(p.e, p.id, check.TaskExited) // and nobody there knows of it
			p.pass(time.Minute)
			p.row(p.e, fleet.Transition{Kind: fleet.TransitionGap, Message: "the journal was damaged"})
			p.row(p.e, fleet.Transition{Kind: fleet.TransitionDisconnect})
			heal()
			p.run(p.e, p.id)
		}},
		{"an allocation that is lost again, since a damaged journal had its edge take it up again", window, func(p *plant) {
			heal := p.away()
			p.pass(45 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.conclude(p.id, fleet.ClientLost)
			p.process(p.e, check.ProcessKill)
			end := p.fault("torn-page", []check.Effect{check.Damages}, p.e.name)
			p.process(p.e, check.ProcessStart)
			end()
			p.pass(30 * time.Second)
			older := *p.allocs[p.id]
			older.AllocStates = slices.Clone(older.AllocStates)
			p.conclude(p.id, fleet.ClientLost)
			heal()
			p.pass(2 * allLimits.Heal)
			p.putBackApart(&check.Hub{Name: "hub-1", Allocs: []fleet.Alloc{older}}, p.index-1, p.index) // the last entry is applied again
		}},
		{"a node that bears too much, since its damaged journal had its edge take up what had ended", nil, func(p *plant) {
			p.process(p.e, check.ProcessKill)
			end := p.fault("bit-flip", []check.Effect{check.Damages}, p.e.name)
			p.process(p.e, check.ProcessStart)
			end()
			p.allocs[p.id].AllocatedResources.CPU = 1001
			p.spoilHub("hub-1", func(a *check.Applied) { a.Effects.Loads[0].Used.CPU = 1001 })
			p.change(p.id)
			p.spoil = nil
			p.look()
			p.allocs[p.id].AllocatedResources.CPU = 10
			p.pass(2 * allLimits.Heal)
			p.putBack(p.index) // the same entry is applied again, long after the damage
		}},
		{"a history with a damage in it that is applied again", nil, func(p *plant) {
			p.row(p.e, fleet.Transition{Kind: fleet.TransitionGap, Message: "the journal was damaged"})
			p.row(p.e, fleet.Transition{Kind: fleet.TransitionAgent}) // of a moment before the rows that were lost
			p.e.rows[len(p.e.rows)-1].Mono = 0
			end := p.fault("torn-page", []check.Effect{check.Damages}, p.e.name)
			p.send(p.e)
			end()
			p.pass(time.Second)
			p.putBack(p.index)
			p.open(p.e)
		}},
		{"hubs that were put back", nil, func(p *plant) {
			applied, index, order := p.e.applied, p.index, len(p.order)
			p.health(1)
			p.send(p.e)
			p.stop(p.e, p.id)
			p.place(p.job, 0, p.other, "")
			end := p.fault("restore", []check.Effect{check.Rewinds, check.Halts})
			p.index, p.order, p.e.applied = index, p.order[:order], applied
			p.allocs[p.id].DesiredStatus, p.allocs[p.id].ClientStatus = fleet.DesiredRun, fleet.ClientRunning
			p.e.linked = false
			end()
			p.open(p.e)
			p.send(p.e)
		}},
		{"a task whose end a hub still wants while the others are put back", nil, func(p *plant) {
			end := p.fault("restore", []check.Effect{check.Rewinds, check.Halts})
			p.end(p.e, p.id)
			p.e.linked = false
			end()
			p.open(p.e)
			p.send(p.e)
		}},
		{"a task that ends in the moment in which its machine goes off", nil, func(p *plant) {
			p.process(p.e, check.ProcessReboot)
			p.task(p.e, p.id, check.TaskExited)
			p.pass(5 * time.Second)
			p.startMachine(fleet.ClientPending, "")
			p.pass(time.Second)
			p.task(p.e, p.id, check.TaskStarted)
			p.status(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.open(p.e)
			p.send(p.e)
			p.pass(30 * time.Second)
		}},
		{"what was begun in its window, and written down on a disk that is slow", nil, func(p *plant) {
			end := p.fault("slow-disk", []check.Effect{check.Chokes}, p.e.name)
			p.stopInWindow(5*time.Minute + 6*time.Second)
			end()
		}},
		{"hubs that were put back, and apply at once what they decided over minutes", window, func(p *plant) {
			heal := p.away()
			p.pass(40 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.conclude(p.id, fleet.ClientLost)
			heal()
			p.end(p.e, p.id)
			p.putBack(p.index)
			p.open(p.e)
		}},
		{"hubs that were put back to snapshots of different ages", window, func(p *plant) {
			older := p.hub("hub-2", false)
			heal := p.away()
			p.pass(40 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.conclude(p.id, fleet.ClientLost)
			lost := p.index
			p.place(p.job, 0, p.other, p.id)
			p.putBackApart(older, lost, p.index)
			p.pass(5 * time.Second)
			heal()
			p.end(p.e, p.id)
			p.send(p.e)
		}},
		{"journals that are looked at before hubs which were put back apply anything", nil, func(p *plant) {
			for range 2 {
				p.e.linked = false
				p.row(p.e, fleet.Transition{Kind: fleet.TransitionDisconnect})
				p.putBack(p.index)
				p.open(p.e)
				p.row(p.e, fleet.Transition{Kind: fleet.TransitionReconnect})
				p.send(p.e)
				p.pass(2 * time.Second)
			}
		}},
		{"a window that counts from when the node went, not from the plan that says so", window, func(p *plant) {
			heal := p.cut(p.e)
			p.pass(15 * time.Second)
			p.e.status = fleet.NodeDisconnected
			p.entry("node_status", &check.Effects{Moved: []check.Moved{{Node: p.e.node, Epoch: p.e.epoch, Newest: p.e.epoch, Status: p.e.status}}})
			p.pass(6 * time.Second)
			p.conclude(p.id, fleet.ClientUnknown)
			p.pass(25 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.conclude(p.id, fleet.ClientLost)
			heal()
			p.end(p.e, p.id)
		}},
		{"a window that is over soon after hubs were put back", window, func(p *plant) {
			p.away()
			p.pass(20 * time.Second)
			p.putBack(p.index)
			p.pass(12 * time.Second)
			p.conclude(p.id, fleet.ClientLost)
		}},
		{"a window that is over soon after hubs were put back to a snapshot", window, func(p *plant) {
			p.away()
			p.pass(20 * time.Second)
			p.fault("restore", []check.Effect{check.Rewinds, check.Halts})()
			p.pass(12 * time.Second)
			p.conclude(p.id, fleet.ClientLost)
		}},
		{"the same, later by a beat that was underway when the link was cut one way", stopSoon, func(p *plant) {
			p.e.duration = 25 * time.Second
			for p.at-p.e.beat < 24*time.Second {
				p.pass(time.Second)
			}
			end := p.fault("cut", []check.Effect{check.Severs}, p.e.name)
			p.e.cut = true
			p.at += 600 * time.Millisecond
			p.e.beat = p.at
			p.look()
			p.pass(30 * time.Second)
			p.e.linked = false
			p.pass(32 * time.Second)
			p.end(p.e, p.id)
			p.back(end)
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"a task that runs on after stop_on_client_after, while its driver is dead", stopSoon, func(p *plant) {
			heal := p.away()
			p.pass(30 * time.Second)
			end := p.fault("driver-dead", []check.Effect{check.EndsTasks}, p.e.name)
			p.pass(time.Minute)
			end()
			p.pass(time.Second)
			p.end(p.e, p.id)
			heal()
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"a session that ends as late as it may, and a stop after stop_on_client_after", stopSoon, func(p *plant) {
			end := p.fault("offline", []check.Effect{check.Impairs}, p.e.name)
			p.e.cut = true
			p.pass(37 * time.Second)
			p.e.linked = false
			p.pass(24 * time.Second)
			p.end(p.e, p.id)
			p.back(end)
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"a stop that is told in a session whose first answer no look has seen", nil, func(p *plant) {
			heal := p.cut(p.e)
			p.pass(10 * time.Second)
			heal()
			p.e.linked = false
			p.look()
			p.at += 3500 * time.Millisecond
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.change(p.id)
			p.end(p.e, p.id)
			p.e.linked = true
			p.send(p.e)
		}},
		{"a stop that is told in a session of which no look has seen anything", nil, func(p *plant) {
			heal := p.cut(p.e)
			p.pass(10 * time.Second)
			heal()
			p.at += 3500 * time.Millisecond
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.change(p.id)
			p.end(p.e, p.id)
		}},
		{"an early stop by an agent that was killed while its disk took nothing", stopSoon, func(p *plant) {
			end := p.fault("disk-full", []check.Effect{check.Chokes}, p.e.name)
			heal := p.cut(p.e)
			p.process(p.e, check.ProcessKill)
			p.process(p.e, check.ProcessStart)
			p.pass(20 * time.Second)
			end()
			p.end(p.e, p.id)
			p.pass(10 * time.Second)
			heal()
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"the same, by an agent that is back before the task has ended", stopSoon, func(p *plant) {
			end := p.fault("disk-full", []check.Effect{check.Chokes}, p.e.name)
			heal := p.cut(p.e)
			p.process(p.e, check.ProcessKill)
			p.process(p.e, check.ProcessStart)
			p.pass(20 * time.Second)
			end()
			heal()
			p.pass(time.Second)
			p.end(p.e, p.id)
			p.conclude(p.id, fleet.ClientComplete)
		}},
		{"a task that a session brings, before any look has seen its first answer", stopSoon, func(p *plant) {
			p.bringLate(stopSoon, 50*time.Second, 2*time.Minute, 0)
		}},
		{"the same, from a session that was committed long before its answer came through", stopSoon, func(p *plant) {
			p.bringLate(stopSoon, 4*time.Minute, 5*time.Minute, time.Minute)
		}},
		{"a registration that is answered while hubs are being put back", nil, func(p *plant) {
			end := p.fault("restore", []check.Effect{check.Rewinds, check.Halts})
			p.see(check.Observation{Operation: &check.Operation{
				Client: "c", Does: check.OpRegister, Job: "job", Tag: "gone", Outcome: check.OutcomeOK, Call: p.at,
			}})
			p.pass(10 * time.Second)
			end()
		}},
		{"an entry that a hub applies again after its start", nil, func(p *plant) {
			p.see(check.Observation{Process: &check.Process{Name: "hub-2", What: check.ProcessKill}})
			p.see(check.Observation{Process: &check.Process{Name: "hub-2", What: check.ProcessStart}})
			first := slices.IndexFunc(p.all, func(o check.Observation) bool { return o.Applied != nil && o.Applied.Hub == "hub-2" })
			again := *p.all[first].Applied
			again.Effects = nil
			p.see(check.Observation{Applied: &again})
		}},
		{"a hub that took a snapshot", nil, func(p *plant) {
			hubs := p.hubs
			p.hubs = hubs[:2]
			p.entry("evals", nil)
			p.entry("evals", nil)
			p.hubs = hubs
			p.entry("evals", nil)
		}},
		{"edges that come back with jitter", nil, func(p *plant) {
			names := p.fleetOf(6)
			end := p.fault("cut", []check.Effect{check.Severs}, names...)
			for round := range 6 {
				for i, name := range names {
					p.at += time.Duration(100*(1+i*(round+3)%7)) * time.Millisecond
					p.see(check.Observation{Dial: &check.Dial{Edge: name}})
				}
				p.at += time.Second << round
			}
			end()
		}},
		{"usage that goes up and down", nil, func(p *plant) {
			for i := range 40 {
				p.see(check.Observation{Usage: &check.Usage{Who: "edge-1", Quiet: true, Files: 10 + 30*(i%3/2), Goroutines: 30 + i%7}})
				p.see(check.Observation{Usage: &check.Usage{Who: "edge-1", Files: 1000, Goroutines: 1000}})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlant(t, c.d)
			c.do(p)
			p.nothing()
		})
	}
}

// startMachine boots edge-1's machine, whose agent then tells the status of its allocation.
func (p *plant) startMachine(status, event string) {
	p.e.booted = p.at
	p.process(p.e, check.ProcessStart)
	p.row(p.e, fleet.Transition{Kind: fleet.TransitionAgent})
	p.status(p.e, p.id, status, event)
}

// bringLate has an edge that was cut off start what was placed on it meanwhile, before it
// is seen to have a link again: its last answered beat is silent ago, and its session was
// committed underway before it starts.
func (p *plant) bringLate(d *fleet.Disconnect, away, silent, underway time.Duration) {
	heal := p.cut(p.e)
	p.pass(time.Second)
	late := p.plan(p.register("late", 1, d), 0, p.e, "")
	p.pass(55 * time.Second)
	p.end(p.e, p.id)
	p.pass(away)
	heal()
	p.e.linked, p.e.beat = false, p.e.beat-silent
	p.pass(underway)
	p.task(p.e, late, check.TaskStarted)
	p.pass(2 * time.Second)
	p.e.linked, p.e.beat = true, p.at
	p.status(p.e, late, fleet.ClientPending, fleet.TaskReceived)
	p.status(p.e, late, fleet.ClientRunning, fleet.TaskStarted)
	p.send(p.e)
}
