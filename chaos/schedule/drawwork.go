package schedule

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"skerry/fleet"
)

// Places that fleets like ours have.
var places = []string{"harbour", "mall", "airport", "ship-1", "ship-2", "depot"}

// drawTopology draws where the edges are: most often at a few sites, some of them behind
// a satellite, now and then in a pool of their own.
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

// jobTemplate is a kind of job that is drawn.
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

// drawTillJob is bound to its site, one on each edge, and nothing takes its place.
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

// drawBackendJob may run anywhere and is replaced.
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

// drawSignageJob may not go on for long without a hub.
func (d *drawer) drawSignageJob() Job {
	j := d.drawServiceJob(1 + d.rng.IntN(min(len(d.s.Topology.Edges), 6)))
	j.Pool = fleet.AllPools
	j.Disconnect = &fleet.Disconnect{StopOnClientAfter: new(d.drawDuration(20*time.Second, 10*time.Minute))}
	return j
}

// drawReportJob ends.
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

// drawSensorJob ends now and then, and starts again.
func (d *drawer) drawSensorJob() Job {
	j := d.drawServiceJob(1 + d.rng.IntN(min(len(d.s.Topology.Edges), 4)))
	j.Pool = fleet.AllPools
	j.Task.RunFor = d.drawDuration(10*time.Minute, 30*time.Minute)
	j.Restart = &fleet.RestartPolicy{Attempts: 3, Interval: time.Minute, Delay: time.Second, Mode: fleet.RestartModeDelay}
	return j
}

// drawServiceJob draws what services have in common. All of their waiting is over within
// the time that a run settles.
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

// stepEvery is how often a user does something.
const stepEvery = 6 * time.Minute

// drawSteps draws what users do. They do nothing that a restored copy would forget: what
// the cluster is to have at the end would be no longer known.
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
			continue // it is not there yet, or nobody could say which of both is wanted
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

// isUndoneByRestore reports whether a restored copy may be older than a time.
func (d *drawer) isUndoneByRestore(at time.Duration) bool {
	return slices.ContainsFunc(d.s.Faults, func(f Fault) bool {
		return f.Kind == Restore && f.At-f.Params.Age-time.Minute <= at && at <= f.At+clusterRecovery
	})
}
