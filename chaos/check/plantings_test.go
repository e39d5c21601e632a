package check_test

import (
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

func onMachines() []planting {
	stopSoon := &fleet.Disconnect{StopOnClientAfter: ptr(time.Minute)}
	return []planting{
		{"a task is stopped while the link is gone", check.AbsenceStopsNothing, nil, func(p *plant) {
			p.away()
			p.end(p.e, p.id)
		}},
		{"a task is stopped when it is given up, where nobody could tell its edge", check.AbsenceStopsNothing, nil, func(p *plant) {
			p.away()
			p.allocs[p.id].DesiredStatus = fleet.DesiredStop
			p.conclude(p.id, fleet.ClientLost)
			p.end(p.e, p.id)
		}},
		{"a task is stopped that no hub mentions", check.AbsenceStopsNothing, nil, func(p *plant) {
			p.end(p.e, p.id)
		}},
		{"the same, on a machine whose clock was moved", check.TrustedTime, nil, func(p *plant) {
			p.away()
			p.fault("clock-jump", []check.Effect{check.MovesTime}, p.e.name)()
			p.end(p.e, p.id)
		}},
		{"a boot does not bring a task back", check.RebootBringsBack, nil, func(p *plant) {
			p.away()
			p.process(p.e, check.ProcessPowerCut)
			p.pass(3 * time.Second)
			p.process(p.e, check.ProcessStart)
		}},
		{"a task is started while it runs", check.Instances, nil, func(p *plant) {
			p.task(p.e, p.id, check.TaskStarted)
			p.row(p.e, fleet.Transition{Kind: fleet.TransitionTask, Alloc: p.id, Task: "main", Event: &fleet.TaskEvent{Type: fleet.TaskStarted}})
			p.send(p.e)
		}},
		{"two run of a job that allows one, long after healing", check.Instances, nil, func(p *plant) {
			second := p.plan(p.job, 1, p.other, "")
			p.run(p.other, second)
			p.pass(70 * time.Second)
		}},
		{"it stops before stop_on_client_after is over", check.StopDeadline, stopSoon, func(p *plant) {
			p.away()
			p.end(p.e, p.id)
		}},
		{"it runs on when stop_on_client_after is over", check.StopDeadline, stopSoon, func(p *plant) {
			p.away()
			p.process(p.e, check.ProcessKill)
			p.pass(time.Second)
			p.process(p.e, check.ProcessStart)
			p.e.beat = p.at // it thinks that its boot was a beat
			p.pass(90 * time.Second)
		}},
		{"the same, with a clock that was set back", check.TrustedTime, stopSoon, func(p *plant) {
			p.away()
			p.fault("clock-jump", []check.Effect{check.MovesTime}, p.e.name)()
			p.pass(90 * time.Second)
		}},
		{"time goes back within a boot", check.TrustedTime, nil, func(p *plant) {
			p.health(1)
			p.e.rows[len(p.e.rows)-1].Mono = time.Second
			p.send(p.e)
		}},
		{"an allocation comes back to life", check.LegalHistory, nil, func(p *plant) {
			p.stop(p.e, p.id)
			p.status(p.e, p.id, fleet.ClientRunning, fleet.TaskRestarting)
			p.e.rows[len(p.e.rows)-1].TaskState = nil
			p.send(p.e)
		}},
		{"a running one is pending again, in the same boot", check.LegalHistory, nil, func(p *plant) {
			p.status(p.e, p.id, fleet.ClientPending, fleet.TaskRestarting)
			p.send(p.e)
		}},
		{"a loss of the link follows a loss", check.LegalHistory, nil, func(p *plant) {
			heal := p.cut(p.e)
			p.row(p.e, fleet.Transition{Kind: fleet.TransitionDisconnect})
			heal()
		}},
		{"a boot comes again", check.LegalHistory, nil, func(p *plant) {
			heal := p.cut(p.e)
			p.reboot(p.e, p.id)
			p.e.boots--
			heal()
		}},
	}
}

func inDecisions() []planting {
	window := &fleet.Disconnect{LostAfter: ptr(10 * time.Minute)}
	return []planting{
		{"one that is away is replaced twice", check.OncePerDisconnect, window, func(p *plant) {
			p.away()
			p.plan(p.job, 0, p.other, p.id)
			p.plan(p.job, 0, p.other, p.id)
		}},
		{"a return is settled twice", check.OncePerDisconnect, window, func(p *plant) {
			p.away()()
			p.conclude(p.id, fleet.ClientRunning)
			p.conclude(p.id, fleet.ClientRunning)
		}},
		{"an absence is concluded twice", check.OncePerDisconnect, window, func(p *plant) {
			heal := p.away()
			p.conclude(p.id, fleet.ClientUnknown)
			heal()
			p.conclude(p.id, fleet.ClientRunning)
		}},
		{"it is given up before its window is over", check.TrustedTime, window, func(p *plant) {
			p.away()
			p.pass(time.Minute)
			p.conclude(p.id, fleet.ClientLost)
		}},
		{"the same, after hubs were put back", check.TrustedTime, window, func(p *plant) {
			p.away()
			p.putBack(p.index)
			p.pass(time.Minute)
			p.conclude(p.id, fleet.ClientLost)
		}},
		{"an edge is missed too early after hubs were put back", check.TrustedTime, nil, func(p *plant) {
			p.away()()
			p.conclude(p.id, fleet.ClientRunning)
			p.putBack(p.index)
			p.open(p.e)
			p.pass(5 * time.Minute)
			p.miss(p.e)
			p.open(p.e)
			p.conclude(p.id, fleet.ClientRunning)
		}},
		{"a node is given more than it has", check.NoOvercommit, nil, func(p *plant) {
			p.spoilHub("hub-1", func(a *check.Applied) { a.Effects.Loads[0].Used.CPU = 1001 })
			p.change(p.id)
			p.spoil = nil
		}},
		{"a hub shows a node that bears more than it has", check.NoOvercommit, nil, func(p *plant) {
			p.allocs[p.id].AllocatedResources.CPU = 1001
			p.look()
			p.allocs[p.id].AllocatedResources.CPU = 10
		}},
		{"one that is back is never settled", check.Settled, window, func(p *plant) {
			p.away()()
			p.pass(70 * time.Second)
		}},
		{"one runs on of a job that was stopped", check.Settled, nil, func(p *plant) {
			stopped := *p.job
			stopped.Stop = true
			p.see(check.Observation{Job: &stopped})
			p.pass(70 * time.Second)
		}},
		{"an evaluation is pending for ever", check.EvaluationsEnd, nil, func(p *plant) {
			p.entry("job_register", &check.Effects{Evals: []fleet.Evaluation{{ID: "eval", JobID: "job", Status: fleet.EvalPending}}})
			p.pass(40 * time.Second)
		}},
		{"a delayed one is pending after its time", check.EvaluationsEnd, nil, func(p *plant) {
			p.entry("plan", &check.Effects{Evals: []fleet.Evaluation{{
				ID: "eval", JobID: "job", Status: fleet.EvalPending, CreateTime: 1, WaitUntil: time.Unix(20, 0),
			}}})
			p.pass(70 * time.Second)
		}},
		{"a job is evaluated while a history comes in", check.FinalState, nil, func(p *plant) {
			p.away()
			p.open(p.e)
			b := p.batch(p.e)
			b.Rows, b.Applied, b.Status = b.Rows[:0], p.e.applied, fleet.NodeInitializing
			p.entry("alloc_updates", &check.Effects{
				Batches: []check.Batch{b}, Evals: []fleet.Evaluation{{ID: "eval", JobID: "job", NodeID: p.e.node, TriggeredBy: fleet.TriggerReconnect}},
			})
			p.evals = nil
			p.send(p.e)
		}},
		{"a job is evaluated twice for one rejoin", check.FinalState, nil, func(p *plant) {
			p.entry("alloc_updates", &check.Effects{
				Batches: []check.Batch{{Node: p.e.node, Epoch: p.e.epoch, Applied: p.e.applied, Status: fleet.NodeReady}},
				Evals: []fleet.Evaluation{
					{ID: "eval1", JobID: "job", NodeID: p.e.node, TriggeredBy: fleet.TriggerReconnect},
					{ID: "eval2", JobID: "job", NodeID: p.e.node, TriggeredBy: fleet.TriggerReconnect},
				},
			})
			p.evals = nil
		}},
		{"a job is evaluated for a failure that a later row takes back", check.FinalState, nil, func(p *plant) {
			p.health(1)
			b := p.batch(p.e)
			p.e.applied = b.Applied
			p.entry("alloc_updates", &check.Effects{
				Batches:  []check.Batch{b},
				Recorded: []check.Recorded{{Node: p.e.node, Alloc: p.id, Rows: []fleet.Seq{b.First}}},
				Evals:    []fleet.Evaluation{{ID: "eval", JobID: "job", NodeID: p.e.node, TriggeredBy: fleet.TriggerRetryFailedAlloc}},
			})
			p.evals = nil
		}},
	}
}

// plans tells of a plan that starts allocations of a rollout anew.
func (p *plant) plans(r check.Rollout) {
	r.Deployment, r.Job, r.Group, r.Version = "deployment", "job", "main", 1
	p.entry("plan", &check.Effects{Rollouts: []check.Rollout{r}})
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

// ends tells of a deployment that is over.
func (p *plant) ends(status, why string, g check.Reached) {
	p.entry("deployment_status", &check.Effects{Ended: []check.Ended{{
		Deployment: "deployment", Job: "job", Status: status, Why: why, Groups: []check.Reached{g},
	}}})
}

// version tells of a version that a user registers.
func (p *plant) version(n uint64) {
	p.entry("job_register", &check.Effects{Jobs: []check.JobChange{{Job: "job", Version: n}}})
}

// launch tells of a child that is launched.
func (p *plant) launch(l check.Launch) {
	l.Job = "job"
	p.entry("periodic_launch", &check.Effects{Launched: &l})
}

// stopInWindow has the edge stop its allocation, which may be in the first five minutes of
// an hour, so long after a full one.
func (p *plant) stopInWindow(past time.Duration) {
	p.allocs[p.id].StopWindows = []fleet.UpdateWindow{{Cron: "0 * * * *", Duration: 5 * time.Minute}}
	gone := *p.job
	gone.Stop = true
	p.see(check.Observation{Job: &gone})
	p.spoil = func(o *check.Observation) {
		if o.Task != nil && o.Task.What == check.TaskStopped {
			o.Task.Wall = time.Date(2030, 1, 1, 10, 0, 0, 0, time.UTC).Add(past)
		}
	}
	p.stop(p.e, p.id)
}

// offers has a hub show its catalogue, which changed last with an entry.
func (p *plant) offers(index fleet.Index, services ...string) {
	a := *p.allocs[p.id]
	if p.ended {
		a.ClientStatus = fleet.ClientFailed
	}
	h := &check.Hub{Name: "hub-1", Catalogue: &check.Catalogue{Index: index}, Allocs: []fleet.Alloc{a}}
	for _, s := range services {
		h.Catalogue.Offers = append(h.Catalogue.Offers, check.Offer{Service: s, Alloc: p.id, Status: fleet.ServiceReachable})
	}
	p.see(check.Observation{Hub: h})
}

func (p *plant) drain(d check.Drain) {
	d.Node = p.e.node
	p.entry("node_drain", &check.Effects{Drains: []check.Drain{d}})
}

func inRollouts() []planting {
	return []planting{
		{"more are taken down at once than may", check.MaxParallel, nil, func(p *plant) {
			p.plans(check.Rollout{MaxParallel: 2, Turns: turns(3, "mall")})
		}},
		{"one is taken down while as many start as may", check.MaxParallel, nil, func(p *plant) {
			p.plans(check.Rollout{MaxParallel: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.other.node, Site: "mall"}}})
		}},
		{"more are taken down at a site than may", check.SiteBudget, nil, func(p *plant) {
			p.plans(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: append(turns(1, "port"), turns(2, "mall")...)})
		}},
		{"more are stopped at a site than may, long after a drain of their node", check.SiteBudget, nil, func(p *plant) {
			p.drain(check.Drain{Over: true})
			p.pass(time.Minute)
			p.plans(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: stops(2, p.e.node, "mall")})
		}},
		{"more are replaced at a site than may, after a drain of their node", check.SiteBudget, nil, func(p *plant) {
			p.drain(check.Drain{Over: true})
			p.plans(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: turns(2, "mall")})
		}},
		{"one is taken down at a site where one starts", check.SiteBudget, nil, func(p *plant) {
			p.plans(check.Rollout{MaxParallel: 9, MaxPerSite: 1, Turns: turns(1, "mall"), Starting: []check.Part{{Alloc: "a", Node: p.other.node, Site: "mall"}}})
		}},
		{"there are more canaries than the deployment wants", check.Canaries, nil, func(p *plant) {
			p.plans(check.Rollout{MaxParallel: 2, Asked: 1, Wanted: 1, Held: true, Canaries: []check.Part{{Alloc: "a", Node: p.e.node}, {Alloc: "b", Node: p.other.node}}})
		}},
		{"a deployment wants more canaries than its job", check.Canaries, nil, func(p *plant) {
			p.plans(check.Rollout{MaxParallel: 2, Asked: 1, Wanted: 2, Held: true})
		}},
		{"others are taken down before canaries are promoted", check.Canaries, nil, func(p *plant) {
			p.plans(check.Rollout{MaxParallel: 2, Asked: 1, Wanted: 1, Held: true, Turns: turns(1, "mall")})
		}},
		{"canaries are promoted, and nobody asked for it", check.Canaries, nil, func(p *plant) {
			p.entry("deployment_promote", &check.Effects{Promoted: []check.Promotion{{Deployment: "deployment", Job: "job"}}})
		}},
		{"a rollout fails for who is away", check.Deferred, nil, func(p *plant) {
			p.away()
			p.pass(time.Minute)
			p.ends(fleet.DeploymentFailed, fleet.DescProgressDeadline, check.Reached{Group: "main", Total: 2, Healthy: 1, Deferred: 1, Away: []fleet.NodeID{p.e.node}})
		}},
		{"a rollout that waits for all succeeds without one", check.Deferred, nil, func(p *plant) {
			p.away()
			p.pass(time.Minute)
			p.ends(fleet.DeploymentSuccessful, "", check.Reached{
				Group: "main", WaitFor: fleet.WaitForAll, Total: 2, Healthy: 1, Deferred: 1, Behind: []check.Part{{Alloc: p.id, Node: p.e.node, Away: true}},
			})
		}},
		{"a rollout that waits for a part succeeds with less", check.Deferred, nil, func(p *plant) {
			p.away()
			p.pass(time.Minute)
			p.ends(fleet.DeploymentSuccessful, "", check.Reached{
				Group: "main", WaitFor: "75%", Total: 2, Healthy: 1, Deferred: 1, Behind: []check.Part{{Alloc: p.id, Node: p.e.node, Away: true}},
			})
		}},
		{"a rollout succeeds without one in sight", check.Deferred, nil, func(p *plant) {
			p.ends(fleet.DeploymentSuccessful, "", check.Reached{Group: "main", Total: 2, Healthy: 1, Behind: []check.Part{{Alloc: p.id, Node: p.e.node}}})
		}},
		{"a version between is placed", check.NoneBetween, nil, func(p *plant) {
			p.version(1)
			p.version(2)
			p.pass(70 * time.Second)
			p.entry("plan", &check.Effects{Advances: []check.Advance{{Alloc: "new", Node: p.e.node, Job: "job", From: 0, To: 1}}})
		}},
		{"a job is launched twice for one time", check.LaunchedOnce, nil, func(p *plant) {
			p.launch(check.Launch{Child: "job/periodic-300"})
			p.term++
			p.launch(check.Launch{Child: "job/periodic-300"})
		}},
		{"a job is dispatched twice for one token", check.LaunchedOnce, nil, func(p *plant) {
			for _, child := range []fleet.JobID{"errand/dispatch-1", "errand/dispatch-1", "errand/dispatch-2"} {
				p.entry("job_dispatch", &check.Effects{Dispatched: &check.Dispatch{Job: "errand", Child: child, Token: "once"}})
			}
		}},
		{"a job is launched beside its last", check.LaunchedOnce, nil, func(p *plant) {
			p.launch(check.Launch{Child: "job/periodic-300", Alone: true, Beside: []fleet.JobID{"job/periodic-0"}})
		}},
		{"an edge stops what is to be updated when no window is open", check.Windows, nil, func(p *plant) {
			p.stopInWindow(30 * time.Minute)
		}},
		{"an edge begins to when the window has just closed", check.Windows, nil, func(p *plant) {
			p.stopInWindow(5*time.Minute + 6*time.Second)
		}},
		{"a service comes and nobody is told", check.CatalogueTrue, nil, func(p *plant) {
			p.offers(5, "shop")
			p.offers(5, "shop", "till")
		}},
		{"a service is there of what has ended", check.CatalogueTrue, nil, func(p *plant) {
			p.offers(5, "shop")
			p.ended = true
			p.offers(5, "shop")
		}},
		{"a drain goes on after its deadline", check.DrainsEnd, nil, func(p *plant) {
			p.drain(check.Drain{Deadline: 30 * time.Second})
			p.pass(time.Minute)
		}},
		{"something is to run on an edge that was drained", check.DrainsEnd, nil, func(p *plant) {
			p.drain(check.Drain{Deadline: 30 * time.Second})
			p.drain(check.Drain{Over: true, Emptied: true, Deadlined: true})
			p.pass(70 * time.Second)
		}},
		{"a deployment goes on for ever", check.DeploymentsEnd, nil, func(p *plant) {
			p.deployments = []fleet.Deployment{{
				ID: "deployment", JobID: "job", Status: fleet.DeploymentRunning, ModifyIndex: 1,
				TaskGroups: map[string]fleet.DeploymentState{"main": {ProgressDeadline: time.Minute, RequireProgressBy: time.Unix(60, 0)}},
			}}
			p.pass(130 * time.Second)
			p.deployments = nil
		}},
	}
}

func inTheLog() []planting {
	return []planting{
		{"a command has another result on one hub", check.SameEverywhere, nil, func(p *plant) {
			p.spoilHub("hub-3", func(a *check.Applied) { a.Result = "another" })
			p.entry("evals", nil)
			p.spoil = nil
		}},
		{"a hub's state drifts", check.SameEverywhere, nil, func(p *plant) {
			p.spoilHub("hub-2", func(a *check.Applied) {
				if a.State != "" {
					a.State = "another"
				}
			})
			for range 8 {
				p.entry("evals", nil)
			}
			p.spoil = nil
		}},
		{"a snapshot forgets a field", check.SameEverywhere, nil, func(p *plant) {
			p.see(check.Observation{Snapshot: &check.Snapshot{Hub: "hub-1", Index: p.index, State: "one", Restored: "another"}})
		}},
		{"a snapshot cannot be read", check.SameEverywhere, nil, func(p *plant) {
			p.see(check.Observation{Snapshot: &check.Snapshot{Hub: "hub-1", Index: p.index, State: "one", Failed: "truncated"}})
		}},
		{"hubs apply different commands", check.SameEverywhere, nil, func(p *plant) {
			p.spoilHub("hub-2", func(a *check.Applied) { a.Command = "another" })
			p.entry("evals", nil)
			p.spoil = nil
		}},
		{"a hub applies an entry twice", check.SameEverywhere, nil, func(p *plant) {
			p.see(check.Observation{Applied: &check.Applied{Hub: "hub-1", Index: p.index, Term: p.term, Command: fmt.Sprint("c", p.index), Result: fmt.Sprint("r", p.index)}})
		}},
		{"an entry that was applied is another one after a crash", check.AcknowledgedSurvives, nil, func(p *plant) {
			p.see(check.Observation{Process: &check.Process{Name: "hub-1", What: check.ProcessKill}})
			p.see(check.Observation{Process: &check.Process{Name: "hub-1", What: check.ProcessStart}})
			p.see(check.Observation{Applied: &check.Applied{Hub: "hub-1", Index: p.index, Term: p.term + 1, Command: "another"}})
		}},
		{"a client is told of a registration that no hub applies", check.AcknowledgedSurvives, nil, func(p *plant) {
			p.see(check.Observation{Operation: &check.Operation{
				Client: "c", Does: check.OpRegister, Job: "other", Tag: "t", Outcome: check.OutcomeOK, Call: p.at,
			}})
		}},
		{"an edge is told of a row that no hub applies", check.AcknowledgedSurvives, nil, func(p *plant) {
			p.health(1)
			p.spoilEdge(func(e *check.Edge) { e.Journal.Acknowledged = e.Journal.Last })
			p.pass(5 * time.Second)
			p.send(p.e)
		}},
		{"what an edge was told goes back", check.NeverBack, nil, func(p *plant) {
			p.spoilEdge(func(e *check.Edge) { e.Journal.Acknowledged-- })
		}},
		{"a read does not see what was written before", check.Linearizable, nil, func(p *plant) {
			p.entry("job_register", &check.Effects{Jobs: []check.JobChange{{Job: "key", Tag: "1"}}})
			for i, o := range []check.Operation{
				{Does: check.OpRegister, Tag: "1", Outcome: check.OutcomeOK},
				{Does: check.OpRead, Outcome: check.OutcomeNotFound},
			} {
				o.Client, o.Job, o.Call = fmt.Sprint(i), "key", p.at
				p.at += time.Second
				p.see(check.Observation{Operation: &o})
				p.at += time.Second
			}
		}},
		{"edges come back in step", check.Jitter, nil, func(p *plant) {
			names := p.fleetOf(6)
			end := p.fault("cut", []check.Effect{check.Severs}, names...)
			for pause := time.Second; pause < 40*time.Second; pause *= 2 {
				for _, name := range names {
					p.see(check.Observation{Dial: &check.Dial{Edge: name}})
				}
				p.at += pause
			}
			end()
		}},
		{"sockets leak", check.NoLeak, nil, func(p *plant) {
			for i := range 40 {
				p.see(check.Observation{Usage: &check.Usage{Who: "edge-1", Quiet: true, Files: 10 + 2*i, Goroutines: 30}})
				p.pass(time.Second)
			}
		}},
	}
}

// fleetOf adds edges that only ever dial.
func (p *plant) fleetOf(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("far-%d", i))
		p.see(check.Observation{Process: &check.Process{Name: names[i], Edge: true, What: check.ProcessStart}})
	}
	return names
}
