package schedule

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"skerry/fleet"
)

// places are the names of drawn sites.
var places = []string{"harbour", "mall", "airport", "ship-1", "ship-2", "depot"}

// drawTopology draws the sites, datacenters and pools of the edges. About a fifth of the sites
// have a slow link, and about a fifth a pool of their own.
func (d *drawer) drawTopology() Topology {
	t := NewTopology(d.shape.Hubs, 0)
	sites := slices.Clone(places)
	d.rng.Shuffle(len(sites), func(i, k int) { sites[i], sites[k] = sites[k], sites[i] })
	for left := d.shape.Edges; left > 0; {
		n := min(left, 1+d.rng.IntN(max(1, d.shape.Edges/2)))
		if len(sites) == 1 {
			n = left
		}
		left -= n
		e := Edge{Site: sites[0], Datacenter: pick(d.rng, "", "", "north", "south")}
		sites = sites[1:]
		if d.drawBool(20) {
			e.Link = pick(d.rng, Satellite, Cellular3G)
		}
		if d.drawBool(20) {
			e.Pool = e.Site
			t.Pools = append(t.Pools, Pool{
				Name: e.Pool, Disconnect: pick(d.rng, "", fleet.DisconnectNomad), TTL: pick(d.rng, 0, 0, 20*time.Second, time.Minute),
			})
		}
		t = t.With(n, e)
	}
	return t
}

// jobTemplate is a type of drawn job: the prefix of its name, its relative frequency, and the
// function that draws one.
type jobTemplate struct {
	name   string
	weight int
	draw   func(d *drawer) Job
}

var jobTemplates = []jobTemplate{
	{"till", 4, (*drawer).drawTillJob},
	{"backend", 5, (*drawer).drawBackendJob},
	{"signage", 3, (*drawer).drawSignageJob},
	{"report", 4, (*drawer).drawReportJob},
	{"sensor", 1, (*drawer).drawSensorJob},
}

// drawJobs draws the jobs of the run. Most start with the run, some start later.
func (d *drawer) drawJobs() []Job {
	var jobs []Job
	for i := range d.shape.Jobs {
		t := pickByWeight(d.rng, jobTemplates, func(t jobTemplate) int { return t.weight })
		j := t.draw(d)
		j.ID = fleet.JobID(t.name + "-" + strconv.Itoa(i+1))
		if i > 0 && d.drawBool(15) {
			j.Start = d.drawTime(0, d.s.Length/2)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// drawTillJob draws a service that is bound to one site, with at most one allocation on each
// edge. Some of these jobs get no replacements for lost allocations.
func (d *drawer) drawTillJob() Job {
	site := pick(d.rng, d.s.Topology.Edges...)
	n := 0
	for _, e := range d.s.Topology.Edges {
		if e.Site == site.Site && e.Pool == site.Pool {
			n++
		}
	}
	j := d.drawServiceJob(1 + d.rng.IntN(min(n, 20)))
	j.Site, j.Pool, j.Distinct = site.Site, site.Pool, true
	if d.drawBool(30) {
		j.Disconnect = &fleet.Disconnect{LostAfter: new(d.drawDuration(time.Minute, 24*time.Hour)), Replace: new(false), Reconcile: fleet.ReconcileKeepOriginal}
	}
	return j
}

// drawBackendJob draws a service that may run in all pools, or only in the default pool, and
// whose lost allocations are mostly replaced.
func (d *drawer) drawBackendJob() Job {
	j := d.drawServiceJob(1 + d.rng.IntN(min(len(d.s.Topology.Edges), 20)))
	j.Pool = fleet.AllPools
	if own := d.drawBool(30); own && slices.ContainsFunc(d.s.Topology.Edges, func(e Edge) bool { return e.Pool == "" }) {
		j.Pool = ""
		return j
	}
	j.Disconnect = &fleet.Disconnect{
		LostAfter: new(d.drawDuration(30*time.Second, 20*time.Minute)),
		Reconcile: pick(d.rng, "", fleet.ReconcileKeepOriginal, fleet.ReconcileKeepReplacement, fleet.ReconcileLongestRunning, fleet.ReconcileBestScore),
	}
	if d.drawBool(40) {
		j.Disconnect.Replace = new(d.drawBool(50))
	}
	return j
}

// drawSignageJob draws a service whose tasks stop when their edge has been disconnected for
// long (stop_on_client_after).
func (d *drawer) drawSignageJob() Job {
	j := d.drawServiceJob(1 + d.rng.IntN(min(len(d.s.Topology.Edges), 6)))
	j.Pool = fleet.AllPools
	j.Disconnect = &fleet.Disconnect{StopOnClientAfter: new(d.drawDuration(20*time.Second, 10*time.Minute))}
	return j
}

// drawReportJob draws a batch job. Its tasks end by themselves, some of them with an error.
func (d *drawer) drawReportJob() Job {
	j := Job{
		Type: fleet.JobTypeBatch, Count: 1 + d.rng.IntN(6), Pool: fleet.AllPools,
		Task:       Script{RunFor: d.drawDuration(5*time.Second, 15*time.Minute)},
		Restart:    &fleet.RestartPolicy{Attempts: 2, Interval: 5 * time.Minute, Delay: 5 * time.Second, Mode: fleet.RestartModeFail},
		Reschedule: &fleet.ReschedulePolicy{Unlimited: true, Delay: 10 * time.Second, DelayFunction: fleet.DelayConstant},
	}
	if d.drawBool(25) {
		j.Task.ExitCode = 1
		j.Reschedule = &fleet.ReschedulePolicy{
			Attempts: 1 + d.rng.IntN(2), Interval: 10 * time.Minute, Delay: 10 * time.Second, DelayFunction: fleet.DelayConstant,
		}
	}
	if d.drawBool(60) {
		j.Disconnect = &fleet.Disconnect{LostAfter: new(d.drawDuration(30*time.Second, 20*time.Minute))}
	}
	return j
}

// drawSensorJob draws a service whose tasks end after 10 to 30 minutes and are started again
// by its restart policy.
func (d *drawer) drawSensorJob() Job {
	j := d.drawServiceJob(1 + d.rng.IntN(min(len(d.s.Topology.Edges), 4)))
	j.Pool = fleet.AllPools
	j.Task.RunFor = d.drawDuration(10*time.Minute, 30*time.Minute)
	j.Restart = &fleet.RestartPolicy{Attempts: 3, Interval: time.Minute, Delay: time.Second, Mode: fleet.RestartModeDelay}
	return j
}

// drawServiceJob draws the properties that all services have in common. Its restart and
// reschedule delays are shorter than the time in which a run has to settle.
func (d *drawer) drawServiceJob(count int) Job {
	j := Job{
		Type: fleet.JobTypeService, Count: count,
		CPU: pick(d.rng, 0, 0, 100, 200), MemoryMB: pick(d.rng, 0, 0, 64, 128),
		Restart: &fleet.RestartPolicy{
			Attempts: 1 + d.rng.IntN(5), Interval: pick(d.rng, 30*time.Second, time.Minute), Delay: pick(d.rng, time.Second, 5*time.Second),
			Mode: pick(d.rng, fleet.RestartModeFail, fleet.RestartModeDelay),
		},
		Reschedule: pick(d.rng,
			&fleet.ReschedulePolicy{Unlimited: true, Delay: 5 * time.Second, DelayFunction: fleet.DelayConstant},
			&fleet.ReschedulePolicy{Unlimited: true, Delay: 5 * time.Second, DelayFunction: fleet.DelayExponential, MaxDelay: time.Minute},
			&fleet.ReschedulePolicy{Unlimited: true, Delay: 5 * time.Second, DelayFunction: fleet.DelayFibonacci, MaxDelay: time.Minute}),
	}
	if d.drawBool(30) {
		j.Task.StartDelay = d.drawDuration(time.Second, 20*time.Second)
	}
	if d.drawBool(30) {
		j.Task.KillAfter = d.drawDuration(time.Second, 10*time.Second)
	}
	j.Task.IgnoreSignals = d.drawBool(5)
	return j
}

// stepEvery is the average time between two steps of users.
const stepEvery = 6 * time.Minute

// drawSteps draws the steps of users, in order of time. No step is at a time that a restored
// copy of the hubs would undo: then the desired state at the end would be unknown.
func (d *drawer) drawSteps() []Step {
	if len(d.s.Jobs) == 0 {
		return nil
	}
	var times []time.Duration
	for range min(int(d.s.Length/stepEvery), MaxSteps) {
		at := d.drawTime(0, d.s.Length)
		if len(d.s.Faults) > 0 && d.drawBool(50) { // while something is broken
			f := pick(d.rng, d.s.Faults...)
			at = d.drawTime(f.At, f.End(d.s.Length))
		}
		if !d.isUndoneByRestore(at) {
			times = append(times, at)
		}
	}
	slices.Sort(times)
	stands := map[fleet.JobID]string{}
	var steps []Step
	for _, at := range times {
		j := pick(d.rng, d.s.Jobs...)
		if at <= j.Start || slices.ContainsFunc(steps, func(s Step) bool { return s.Job == j.ID && s.At == at }) {
			continue // the job is not registered yet, or it has another step at that time
		}
		step := Step{At: at, Job: j.ID}
		switch cmp.Or(stands[j.ID], jobRuns) {
		case jobRuns:
			step.Verb = pick(d.rng, Scale, Scale, Update, Update, Touch, Stop, Purge)
		default:
			step.Verb = Run
		}
		if step.Verb == Scale {
			step.Count = d.rng.IntN(j.Count + 1)
		}
		var ps Problems
		stands[j.ID] = step.checkTransition(&ps, 0, cmp.Or(stands[j.ID], jobRuns))
		steps = append(steps, step)
	}
	return steps
}

// isUndoneByRestore reports whether a restored copy of the hubs may lack a change that was
// made at that time.
func (d *drawer) isUndoneByRestore(at time.Duration) bool {
	return slices.ContainsFunc(d.s.Faults, func(f Fault) bool {
		return f.Kind == Restore && f.At-f.Params.Age-time.Minute <= at && at <= f.At+clusterRecovery
	})
}
