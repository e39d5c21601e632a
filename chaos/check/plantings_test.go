package check_test

import (
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

func onMachines() []violationCase {
	stopSoon := &fleet.Disconnect{StopOnClientAfter: ptr(time.Minute)}
	return []violationCase{
		{"a task is stopped while the link is gone", check.AbsenceStopsNothing, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.endEdgeTask(p.e, p.id)
		}},
		{"a task is stopped when it is given up, where nobody could tell its edge", check.AbsenceStopsNothing, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.commitClientStatus(p.id, fleet.ClientLost)
			p.endEdgeTask(p.e, p.id)
		}},
		{"a task is stopped that no hub mentions", check.AbsenceStopsNothing, nil, func(p *violationHarness) {
			p.endEdgeTask(p.e, p.id)
		}},
		{"the same, on a machine whose clock was moved", check.TrustedTime, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.beginFault("clock-jump", []check.Effect{check.MovesTime}, p.e.name)()
			p.endEdgeTask(p.e, p.id)
		}},
		{"a boot does not bring a task back", check.RebootBringsBack, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.observeProcess(p.e, check.ProcessPowerCut)
			p.advanceTime(3 * time.Second)
			p.observeProcess(p.e, check.ProcessStart)
		}},
		{"a task is started while it runs", check.Instances, nil, func(p *violationHarness) {
			p.observeTask(p.e, p.id, check.TaskStarted)
			p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionTask, Alloc: p.id, Task: "main", Event: &fleet.TaskEvent{Type: fleet.TaskStarted}})
			p.sendRows(p.e)
		}},
		{"two run of a job that allows one, long after healing", check.Instances, nil, func(p *violationHarness) {
			second := p.commitPlacement(p.job, 1, p.other, "")
			p.runAllocation(p.other, second)
			p.advanceTime(70 * time.Second)
		}},
		{"it stops before stop_on_client_after is over", check.StopDeadline, stopSoon, func(p *violationHarness) {
			p.disconnectEdge()
			p.endEdgeTask(p.e, p.id)
		}},
		{"it runs on when stop_on_client_after is over", check.StopDeadline, stopSoon, func(p *violationHarness) {
			p.disconnectEdge()
			p.observeProcess(p.e, check.ProcessKill)
			p.advanceTime(time.Second)
			p.observeProcess(p.e, check.ProcessStart)
			p.e.beat = p.at // it thinks that its boot was a beat
			p.advanceTime(90 * time.Second)
		}},
		{"the same, with a clock that was set back", check.TrustedTime, stopSoon, func(p *violationHarness) {
			p.disconnectEdge()
			p.beginFault("clock-jump", []check.Effect{check.MovesTime}, p.e.name)()
			p.advanceTime(90 * time.Second)
		}},
		{"time goes back within a boot", check.TrustedTime, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.e.rows[len(p.e.rows)-1].Mono = time.Second
			p.sendRows(p.e)
		}},
		{"an allocation comes back to life", check.LegalHistory, nil, func(p *violationHarness) {
			p.stopAllocation(p.e, p.id)
			p.journalStatus(p.e, p.id, fleet.ClientRunning, fleet.TaskRestarting)
			p.e.rows[len(p.e.rows)-1].TaskState = nil
			p.sendRows(p.e)
		}},
		{"a running one is pending again, in the same boot", check.LegalHistory, nil, func(p *violationHarness) {
			p.journalStatus(p.e, p.id, fleet.ClientPending, fleet.TaskRestarting)
			p.sendRows(p.e)
		}},
		{"an edge reports a status that only hubs give", check.LegalHistory, nil, func(p *violationHarness) {
			p.journalStatus(p.e, "another", fleet.ClientLost, fleet.TaskTerminated)
			p.sendRows(p.e)
		}},
		{"a task that is dead is pending again", check.LegalHistory, nil, func(p *violationHarness) {
			p.journalTaskState(fleet.TaskDead)
			p.journalTaskState(fleet.TaskPending)
		}},
		{"a loss of the link follows a loss", check.LegalHistory, nil, func(p *violationHarness) {
			heal := p.cutEdgeLink(p.e)
			p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionDisconnect})
			heal()
		}},
		{"a boot comes again", check.LegalHistory, nil, func(p *violationHarness) {
			heal := p.cutEdgeLink(p.e)
			p.rebootEdge(p.e, p.id)
			p.e.boots--
			heal()
		}},
	}
}

// journalTaskState journals a state of the task of edge-1.
func (p *violationHarness) journalTaskState(state string) {
	p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: p.id, Task: "main", TaskState: &fleet.TaskState{State: state}})
	p.sendRows(p.e)
}

func inDecisions() []violationCase {
	window := &fleet.Disconnect{LostAfter: ptr(10 * time.Minute)}
	return []violationCase{
		{"one that is away is replaced twice", check.OncePerDisconnect, window, func(p *violationHarness) {
			p.disconnectEdge()
			p.commitPlacement(p.job, 0, p.other, p.id)
			p.commitPlacement(p.job, 0, p.other, p.id)
		}},
		{"a return is settled twice", check.OncePerDisconnect, window, func(p *violationHarness) {
			p.disconnectEdge()()
			p.commitClientStatus(p.id, fleet.ClientRunning)
			p.commitClientStatus(p.id, fleet.ClientRunning)
		}},
		{"an absence is concluded twice", check.OncePerDisconnect, window, func(p *violationHarness) {
			heal := p.disconnectEdge()
			p.commitClientStatus(p.id, fleet.ClientUnknown)
			heal()
			p.commitClientStatus(p.id, fleet.ClientRunning)
		}},
		{"it is given up before its window is over", check.TrustedTime, window, func(p *violationHarness) {
			p.disconnectEdge()
			p.advanceTime(time.Minute)
			p.commitClientStatus(p.id, fleet.ClientLost)
		}},
		{"the same, after hubs were put back", check.TrustedTime, window, func(p *violationHarness) {
			p.disconnectEdge()
			p.putBack(p.index)
			p.advanceTime(time.Minute)
			p.commitClientStatus(p.id, fleet.ClientLost)
		}},
		{"an edge is missed too early after hubs were put back", check.TrustedTime, nil, func(p *violationHarness) {
			p.disconnectEdge()()
			p.commitClientStatus(p.id, fleet.ClientRunning)
			p.putBack(p.index)
			p.openSession(p.e)
			p.advanceTime(5 * time.Minute)
			p.missDeadline(p.e)
			p.openSession(p.e)
			p.commitClientStatus(p.id, fleet.ClientRunning)
		}},
		{"a node is given more than it has", check.NoOvercommit, nil, func(p *violationHarness) {
			p.mutateHub("hub-1", func(a *check.Applied) { a.Effects.Loads[0].Used.CPU = 1001 })
			p.commitAllocs(p.id)
			p.mutate = nil
		}},
		{"a hub shows a node that bears more than it has", check.NoOvercommit, nil, func(p *violationHarness) {
			p.allocs[p.id].AllocatedResources.CPU = 1001
			p.observeAll()
			p.allocs[p.id].AllocatedResources.CPU = 10
		}},
		{"one that is back is never settled", check.Settled, window, func(p *violationHarness) {
			p.disconnectEdge()()
			p.advanceTime(70 * time.Second)
		}},
		{"one runs on of a job that was stopped", check.Settled, nil, func(p *violationHarness) {
			stopped := *p.job
			stopped.Stop = true
			p.feedObservation(check.Observation{Job: &stopped})
			p.advanceTime(70 * time.Second)
		}},
		{"an evaluation is pending for ever", check.EvaluationsEnd, nil, func(p *violationHarness) {
			p.applyEntry("job_register", &check.Effects{Evals: []fleet.Evaluation{{ID: "eval", JobID: "job", Status: fleet.EvalPending}}})
			p.advanceTime(40 * time.Second)
		}},
		{"one is pending at the end", check.EvaluationsEnd, nil, func(p *violationHarness) {
			p.last.Hubs = []check.Hub{{Name: "hub-1", Evals: []fleet.Evaluation{{ID: "eval", JobID: "job", Status: fleet.EvalPending}}}}
		}},
		{"a delayed one is pending after its time", check.EvaluationsEnd, nil, func(p *violationHarness) {
			p.applyEntry("plan", &check.Effects{Evals: []fleet.Evaluation{{
				ID: "eval", JobID: "job", Status: fleet.EvalPending, CreateTime: 1, WaitUntil: time.Unix(20, 0),
			}}})
			p.advanceTime(70 * time.Second)
		}},
		{"a job is evaluated while a history comes in", check.FinalState, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.openSession(p.e)
			b := p.unappliedBatch(p.e)
			b.Rows, b.Applied, b.Status = b.Rows[:0], p.e.applied, fleet.NodeInitializing
			p.applyEntry("alloc_updates", &check.Effects{
				Batches: []check.Batch{b}, Evals: []fleet.Evaluation{{ID: "eval", JobID: "job", NodeID: p.e.node, TriggeredBy: fleet.TriggerReconnect}},
			})
			p.evals = nil
			p.sendRows(p.e)
		}},
		{"a job is evaluated twice for one rejoin", check.FinalState, nil, func(p *violationHarness) {
			p.applyEntry("alloc_updates", &check.Effects{
				Batches: []check.Batch{{Node: p.e.node, Epoch: p.e.epoch, Applied: p.e.applied, Status: fleet.NodeReady}},
				Evals: []fleet.Evaluation{
					{ID: "eval1", JobID: "job", NodeID: p.e.node, TriggeredBy: fleet.TriggerReconnect},
					{ID: "eval2", JobID: "job", NodeID: p.e.node, TriggeredBy: fleet.TriggerReconnect},
				},
			})
			p.evals = nil
		}},
		{"a job is evaluated for a failure that a later row takes back", check.FinalState, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			b := p.unappliedBatch(p.e)
			p.e.applied = b.Applied
			p.applyEntry("alloc_updates", &check.Effects{
				Batches:  []check.Batch{b},
				Recorded: []check.Recorded{{Node: p.e.node, Alloc: p.id, Rows: []fleet.Seq{b.First}}},
				Evals:    []fleet.Evaluation{{ID: "eval", JobID: "job", NodeID: p.e.node, TriggeredBy: fleet.TriggerRetryFailedAlloc}},
			})
			p.evals = nil
		}},
	}
}

// applyRollout applies a plan that starts new allocations of a rollout.
func (p *violationHarness) applyRollout(r check.Rollout) {
	r.Deployment, r.Job, r.Group, r.Version = "deployment", "job", "main", 1
	p.applyEntry("plan", &check.Effects{Rollouts: []check.Rollout{r}})
}

// turns are so many allocations that are taken down at a site.
func turns(n int, site string) []check.Turn {
	var ts []check.Turn
	for i := range n {
		ts = append(ts, check.Turn{Alloc: fleet.AllocID(fmt.Sprint("new", i)), Old: fleet.AllocID(fmt.Sprint("old", i)), Site: site, Served: true})
	}
	return ts
}

// stops are so many allocations that are stopped on a node of a site, and not replaced.
func stops(n int, node fleet.NodeID, site string) []check.Turn {
	ts := turns(n, site)
	for i := range ts {
		ts[i].Alloc, ts[i].Node = "", node
	}
	return ts
}

// endDeployment tells of a deployment that is over.
func (p *violationHarness) endDeployment(status, why string, g check.GroupProgress) {
	p.applyEntry("deployment_status", &check.Effects{Ended: []check.Ended{{
		Deployment: "deployment", Job: "job", Status: status, Why: why, Groups: []check.GroupProgress{g},
	}}})
}

// registerVersion tells of a version that a user registers.
func (p *violationHarness) registerVersion(n uint64) {
	p.applyEntry("job_register", &check.Effects{Jobs: []check.JobChange{{Job: "job", Version: n}}})
}

// applyLaunch tells of a child that is launched.
func (p *violationHarness) applyLaunch(l check.Launch) {
	l.Job = "job"
	p.applyEntry("periodic_launch", &check.Effects{Launched: &l})
}

// journalLaunch journals a message about a launch of the allocation of edge-1.
func (p *violationHarness) journalLaunch(message string) {
	p.journalRow(p.e, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: p.id, ClientStatus: fleet.ClientRunning, Message: message})
	p.sendRows(p.e)
}

// stopInWindow has the edge stop its allocation, which may be in the first five minutes of
// an hour, so long after a full one.
func (p *violationHarness) stopInWindow(past time.Duration) {
	p.allocs[p.id].StopWindows = []fleet.UpdateWindow{{Cron: "0 * * * *", Duration: 5 * time.Minute}}
	gone := *p.job
	gone.Stop = true
	p.feedObservation(check.Observation{Job: &gone})
	p.mutate = func(o *check.Observation) {
		if o.Task != nil && o.Task.What == check.TaskStopped {
			o.Task.Wall = time.Date(2030, 1, 1, 10, 0, 0, 0, time.UTC).Add(past)
		}
	}
	p.stopAllocation(p.e, p.id)
}

// showCatalogue has a hub show its catalogue, which changed last with an entry.
func (p *violationHarness) showCatalogue(index fleet.Index, services ...string) {
	a := *p.allocs[p.id]
	if p.ended {
		a.ClientStatus = fleet.ClientFailed
	}
	h := &check.Hub{Name: "hub-1", Catalogue: &check.Catalogue{Index: index}, Allocs: []fleet.Alloc{a}}
	for _, s := range services {
		h.Catalogue.Offers = append(h.Catalogue.Offers, check.Offer{Service: s, Alloc: p.id, Status: fleet.ServiceReachable})
	}
	p.feedObservation(check.Observation{Hub: h})
}

func (p *violationHarness) applyDrain(d check.Drain) {
	d.Node = p.e.node
	p.applyEntry("node_drain", &check.Effects{Drains: []check.Drain{d}})
}

func inRollouts() []violationCase {
	return []violationCase{
		{"more are taken down at once than may", check.MaxParallel, nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 2, Turns: turns(3, "mall")})
		}},
		{"one is taken down while as many start as may", check.MaxParallel, nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.other.node, Site: "mall"}}})
		}},
		{"more are taken down at a site than may", check.SiteBudget, nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: append(turns(1, "port"), turns(2, "mall")...)})
		}},
		{"more are stopped at a site than may, long after a drain of their node", check.SiteBudget, nil, func(p *violationHarness) {
			p.applyDrain(check.Drain{Over: true})
			p.advanceTime(time.Minute)
			p.applyRollout(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: stops(2, p.e.node, "mall")})
		}},
		{"more are replaced at a site than may, after a drain of their node", check.SiteBudget, nil, func(p *violationHarness) {
			p.applyDrain(check.Drain{Over: true})
			p.applyRollout(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: turns(2, "mall")})
		}},
		{"one is taken down at a site where one starts", check.SiteBudget, nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.other.node, Site: "mall"}}})
		}},
		{"one is taken down at a site that has lost one", check.SiteBudget, nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.other.node, Site: "mall", Lost: true}}})
		}},
		{"there are more canaries than the deployment wants", check.Canaries, nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 2, Asked: 1, Wanted: 1, Held: true, Canaries: []check.Part{{Alloc: "a", Node: p.e.node}, {Alloc: "b", Node: p.other.node}}})
		}},
		{"a deployment wants more canaries than its job", check.Canaries, nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 2, Asked: 1, Wanted: 2, Held: true})
		}},
		{"others are taken down before canaries are promoted", check.Canaries, nil, func(p *violationHarness) {
			p.applyRollout(check.Rollout{MaxParallel: 2, Asked: 1, Wanted: 1, Held: true, Turns: turns(1, "mall")})
		}},
		{"canaries are promoted, and nobody asked for it", check.Canaries, nil, func(p *violationHarness) {
			p.applyEntry("deployment_promote", &check.Effects{Promoted: []check.Promotion{{Deployment: "deployment", Job: "job"}}})
		}},
		{"a rollout fails for who is away", check.Deferred, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.advanceTime(time.Minute)
			p.endDeployment(fleet.DeploymentFailed, fleet.DescProgressDeadline, check.GroupProgress{Group: "main", Total: 2, Healthy: 1, Deferred: 1, Away: []fleet.NodeID{p.e.node}})
		}},
		{"a rollout that waits for all succeeds without one", check.Deferred, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.advanceTime(time.Minute)
			p.endDeployment(fleet.DeploymentSuccessful, "", check.GroupProgress{
				Group: "main", WaitFor: fleet.WaitForAll, Total: 2, Healthy: 1, Deferred: 1, Behind: []check.Part{{Alloc: p.id, Node: p.e.node, Away: true}},
			})
		}},
		{"a rollout that waits for a part succeeds with less", check.Deferred, nil, func(p *violationHarness) {
			p.disconnectEdge()
			p.advanceTime(time.Minute)
			p.endDeployment(fleet.DeploymentSuccessful, "", check.GroupProgress{
				Group: "main", WaitFor: "75%", Total: 2, Healthy: 1, Deferred: 1, Behind: []check.Part{{Alloc: p.id, Node: p.e.node, Away: true}},
			})
		}},
		{"a rollout succeeds without one in sight", check.Deferred, nil, func(p *violationHarness) {
			p.endDeployment(fleet.DeploymentSuccessful, "", check.GroupProgress{Group: "main", Total: 2, Healthy: 1, Behind: []check.Part{{Alloc: p.id, Node: p.e.node}}})
		}},
		{"a version between is placed", check.NoneBetween, nil, func(p *violationHarness) {
			p.registerVersion(1)
			p.registerVersion(2)
			p.advanceTime(70 * time.Second)
			p.applyEntry("plan", &check.Effects{Advances: []check.Advance{{Alloc: "new", Node: p.e.node, Job: "job", From: 0, To: 1}}})
		}},
		{"a job is launched twice for one time", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.applyLaunch(check.Launch{Child: "job/periodic-300"})
			p.term++
			p.applyLaunch(check.Launch{Child: "job/periodic-300"})
		}},
		{"an edge launches an allocation twice for one time", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.journalLaunch("launched for 2026-11-30T10:00:00Z")
			p.journalLaunch("launched for 2026-11-30T10:05:00Z")
			p.journalLaunch("launched for 2026-11-30T10:00:00Z, 6m0s late")
		}},
		{"a job is dispatched twice for one token", check.LaunchedOnce, nil, func(p *violationHarness) {
			for _, child := range []fleet.JobID{"errand/dispatch-1", "errand/dispatch-1", "errand/dispatch-2"} {
				p.applyEntry("job_dispatch", &check.Effects{Dispatched: &check.Dispatch{Job: "errand", Child: child, Token: "once"}})
			}
		}},
		{"a job is launched beside its last", check.LaunchedOnce, nil, func(p *violationHarness) {
			p.applyLaunch(check.Launch{Child: "job/periodic-300", Alone: true, Beside: []fleet.JobID{"job/periodic-0"}})
		}},
		{"an edge stops what is to be updated when no window is open", check.Windows, nil, func(p *violationHarness) {
			p.stopInWindow(30 * time.Minute)
		}},
		{"an edge begins to when the window has just closed", check.Windows, nil, func(p *violationHarness) {
			p.stopInWindow(5*time.Minute + 6*time.Second)
		}},
		{"a service comes and nobody is told", check.CatalogueTrue, nil, func(p *violationHarness) {
			p.showCatalogue(5, "shop")
			p.showCatalogue(5, "shop", "till")
		}},
		{"a service is there of what has ended", check.CatalogueTrue, nil, func(p *violationHarness) {
			p.showCatalogue(5, "shop")
			p.ended = true
			p.showCatalogue(5, "shop")
		}},
		{"a drain goes on after its deadline", check.DrainsEnd, nil, func(p *violationHarness) {
			p.applyDrain(check.Drain{Deadline: 30 * time.Second})
			p.advanceTime(time.Minute)
		}},
		{"something is to run on an edge that was drained", check.DrainsEnd, nil, func(p *violationHarness) {
			p.applyDrain(check.Drain{Deadline: 30 * time.Second})
			p.applyDrain(check.Drain{Over: true, Emptied: true, Deadlined: true})
			p.advanceTime(70 * time.Second)
		}},
		{"a deployment goes on for ever", check.DeploymentsEnd, nil, func(p *violationHarness) {
			p.deployments = []fleet.Deployment{{
				ID: "deployment", JobID: "job", Status: fleet.DeploymentRunning, ModifyIndex: 1,
				TaskGroups: map[string]fleet.DeploymentState{"main": {ProgressDeadline: time.Minute, RequireProgressBy: time.Unix(60, 0)}},
			}}
			p.advanceTime(130 * time.Second)
			p.deployments = nil
		}},
	}
}

func inTheLog() []violationCase {
	return []violationCase{
		{"a command has another result on one hub", check.SameEverywhere, nil, func(p *violationHarness) {
			p.mutateHub("hub-3", func(a *check.Applied) { a.Result = "another" })
			p.applyEntry("evals", nil)
			p.mutate = nil
		}},
		{"a hub's state drifts", check.SameEverywhere, nil, func(p *violationHarness) {
			p.mutateHub("hub-2", func(a *check.Applied) {
				if a.State != "" {
					a.State = "another"
				}
			})
			for range 8 {
				p.applyEntry("evals", nil)
			}
			p.mutate = nil
		}},
		{"a snapshot forgets a field", check.SameEverywhere, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Snapshot: &check.Snapshot{Hub: "hub-1", Index: p.index, State: "one", Restored: "another"}})
		}},
		{"a snapshot cannot be read", check.SameEverywhere, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Snapshot: &check.Snapshot{Hub: "hub-1", Index: p.index, State: "one", Failed: "truncated"}})
		}},
		{"hubs apply different commands", check.SameEverywhere, nil, func(p *violationHarness) {
			p.mutateHub("hub-2", func(a *check.Applied) { a.Command = "another" })
			p.applyEntry("evals", nil)
			p.mutate = nil
		}},
		{"a hub applies an entry twice", check.SameEverywhere, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Applied: &check.Applied{Hub: "hub-1", Index: p.index, Term: p.term, Command: fmt.Sprint("c", p.index), Result: fmt.Sprint("r", p.index)}})
		}},
		{"an entry that was applied is another one after a crash", check.AcknowledgedSurvives, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Process: &check.Process{Name: "hub-1", What: check.ProcessKill}})
			p.feedObservation(check.Observation{Process: &check.Process{Name: "hub-1", What: check.ProcessStart}})
			p.feedObservation(check.Observation{Applied: &check.Applied{Hub: "hub-1", Index: p.index, Term: p.term + 1, Command: "another"}})
		}},
		{"a client is told of a registration that no hub applies", check.AcknowledgedSurvives, nil, func(p *violationHarness) {
			p.feedObservation(check.Observation{Operation: &check.Operation{
				Client: "c", Does: check.OpRegister, Job: "other", Tag: "t", Outcome: check.OutcomeOK, Call: p.at,
			}})
		}},
		{"an edge is told of a row that no hub applies", check.AcknowledgedSurvives, nil, func(p *violationHarness) {
			p.journalHealthRow(1)
			p.mutateEdge(func(e *check.Edge) { e.Journal.Acknowledged = e.Journal.Last })
			p.advanceTime(5 * time.Second)
			p.sendRows(p.e)
		}},
		{"what an edge was told goes back", check.NeverBack, nil, func(p *violationHarness) {
			p.mutateEdge(func(e *check.Edge) { e.Journal.Acknowledged-- })
		}},
		{"a read does not see what was written before", check.Linearizable, nil, func(p *violationHarness) {
			p.applyEntry("job_register", &check.Effects{Jobs: []check.JobChange{{Job: "key", Tag: "1"}}})
			for i, o := range []check.Operation{
				{Does: check.OpRegister, Tag: "1", Outcome: check.OutcomeOK},
				{Does: check.OpRead, Outcome: check.OutcomeNotFound},
			} {
				o.Client, o.Job, o.Call = fmt.Sprint(i), "key", p.at
				p.at += time.Second
				p.feedObservation(check.Observation{Operation: &o})
				p.at += time.Second
			}
		}},
		{"edges come back in step", check.Jitter, nil, func(p *violationHarness) {
			names := p.fleetOf(6)
			end := p.beginFault("cut", []check.Effect{check.Severs}, names...)
			for pause := time.Second; pause < 40*time.Second; pause *= 2 {
				for _, name := range names {
					p.feedObservation(check.Observation{Dial: &check.Dial{Edge: name}})
				}
				p.at += pause
			}
			end()
		}},
		{"sockets leak", check.NoLeak, nil, func(p *violationHarness) {
			for i := range 40 {
				p.feedObservation(check.Observation{Usage: &check.Usage{Who: "edge-1", Quiet: true, Files: 10 + 2*i, Goroutines: 30}})
				p.advanceTime(time.Second)
			}
		}},
	}
}

// fleetOf adds edges that only ever dial.
func (p *violationHarness) fleetOf(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("far-%d", i))
		p.feedObservation(check.Observation{Process: &check.Process{Name: names[i], Edge: true, What: check.ProcessStart}})
	}
	return names
}
