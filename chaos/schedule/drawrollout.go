package schedule

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"skerry/fleet"
)

// rolloutStream tells the random numbers of what is added to a drawn schedule from those
// of the schedule: what was drawn before there was anything to add is drawn as it was.
const rolloutStream = 0x2011

// addVirtualOnlyParts adds to what was drawn: how versions of the services come, a job on every
// edge, one that is launched by the clock, and edges that are drained. All of it is over
// long before the fleet has to be quiet. In real time nobody plays it.
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
}

// windowStream is of windows and services, as rolloutStream of what was added before them.
const windowStream = 0x2a17

// addWindowsAndServices has some rollouts keep to windows of updates, and some jobs be in the catalogue
// of services. A window opens often enough for all to be over when the fleet has to be
// quiet.
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

// drawRollout draws how versions come. Canaries stand beside what runs: where each edge has
// one already there is no place for them.
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

// addJobs draws jobs of the kinds that come beside the trades, and what users do to the
// one on every edge.
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

func (d *drawer) nextID(trade string) fleet.JobID {
	return fleet.JobID(trade + "-" + strconv.Itoa(len(d.s.Jobs)+1))
}

// addStep adds a step, unless a restored copy would forget it, the job has one at that time, or
// begins only then.
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

// drainsPerHour is how many edges are drained in an hour at most.
const drainsPerHour = 2

// addDrainFaults draws edges that are drained, while there is room for it.
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

// isSafeFromRestore reports whether no restored copy is from before the fault's end.
func (d *drawer) isSafeFromRestore(f Fault) bool {
	end := f.End(d.s.Length)
	return !slices.ContainsFunc(d.s.Faults, func(r Fault) bool {
		return r.Kind == Restore && r.At-r.Params.Age-time.Minute <= end && f.At <= r.At+clusterRecovery
	})
}
