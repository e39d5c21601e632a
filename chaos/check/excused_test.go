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
		do   func(p *violationHarness)
	}{
		{"the time of a stop on site is none of a max_run_duration", nil, func(p *violationHarness) {
			p.job.TaskGroups[0].MaxRunDuration = ptr(2 * time.Minute)
			p.commitAllocs(p.id)
			p.stopOnSite(true)
			p.advanceTime(3 * time.Minute)
			p.startOnSite()
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.journalStatus(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.sendRows(p.e)
			p.advanceTime(20 * time.Second)
		}},
		{"the end of a task that a damaged journal does not know any more", nil, func(p *violationHarness) {
			p.beginFault("bit-flip", []check.Effect{check.Damages}, p.e.name)()
			p.advanceTime(time.Minute)
			p.observeTask(p.e, p.id, check.TaskExited)
			p.advanceTime(time.Minute)
		}},
		{"it runs on after a session that nobody saw", stopSoon, func(p *violationHarness) {
			p.e.linked = false
			p.advanceTime(50 * time.Second)
			p.openSession(p.e)
			p.e.linked = false
			p.advanceTime(65 * time.Second)
			p.e.linked = true
		}},
		{"a node is ready with the head of its session, and a newer row follows", nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.journalHealthRow(1)
			p.openSession(p.e)
			p.journalHealthRow(2)
			b := p.unappliedBatch(p.e)
			b.Rows, b.Applied = b.Rows[:len(b.Rows)-1], b.Applied-1
			p.applyBatch(p.e, b)
			p.sendRows(p.e)
			p.commitClientStatus(p.id, fleet.ClientRunning)
		}},
		{"a hub was seen before a node became ready, and is not seen any more", nil, func(p *violationHarness) {
			p.disconnectEdge()()
			p.e.status = fleet.NodeInitializing
			p.advanceTime(time.Second)
			p.mutate = func(o *check.Observation) { o.Hub = nil }
			p.e.status = fleet.NodeReady
			p.commitClientStatus(p.id, fleet.ClientRunning)
			p.advanceTime(time.Minute)
			p.mutate = nil
		}},
		{"one more is taken down beside what has just come into sight", nil, func(p *violationHarness) {
			p.disconnectEdge()()
			p.commitClientStatus(p.id, fleet.ClientRunning)
			p.applyRollout(check.Rollout{MaxParallel: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.e.node, Site: "mall"}}})
		}},
		{"one is taken down while another one, which was lost with its node, is not replaced yet", nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 1, MaxPerSite: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.other.node, Site: "port", Lost: true}}})
		}},
		{"canaries that start while others are taken down", nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.other.node, Canary: true}}})
		}},
		{"more are taken down than may, since they are drained", nil, func(p *violationHarness) {
			p.applyEntry("drain_step", &check.Effects{Flagged: []fleet.AllocID{"old0", "old1"}})
			p.applyRollout(check.Rollout{MaxParallel: 1, MaxPerSite: 1, Turns: turns(3, "mall")})
		}},
		{"an update stops what is on a node whose drain has just ended", nil, func(p *violationHarness) {
			p.applyDrain(check.Drain{Over: true})
			p.applyRollout(check.Rollout{MaxParallel: 1, MaxPerSite: 1, Turns: stops(3, p.e.node, "mall")})
		}},
		{"one is taken down beside one whose node has just begun to take work", nil, func(p *violationHarness) {
			p.applyEntry("node_register", &check.Effects{Described: p.e.node})
			p.applyRollout(check.Rollout{MaxParallel: 1, MaxPerSite: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.e.node, Site: "mall"}}})
		}},
		{"an update begins in its window", nil, func(p *violationHarness) { p.stopInWindow(4 * time.Minute) }},
		{"an update begins in its window, and takes a while", nil, func(p *violationHarness) { p.stopInWindow(5*time.Minute + 3*time.Second) }},
		{"a service stays whose stop waits for a window", nil, func(p *violationHarness) {
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.allocs[p.id].StopWindows = []fleet.UpdateWindow{{Cron: "0 * * * *", Duration: 5 * time.Minute}}
			p.showCatalogue(5, "shop")
			p.allocs[p.id].DesiredStatus, p.allocs[p.id].StopWindows = fleet.DesiredRun, nil
		}},
		{"a service comes, and who follows the catalogue is told", nil, func(p *violationHarness) {
			p.showCatalogue(5, "shop")
			p.showCatalogue(6, "shop", "till")
		}},
		{"canaries that somebody promoted", nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Request: &check.Request{What: check.AskPromote, Job: "job"}})
			p.applyEntry("deployment_promote", &check.Effects{Promoted: []check.Promotion{{Deployment: "deployment", Job: "job"}}})
		}},
		{"a rollout that fails for one who has just gone", nil, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.endDeployment(fleet.DeploymentFailed, fleet.DescProgressDeadline, check.GroupProgress{Group: "main", Total: 2, Healthy: 1, Deferred: 1, Away: []fleet.NodeID{p.e.node}})
			heal()
			p.commitClientStatus(p.id, fleet.ClientRunning)
		}},
		{"a rollout that fails for one that is within reach", nil, func(p *violationHarness) {
			p.endDeployment(fleet.DeploymentFailed, fleet.DescProgressDeadline, check.GroupProgress{Group: "main", Total: 3, Healthy: 1, Deferred: 1, Away: []fleet.NodeID{"node-9"}})
		}},
		{"a rollout that succeeds without one who is away", nil, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(time.Minute)
			p.endDeployment(fleet.DeploymentSuccessful, "", check.GroupProgress{
				Group: "main", Total: 2, Healthy: 1, Deferred: 1, Behind: []check.Part{{Alloc: p.id, Node: p.e.node, Away: true}},
			})
			heal()
			p.commitClientStatus(p.id, fleet.ClientRunning)
		}},
		{"a rollout that succeeds without those whose site's budget one holds who is away", nil, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(time.Minute)
			p.endDeployment(fleet.DeploymentSuccessful, "", check.GroupProgress{
				Group: "main", Total: 3, Healthy: 1, Deferred: 1, PerSite: 1, Away: []fleet.NodeID{p.e.node}, AwaySites: []string{"mall"},
				Behind: []check.Part{{Alloc: "b", Node: p.other.node, Site: "mall"}},
			})
			heal()
			p.commitClientStatus(p.id, fleet.ClientRunning)
		}},
		{"a rollout that succeeds without those whose site's budget one held who has just come back", nil, func(p *violationHarness) {
			p.disconnectEdge()()
			p.commitClientStatus(p.id, fleet.ClientRunning)
			p.endDeployment(fleet.DeploymentSuccessful, "", check.GroupProgress{
				Group: "main", Total: 3, Healthy: 1, PerSite: 1,
				Behind: []check.Part{{Alloc: p.id, Node: p.e.node, Site: "mall"}, {Alloc: "b", Node: p.other.node, Site: "mall"}},
			})
		}},
		{"an old evaluation in an entry that a hub replays while no hub shows its state", nil, func(p *violationHarness) {
			p.applyEntry("job_register", &check.Effects{Evals: []fleet.Evaluation{{ID: "eval", JobID: "job", Status: fleet.EvalPending}}})
			hubs := p.hubs
			p.hubs = nil
			p.advanceTime(70 * time.Second)
			p.hubs, p.evals = hubs, nil
			p.advanceTime(time.Second)
		}},
		{"a version that was the newest when its plan was made", nil, func(p *violationHarness) {
			p.registerVersion(1)
			p.advanceTime(time.Minute)
			p.registerVersion(2)
			p.applyEntry("plan", &check.Effects{Advances: []check.Advance{{Alloc: "new", Node: p.e.node, Job: "job", From: 0, To: 1}}})
		}},
		{"the first version of a job that was purged", nil, func(p *violationHarness) {
			p.registerVersion(7)
			p.applyEntry("job_deregister", &check.Effects{Jobs: []check.JobChange{{Job: "job", Stop: true}}})
			p.registerVersion(0)
			p.advanceTime(70 * time.Second)
			p.applyEntry("plan", &check.Effects{Advances: []check.Advance{{Alloc: "new", Node: p.e.node, Job: "job", From: 0, To: 1}}})
		}},
		{"a launch that hubs forgot when they were put back", nil, func(p *violationHarness) {
			p.applyLaunch(check.Launch{Child: "job/periodic-300"})
			p.putBack(p.index - 1)
			p.applyLaunch(check.Launch{Child: "job/periodic-300"})
		}},
		{"a launch by an edge whose journal was damaged since", nil, func(p *violationHarness) {
			p.journalLaunch("launched for 2026-11-30T10:00:00Z")
			p.beginFault("torn-page", []check.Effect{check.Damages}, p.e.name)()
			p.journalLaunch("launched for 2026-11-30T10:00:00Z")
		}},
		{"a task that is pending again after a launch by its edge", nil, func(p *violationHarness) {
			p.journalTaskState(fleet.TaskDead)
			p.journalLaunch("the launch for 2026-11-30T10:00:00Z is over: complete")
			p.journalTaskState(fleet.TaskPending)
		}},
		{"a launch beside others of a job that allows it", nil, func(p *violationHarness) {
			p.applyLaunch(check.Launch{Child: "job/periodic-300", Beside: []fleet.JobID{"job/periodic-0"}})
		}},
		{"a drain that nobody can end, for no hub leads", nil, func(p *violationHarness) {
			p.applyDrain(check.Drain{Deadline: 30 * time.Second})
			end := p.beginFault("majority-cut", []check.Effect{check.Severs}, p.hubs...)
			p.advanceTime(time.Minute)
			end()
			p.applyDrain(check.Drain{Over: true})
		}},
		{"a drain that was called off", nil, func(p *violationHarness) {
			p.applyDrain(check.Drain{Deadline: 30 * time.Second})
			p.applyDrain(check.Drain{Over: true})
			p.advanceTime(2 * time.Minute)
		}},
		{"a deployment that waits for a person", nil, func(p *violationHarness) {
			p.deployments = []fleet.Deployment{{
				ID: "deployment", JobID: "job", Status: fleet.DeploymentRunning, ModifyIndex: 1,
				TaskGroups: map[string]fleet.DeploymentState{"main": {DesiredCanaries: 1, ProgressDeadline: time.Minute, RequireProgressBy: time.Unix(60, 0)}},
			}}
			p.advanceTime(5 * time.Minute)
			p.deployments = nil
		}},
		{"a stop that was told just before the link went", nil, func(p *violationHarness) {
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitAllocs(p.id)
			heal := p.cutEdgeLink(p.e)
			p.endEdgeTask(p.e, p.id)
			heal()
		}},
		{"a stop that a hub told of while it was being put back", nil, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitAllocs(p.id)
			over := p.beginFault("restore", []check.Effect{check.Rewinds}, "hub-1")
			p.endEdgeTask(p.e, p.id)
			over()
			heal()
		}},
		{"a stop that a person on site asked for", nil, func(p *violationHarness) {
			heal := p.cutEdgeLink(p.e)
			p.feedObservation(check.Observation{Request: &check.Request{Edge: p.e.name, Alloc: p.id, What: "stop"}})
			p.endEdgeTask(p.e, p.id)
			heal()
		}},
		{"a stop after stop_on_client_after", stopSoon, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(45 * time.Second)
			p.endEdgeTask(p.e, p.id)
			heal()
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"the same, a little early, since its agent was killed and forgot the last beats", stopSoon, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.observeProcess(p.e, check.ProcessKill)
			p.advanceTime(time.Second)
			p.observeProcess(p.e, check.ProcessStart)
			p.advanceTime(35 * time.Second)
			p.endEdgeTask(p.e, p.id)
			heal()
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"the same, and a hub is back before it has ended", stopSoon, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(45 * time.Second)
			heal()
			p.advanceTime(2 * time.Second)
			p.endEdgeTask(p.e, p.id)
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"the same, soon after a longer silence", stopSooner, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(12 * time.Second)
			p.endEdgeTask(p.e, p.id)
			p.advanceTime(20 * time.Second)
			heal()
			p.commitClientStatus(p.id, fleet.ClientComplete)
			next := p.placeRunningAlloc(p.registerJob("next", 1, stopSooner), 0, p.e, "")
			heal = p.cutEdgeLink(p.e)
			p.advanceTime(26 * time.Second)
			heal()
			p.advanceTime(2 * time.Second)
			p.endEdgeTask(p.e, next)
			p.commitClientStatus(next, fleet.ClientComplete)
		}},
		{"the same across a boot, by its machine's own time", stopSoon, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(20 * time.Second)
			p.observeProcess(p.e, check.ProcessPowerCut)
			p.advanceTime(10 * time.Minute) // the machine is off: that does not count
			p.e.beat += 10 * time.Minute
			p.startMachine(fleet.ClientPending, fleet.TaskLostAtReboot)
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.journalStatus(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.advanceTime(25 * time.Second)
			p.endEdgeTask(p.e, p.id)
			heal()
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"the answer of an agent that was killed, seen after its end", nil, func(p *violationHarness) {
			p.mutateEdge(func(e *check.Edge) { e.AgentSince = 1 })
			p.advanceTime(time.Second)
			p.observeProcess(p.e, check.ProcessKill)
			p.observeProcess(p.e, check.ProcessStart)
			p.advanceTime(time.Second)
			p.mutateEdge(func(e *check.Edge) { e.AgentSince, e.Journal.Acknowledged = 2, 0 })
			p.advanceTime(time.Second)
		}},
		{"a boot in the middle of such a stop, with a hub in sight again", stopSoon, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(46 * time.Second)
			p.reconnectEdge(heal)
			p.advanceTime(time.Second)
			p.observeProcess(p.e, check.ProcessReboot)
			p.advanceTime(3 * time.Second)
			p.startMachine(fleet.ClientComplete, "")
			p.openSession(p.e)
			p.sendRows(p.e)
			p.advanceTime(30 * time.Second)
		}},
		{"given up when its window is over, and stopped when its edge is back", window, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(40 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitClientStatus(p.id, fleet.ClientLost)
			heal()
			p.advanceTime(time.Second)
			p.endEdgeTask(p.e, p.id)
		}},
		{"a task of a group that ends with another one", nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Task: &check.Task{Edge: p.e.name, Alloc: p.id, Task: "side", What: check.TaskStarted}})
			p.feedObservation(check.Observation{Task: &check.Task{Edge: p.e.name, Alloc: p.id, Task: "side", What: check.TaskExited}})
			for _, event := range []string{fleet.TaskStarted, fleet.TaskTerminated} {
				p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionTask, Alloc: p.id, Task: "side", Event: &fleet.TaskEvent{Type: event}})
			}
			p.endEdgeTask(p.e, p.id)
		}},
		{"a session that takes over, with rows that it has yet to send", nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.openSession(p.e)
			p.sendRows(p.e)
		}},
		{"rows that are sent again", nil, func(p *violationHarness) {
			b := p.unappliedBatch(p.e)
			b.First, b.Rows = 1, append(b.Rows, p.e.rows...)
			p.applyEntry("alloc_updates", &check.Effects{Batches: []check.Batch{b}})
		}},
		{"a refusal that ends its session", nil, func(p *violationHarness) {
			p.applyEntry("alloc_updates", &check.Effects{Batches: []check.Batch{{
				Node: p.e.node, Epoch: p.e.epoch - 1, First: 9, Code: fleet.CodeStaleEpoch, Applied: p.e.applied, Status: fleet.NodeReady,
			}}})
			p.openSession(p.e)
		}},
		{"a journal that was damaged and is rebuilt", nil, func(p *violationHarness) {
			heal := p.cutEdgeLink(p.e)
			p.observeProcess(p.e, check.ProcessKill)
			end := p.beginFault("bit-flip", []check.Effect{check.Damages}, p.e.name)
			p.observeProcess(p.e, check.ProcessStart)
			end()
			p.e.rows, p.e.looked = p.e.rows[:p.e.applied], 0
			p.observeTask(p.e, p.id, check.TaskExited) // and nobody there knows of it
			p.advanceTime(time.Minute)
			p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionGap, Message: "the journal was damaged"})
			p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionDisconnect})
			heal()
			p.runAllocation(p.e, p.id)
		}},
		{"an allocation that is lost again, since a damaged journal had its edge take it up again", window, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(45 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitClientStatus(p.id, fleet.ClientLost)
			p.observeProcess(p.e, check.ProcessKill)
			end := p.beginFault("torn-page", []check.Effect{check.Damages}, p.e.name)
			p.observeProcess(p.e, check.ProcessStart)
			end()
			p.advanceTime(30 * time.Second)
			older := *p.allocs[p.id]
			older.AllocStates = slices.Clone(older.AllocStates)
			p.commitClientStatus(p.id, fleet.ClientLost)
			heal()
			p.advanceTime(2 * allLimits.Heal)
			p.putBackApart(&check.Hub{Name: "hub-1", Allocs: []fleet.Alloc{older}}, p.index-1, p.index) // the last entry is applied again
		}},
		{"a node that bears too much, since its damaged journal had its edge take up what had ended", nil, func(p *violationHarness) {
			p.observeProcess(p.e, check.ProcessKill)
			end := p.beginFault("bit-flip", []check.Effect{check.Damages}, p.e.name)
			p.observeProcess(p.e, check.ProcessStart)
			end()
			p.allocs[p.id].AllocatedResources.CPU = 1001
			p.mutateHub("hub-1", func(a *check.Applied) { a.Effects.Loads[0].Used.CPU = 1001 })
			p.commitAllocs(p.id)
			p.mutate = nil
			p.observeAll()
			p.allocs[p.id].AllocatedResources.CPU = 10
			p.advanceTime(2 * allLimits.Heal)
			p.putBack(p.index) // the same entry is applied again, long after the damage
		}},
		{"a history with a damage in it that is applied again", nil, func(p *violationHarness) {
			p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionGap, Message: "the journal was damaged"})
			p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionAgent}) // of a moment before the rows that were lost
			p.e.rows[len(p.e.rows)-1].Mono = 0
			end := p.beginFault("torn-page", []check.Effect{check.Damages}, p.e.name)
			p.sendRows(p.e)
			end()
			p.advanceTime(time.Second)
			p.putBack(p.index)
			p.openSession(p.e)
		}},
		{"hubs that were put back", nil, func(p *violationHarness) {
			applied, index, order := p.e.applied, p.index, len(p.order)
			p.journalHealthRow(1)
			p.sendRows(p.e)
			p.stopAllocation(p.e, p.id)
			p.placeRunningAlloc(p.job, 0, p.other, "")
			end := p.beginFault("restore", []check.Effect{check.Rewinds, check.Halts})
			p.index, p.order, p.e.applied = index, p.order[:order], applied
			p.allocs[p.id].DesiredStatus, p.allocs[p.id].ClientStatus = fleet.DesiredRun, fleet.ClientRunning
			p.e.linked = false
			end()
			p.openSession(p.e)
			p.sendRows(p.e)
		}},
		{"a task whose end a hub still wants while the others are put back", nil, func(p *violationHarness) {
			end := p.beginFault("restore", []check.Effect{check.Rewinds, check.Halts})
			p.endEdgeTask(p.e, p.id)
			p.e.linked = false
			end()
			p.openSession(p.e)
			p.sendRows(p.e)
		}},
		{"a stop that comes through as a session ends that was cut off", nil, func(p *violationHarness) {
			end := p.beginFault("cut", []check.Effect{check.Severs}, p.e.name)
			p.e.cut = true
			p.at += 14 * time.Second // nobody looks at the edge
			p.missDeadline(p.e)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitAllocs(p.id)
			p.at += 2 * time.Second
			end()
			p.e.linked = false
			p.feedObservation(check.Observation{Edge: p.e.edgeView(p.at)})
			p.endEdgeTask(p.e, p.id)
			p.e.cut = false
			p.openSession(p.e)
			p.sendRows(p.e)
		}},
		{"a stop that is told in a session that nobody sees", nil, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(30 * time.Second)
			heal()
			p.e.linked = false
			p.advanceTime(10 * time.Second)
			p.feedObservation(check.Observation{Dial: &check.Dial{Edge: p.e.name}})
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitAllocs(p.id)
			p.endEdgeTask(p.e, p.id)
			p.openSession(p.e)
			p.sendRows(p.e)
		}},
		{"a start that was under way when somebody on site stopped it", nil, func(p *violationHarness) {
			p.job.TaskGroups[0].Tasks[0].Config = map[string]any{"start_delay": "10s"}
			p.observeTask(p.e, p.id, check.TaskExited)
			p.askOnSite(check.AskStop)
			p.journalHold()
			p.askOnSite(check.StopRecorded)
			p.allocs[p.id].Held = &fleet.Hold{Reason: "smoke"}
			p.at += 9 * time.Second
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.observeTask(p.e, p.id, check.TaskStopped)
			p.journalStatus(p.e, p.id, fleet.ClientPending, fleet.TaskKilled)
			p.sendRows(p.e)
		}},
		{"a task that was stopped on site as its machine went down, and is started long after the boot", nil, func(p *violationHarness) {
			p.askOnSite(check.AskStop)
			p.journalHold()
			p.askOnSite(check.StopRecorded)
			p.observeProcess(p.e, check.ProcessReboot)
			p.at += 3 * time.Second
			p.startMachine(fleet.ClientPending, "")
			p.openSession(p.e)
			p.sendRows(p.e)
			p.at += 19 * time.Second // nobody has looked since
			p.startOnSite()
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.journalStatus(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.sendRows(p.e)
			p.advanceTime(30 * time.Second)
		}},
		{"a task that ends in the moment in which its machine goes off", nil, func(p *violationHarness) {
			p.observeProcess(p.e, check.ProcessReboot)
			p.observeTask(p.e, p.id, check.TaskExited)
			p.advanceTime(5 * time.Second)
			p.startMachine(fleet.ClientPending, "")
			p.advanceTime(time.Second)
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.journalStatus(p.e, p.id, fleet.ClientRunning, fleet.TaskStarted)
			p.openSession(p.e)
			p.sendRows(p.e)
			p.advanceTime(30 * time.Second)
		}},
		{"what was begun in its window, and written down on a disk that is slow", nil, func(p *violationHarness) {
			end := p.beginFault("slow-disk", []check.Effect{check.Chokes}, p.e.name)
			p.stopInWindow(5*time.Minute + 6*time.Second)
			end()
		}},
		{"hubs that were put back, and apply at once what they decided over minutes", window, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(40 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitClientStatus(p.id, fleet.ClientLost)
			heal()
			p.endEdgeTask(p.e, p.id)
			p.putBack(p.index)
			p.openSession(p.e)
		}},
		{"hubs that were put back to snapshots of different ages", window, func(p *violationHarness) {
			older := p.hubView("hub-2", false)
			heal := p.disconnectEdge()
			p.advanceTime(40 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitClientStatus(p.id, fleet.ClientLost)
			lost := p.index
			p.placeRunningAlloc(p.job, 0, p.other, p.id)
			p.putBackApart(older, lost, p.index)
			p.advanceTime(5 * time.Second)
			heal()
			p.endEdgeTask(p.e, p.id)
			p.sendRows(p.e)
		}},
		{"journals that are looked at before hubs which were put back apply anything", nil, func(p *violationHarness) {
			for range 2 {
				p.e.linked = false
				p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionDisconnect})
				p.putBack(p.index)
				p.openSession(p.e)
				p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionReconnect})
				p.sendRows(p.e)
				p.advanceTime(2 * time.Second)
			}
		}},
		{"a window that counts from when the node went, not from the plan that says so", window, func(p *violationHarness) {
			heal := p.cutEdgeLink(p.e)
			p.advanceTime(15 * time.Second)
			p.e.status = fleet.NodeDisconnected
			p.applyEntry("node_status", &check.Effects{Moved: []check.Moved{{Node: p.e.node, Epoch: p.e.epoch, Newest: p.e.epoch, Status: p.e.status}}})
			p.advanceTime(6 * time.Second)
			p.commitClientStatus(p.id, fleet.ClientUnknown)
			p.advanceTime(25 * time.Second)
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitClientStatus(p.id, fleet.ClientLost)
			heal()
			p.endEdgeTask(p.e, p.id)
		}},
		{"a window that is over soon after hubs were put back", window, func(p *violationHarness) {
			p.disconnectEdge()
			p.advanceTime(20 * time.Second)
			p.putBack(p.index)
			p.advanceTime(12 * time.Second)
			p.commitClientStatus(p.id, fleet.ClientLost)
		}},
		{"a window that is over soon after hubs were put back to a snapshot", window, func(p *violationHarness) {
			p.disconnectEdge()
			p.advanceTime(20 * time.Second)
			p.beginFault("restore", []check.Effect{check.Rewinds, check.Halts})()
			p.advanceTime(12 * time.Second)
			p.commitClientStatus(p.id, fleet.ClientLost)
		}},
		{"the same, later by a beat that was underway when the link was cut one way", stopSoon, func(p *violationHarness) {
			p.e.duration = 25 * time.Second
			for p.at-p.e.beat < 24*time.Second {
				p.advanceTime(time.Second)
			}
			end := p.beginFault("cut", []check.Effect{check.Severs}, p.e.name)
			p.e.cut = true
			p.at += 600 * time.Millisecond
			p.e.beat = p.at
			p.observeAll()
			p.advanceTime(30 * time.Second)
			p.e.linked = false
			p.advanceTime(32 * time.Second)
			p.endEdgeTask(p.e, p.id)
			p.reconnectEdge(end)
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"a task that runs on after stop_on_client_after, while its driver is dead", stopSoon, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(30 * time.Second)
			end := p.beginFault("driver-dead", []check.Effect{check.EndsTasks}, p.e.name)
			p.advanceTime(time.Minute)
			end()
			p.advanceTime(time.Second)
			p.endEdgeTask(p.e, p.id)
			heal()
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"a slow stop by stop_on_client_after that began when its driver was back, and the link too", stopSoon, func(p *violationHarness) {
			p.job.TaskGroups[0].Tasks[0].KillTimeout = 40 * time.Second
			p.registerVersion(0)
			p.commitAllocs(p.id)
			heal := p.disconnectEdge()
			p.advanceTime(30 * time.Second)
			end := p.beginFault("driver-dead", []check.Effect{check.EndsTasks}, p.e.name)
			p.advanceTime(40 * time.Second)
			heal()
			p.advanceTime(10 * time.Second)
			end()
			p.advanceTime(38 * time.Second)
			p.endEdgeTask(p.e, p.id)
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"a stop by stop_on_client_after that a slow disk makes late, after another heartbeat was answered", stopSoon, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.advanceTime(45 * time.Second)
			p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: p.id, Message: "no hub for 1m0s", StoppedOnEdge: true})
			p.advanceTime(time.Second)
			heal()
			p.advanceTime(40 * time.Second)
			p.endEdgeTask(p.e, p.id)
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"a session that ends as late as it may, and a stop after stop_on_client_after", stopSoon, func(p *violationHarness) {
			end := p.beginFault("offline", []check.Effect{check.Impairs}, p.e.name)
			p.e.cut = true
			p.advanceTime(37 * time.Second)
			p.e.linked = false
			p.advanceTime(24 * time.Second)
			p.endEdgeTask(p.e, p.id)
			p.reconnectEdge(end)
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"a stop that is told in a session whose first answer no look has seen", nil, func(p *violationHarness) {
			heal := p.cutEdgeLink(p.e)
			p.advanceTime(10 * time.Second)
			heal()
			p.e.linked = false
			p.observeAll()
			p.at += 3500 * time.Millisecond
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitAllocs(p.id)
			p.endEdgeTask(p.e, p.id)
			p.e.linked = true
			p.sendRows(p.e)
		}},
		{"a stop that is told in a session of which no look has seen anything", nil, func(p *violationHarness) {
			heal := p.cutEdgeLink(p.e)
			p.advanceTime(10 * time.Second)
			heal()
			p.at += 3500 * time.Millisecond
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitAllocs(p.id)
			p.endEdgeTask(p.e, p.id)
		}},
		{"an early stop by an agent that was killed while its disk took nothing", stopSoon, func(p *violationHarness) {
			end := p.beginFault("disk-full", []check.Effect{check.Chokes}, p.e.name)
			heal := p.cutEdgeLink(p.e)
			p.observeProcess(p.e, check.ProcessKill)
			p.observeProcess(p.e, check.ProcessStart)
			p.advanceTime(20 * time.Second)
			end()
			p.endEdgeTask(p.e, p.id)
			p.advanceTime(10 * time.Second)
			heal()
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"the same, by an agent that is back before the task has ended", stopSoon, func(p *violationHarness) {
			end := p.beginFault("disk-full", []check.Effect{check.Chokes}, p.e.name)
			heal := p.cutEdgeLink(p.e)
			p.observeProcess(p.e, check.ProcessKill)
			p.observeProcess(p.e, check.ProcessStart)
			p.advanceTime(20 * time.Second)
			end()
			heal()
			p.advanceTime(time.Second)
			p.endEdgeTask(p.e, p.id)
			p.commitClientStatus(p.id, fleet.ClientComplete)
		}},
		{"a task that a session brings, before any look has seen its first answer", stopSoon, func(p *violationHarness) {
			p.bringLate(stopSoon, 50*time.Second, 2*time.Minute, 0)
		}},
		{"the same, from a session that was committed long before its answer came through", stopSoon, func(p *violationHarness) {
			p.bringLate(stopSoon, 4*time.Minute, 5*time.Minute, time.Minute)
		}},
		{"a registration that is answered while hubs are being put back", nil, func(p *violationHarness) {
			end := p.beginFault("restore", []check.Effect{check.Rewinds, check.Halts})
			p.feedObservation(check.Observation{Operation: &check.Operation{
				Client: "c", Does: check.OpRegister, Job: "job", Tag: "gone", Outcome: check.OutcomeOK, Call: p.at,
			}})
			p.advanceTime(10 * time.Second)
			end()
		}},
		{"an entry that a hub applies again after its start", nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Process: &check.Process{Name: "hub-2", What: check.ProcessKill}})
			p.feedObservation(check.Observation{Process: &check.Process{Name: "hub-2", What: check.ProcessStart}})
			first := slices.IndexFunc(p.all, func(o check.Observation) bool { return o.Applied != nil && o.Applied.Hub == "hub-2" })
			again := *p.all[first].Applied
			again.Effects = nil
			p.feedObservation(check.Observation{Applied: &again})
		}},
		{"a hub that took a snapshot", nil, func(p *violationHarness) {
			hubs := p.hubs
			p.hubs = hubs[:2]
			p.applyEntry("evals", nil)
			p.applyEntry("evals", nil)
			p.hubs = hubs
			p.applyEntry("evals", nil)
		}},
		{"edges that come back with jitter", nil, func(p *violationHarness) {
			names := p.fleetOf(6)
			end := p.beginFault("cut", []check.Effect{check.Severs}, names...)
			for round := range 6 {
				for i, name := range names {
					p.at += time.Duration(100*(1+i*(round+3)%7)) * time.Millisecond
					p.feedObservation(check.Observation{Dial: &check.Dial{Edge: name}})
				}
				p.at += time.Second << round
			}
			end()
		}},
		{"usage that goes up and down", nil, func(p *violationHarness) {
			for i := range 40 {
				p.feedObservation(check.Observation{Usage: &check.Usage{Who: "edge-1", Quiet: true, Files: 10 + 30*(i%3/2), Goroutines: 30 + i%7}})
				p.feedObservation(check.Observation{Usage: &check.Usage{Who: "edge-1", Files: 1000, Goroutines: 1000}})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newViolationHarness(t, c.d)
			c.do(p)
			p.mustFindNothing()
		})
	}
}

// startMachine boots edge-1's machine, whose agent then tells the status of its allocation.
func (p *violationHarness) startMachine(status, event string) {
	p.e.booted = p.at
	p.observeProcess(p.e, check.ProcessStart)
	p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionAgent})
	p.journalStatus(p.e, p.id, status, event)
}

// bringLate has an edge that was cut off start an allocation that was placed on it meanwhile, before the edge is seen
// to have a link again: its last answered beat is silent ago, and its session was committed underway before the start.
func (p *violationHarness) bringLate(d *fleet.Disconnect, away, silent, underway time.Duration) {
	heal := p.cutEdgeLink(p.e)
	p.advanceTime(time.Second)
	late := p.commitPlacement(p.registerJob("late", 1, d), 0, p.e, "")
	p.advanceTime(55 * time.Second)
	p.endEdgeTask(p.e, p.id)
	p.advanceTime(away)
	heal()
	p.e.linked, p.e.beat = false, p.e.beat-silent
	p.advanceTime(underway)
	p.observeTask(p.e, late, check.TaskStarted)
	p.advanceTime(2 * time.Second)
	p.e.linked, p.e.beat = true, p.at
	p.journalStatus(p.e, late, fleet.ClientPending, fleet.TaskReceived)
	p.journalStatus(p.e, late, fleet.ClientRunning, fleet.TaskStarted)
	p.sendRows(p.e)
}
