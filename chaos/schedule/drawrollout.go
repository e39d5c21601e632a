package schedule

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"skerry/fleet"
)

// rolloutStream separates the random numbers of the later additions to a drawn schedule from
// the first ones, so that these stay the same for each seed.
const rolloutStream = 0x2011

// addVirtualOnlyParts adds rollouts, a system job, a periodic job, drains, update windows, services, resource claims, actions
// of people on site, access control, variables, identities, a parameterized job and one that edges launch to the drawn
// schedule. All of it ends well before the fleet has to be quiet. It does nothing for real time, which does not support them.
func (d *drawer) addVirtualOnlyParts(rng *rand.Rand) {
	if d.shape.Clock&Virtual == 0 {
		return
	}
	d.rng = rng
	for i := range d.s.Jobs {
		if j := &d.s.Jobs[i]; j.Type == fleet.JobTypeService && d.drawBool(60) {
			j.Rollout = d.drawRollout(*j)
		}
	}
	d.addJobs()
	d.addDrainFaults()
	d.addWindowsAndServices()
	d.addResourceClaims()
	d.addSlowShutdowns()
	d.addPeopleOnSite()
	d.addSecrets()
	d.addIdentities()
	d.addDispatches()
	d.addLaunchesAtEdges()
}

// windowStream separates the random numbers of windows and services from the others, as rolloutStream does.
const windowStream = 0x2a17

// addWindowsAndServices gives some rollouts update windows, and some service jobs a service. A
// window opens every one or two minutes, so that rollouts end before the fleet has to be quiet.
func (d *drawer) addWindowsAndServices() {
	d.rng = rand.New(rand.NewPCG(d.s.Seed, windowStream))
	for i := range d.s.Jobs {
		if r := &d.s.Jobs[i].Rollout; *r != (Rollout{}) && d.drawBool(20) {
			r.WindowEvery = pick(d.rng, time.Minute, 2*time.Minute)
			r.WindowFor = d.drawDuration(20*time.Second, r.WindowEvery*2/3)
		}
	}
	for i := range d.s.Jobs {
		j := &d.s.Jobs[i]
		j.Serves = j.Type == fleet.JobTypeService && d.drawBool(30)
	}
}

// drawRollout draws the update block of a service. A job with one allocation on each edge gets
// no canaries: they run beside the old allocations and would find no edge.
func (d *drawer) drawRollout(j Job) Rollout {
	r := Rollout{
		MaxParallel: 1 + d.rng.IntN(4), MinHealthy: d.drawDuration(time.Second, 8*time.Second),
		AutoRevert: d.drawBool(30), WaitFor: pick(d.rng, "", "", "", fleet.WaitForAll, "75%"),
	}
	if d.drawBool(30) {
		r.MaxPerSite = 1 + d.rng.IntN(2)
	}
	if !j.Distinct && j.Count > 0 && d.drawBool(30) {
		r.Canary, r.AutoPromote = 1+d.rng.IntN(min(2, j.Count)), true
	}
	return r
}

// addJobs adds, each with some probability, a system job with updates of it, and a periodic
// batch job.
func (d *drawer) addJobs() {
	if len(d.s.Jobs) == 0 {
		return
	}
	if d.drawBool(35) && len(d.s.Jobs) < MaxJobs {
		j := Job{ID: d.nextID("probe"), Type: fleet.JobTypeSystem, Pool: fleet.AllPools}
		j.Rollout = Rollout{MaxParallel: 1 + d.rng.IntN(4), MinHealthy: d.drawDuration(time.Second, 5*time.Second), WaitFor: pick(d.rng, "", "", fleet.WaitForAll)}
		if d.drawBool(30) {
			j.Rollout.Canary, j.Rollout.AutoPromote = 20, true
		}
		if d.drawBool(40) {
			j.Rollout.MaxPerSite = 1 + d.rng.IntN(2)
		}
		d.s.Jobs = append(d.s.Jobs, j)
		for range 1 + d.rng.IntN(3) {
			d.addStep(Step{At: d.drawTime(0, d.s.Length), Verb: pick(d.rng, Update, Update, Update, Touch), Job: j.ID})
		}
	}
	if d.drawBool(35) && len(d.s.Jobs) < MaxJobs {
		d.s.Jobs = append(d.s.Jobs, Job{
			ID: d.nextID("nightly"), Type: fleet.JobTypeBatch, Count: 1, Pool: fleet.AllPools,
			Every: pick(d.rng, 2*time.Minute, 4*time.Minute, 5*time.Minute, 10*time.Minute), NoOverlap: d.drawBool(60),
			Task: Script{RunFor: d.drawDuration(5*time.Second, 6*time.Minute)},
		})
	}
}

// nextID returns the name of the next job, such as probe-7.
func (d *drawer) nextID(trade string) fleet.JobID {
	return fleet.JobID(trade + "-" + strconv.Itoa(len(d.s.Jobs)+1))
}

// addStep adds a step in order of time. It drops the step if a restored copy would undo it, the
// job has another step at that time, or the job starts later.
func (d *drawer) addStep(step Step) {
	if j, known := d.s.Job(step.Job); known && step.At <= j.Start {
		return
	}
	taken := slices.ContainsFunc(d.s.Steps, func(s Step) bool { return s.Job == step.Job && s.At == step.At })
	if taken || d.isUndoneByRestore(step.At) || len(d.s.Steps) >= MaxSteps {
		return
	}
	d.s.Steps = append(d.s.Steps, step)
	slices.SortStableFunc(d.s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
}

// edgeLaunchStream separates the random numbers of addLaunchesAtEdges from the others, as windowStream does.
const edgeLaunchStream = 0xed6e

// addLaunchesAtEdges gives some runs a job that edges launch themselves, also without a link.
func (d *drawer) addLaunchesAtEdges() {
	d.rng = rand.New(rand.NewPCG(d.s.Seed, edgeLaunchStream))
	if len(d.s.Jobs) == 0 || len(d.s.Jobs) >= MaxJobs || !d.drawBool(35) {
		return
	}
	d.s.Jobs = append(d.s.Jobs, Job{
		ID: d.nextID("meter"), Type: fleet.JobTypeBatch, Count: 1 + d.rng.IntN(2), Pool: fleet.AllPools, AtEdge: true, NoOverlap: true,
		Every: pick(d.rng, time.Minute, 2*time.Minute, 5*time.Minute), Task: Script{RunFor: d.drawDuration(5*time.Second, 3*time.Minute)},
	})
}

// drainsPerHour is the maximum number of edges that are drained in an hour.
const drainsPerHour = 2

// addDrainFaults adds faults of the kind Drain that clash with no other fault.
func (d *drawer) addDrainFaults() {
	info, _ := Drain.Info()
	if !d.shape.drains || len(d.s.Jobs) == 0 || len(d.s.Topology.Edges) == 0 || info.Drawn.Shortest > d.s.Length/2 {
		return
	}
	taken := newOccupancy(d.s.Topology, d.s.Length)
	for _, f := range d.s.Faults {
		if taken.reserveFault(f) != nil {
			return
		}
	}
	most := int(drainsPerHour * max(1, d.s.Length.Hours()))
	for range min(d.rng.IntN(most+1), MaxFaults-len(d.s.Faults)) {
		for range triesAnywhere {
			f := Fault{
				Kind: Drain, For: d.drawDuration(info.Drawn.Shortest, info.Drawn.Longest), Targets: []string{pick(d.rng, d.s.Topology.Edges...).Name},
				Params: Params{Deadline: d.drawDuration(5*time.Second, 4*time.Minute), KeepSystem: d.drawBool(30)},
			}
			f.At = d.drawTime(0, d.s.Length-f.For)
			if d.isSafeFromRestore(f) && d.tryReserveFault(taken, f) {
				d.s.Faults = append(d.s.Faults, f)
				break
			}
		}
	}
	slices.SortStableFunc(d.s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// isSafeFromRestore reports whether no Restore of the schedule can undo the fault's commands.
func (d *drawer) isSafeFromRestore(f Fault) bool {
	end := f.End(d.s.Length)
	return !slices.ContainsFunc(d.s.Faults, func(r Fault) bool {
		return r.Kind == Restore && r.At-r.Params.Age-time.Minute <= end && f.At <= r.At+clusterRecovery
	})
}
