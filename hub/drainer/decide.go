package drainer

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// maxMigrate bounds how many allocations one entry flags.
const maxMigrate = 1000

// Group is one task group of a job that has allocations on draining nodes.
type Group struct {
	Count       int
	MaxParallel int  // of its migrate block
	Batch       bool // left alone until the deadline
	Allocs      []*fleet.Alloc
	Draining    func(fleet.NodeID) bool
	Healthy     func(*fleet.Alloc) bool
	Forsaken    func(*fleet.Alloc) bool // not healthy, and nothing is going to mend it
	Since       fleet.Index             // what finished after it counts as migrated
}

// Step is what a group does next.
type Step struct {
	Migrate  []*fleet.Alloc // to be flagged now
	Migrated []*fleet.Alloc // have ended on a draining node
	Done     bool           // nothing of it is left on draining nodes
}

// Step decides for one group: so many are flagged that never more than MaxParallel
// of those that are wanted are missing or not healthy. One that is out of sight on
// another node is deferred, as is one that failed for good: nobody can mend it now, and it
// holds up no drain. One
// that is out of sight on a draining node goes at once, as does one that its edge
// says is not healthy: nobody sees it serve.
func (g *Group) Step() Step {
	step := Step{Done: true}
	var candidates []*fleet.Alloc
	healthy, deferred := 0, 0
	for _, a := range g.Allocs {
		here := g.Draining(a.NodeID)
		flagged := a.DesiredTransition.Migrate && here
		if (!here || a.ClientTerminal()) && !a.NoLongerWanted() && g.Forsaken(a) {
			deferred++
		}
		switch {
		case here && a.ClientTerminal():
			if a.ModifyIndex > g.Since {
				step.Migrated = append(step.Migrated, a)
			}
			continue
		case a.Terminal():
		case a.ClientStatus == fleet.ClientUnknown && !here:
			deferred++
		case !flagged && g.Healthy(a):
			healthy++
		}
		if !here {
			continue
		}
		step.Done = false
		if g.Batch || flagged || a.ServerTerminal() {
			continue
		}
		if a.ClientStatus == fleet.ClientUnknown || a.DeploymentStatus.IsUnhealthy() {
			step.Migrate = append(step.Migrate, a)
		} else {
			candidates = append(candidates, a)
		}
	}
	if g.Batch {
		return step
	}
	most := healthy - (g.Count - deferred - g.MaxParallel)
	step.Migrate = append(step.Migrate, candidates[:max(0, min(most, len(candidates)))]...)
	return step
}

// Node is a node that is being drained.
type Node struct {
	IgnoreSystem bool
	Allocs       []*fleet.Alloc
}

// Left says what a drain still has to deal with, how much of that it waits for
// (what runs on every node goes last, and is not waited for), and whether it is
// done.
func (n *Node) Left() (left []*fleet.Alloc, waited int, done bool) {
	for _, a := range n.Allocs {
		system := jobType(a) == fleet.JobTypeSystem
		if a.ClientTerminal() || system && n.IgnoreSystem {
			continue
		}
		left = append(left, a)
		if !system {
			waited++
		}
	}
	return left, waited, waited == 0
}

func jobType(a *fleet.Alloc) string {
	if a.Job == nil {
		return fleet.JobTypeService
	}
	return a.Job.Type
}

// Next is what is to be done on the state that v shows, and when to look again
// where nothing of it changes (zero: never).
func Next(v *state.View, now time.Time) (step state.DrainStep, again time.Time) {
	r := drainPass{view: v, now: now, groups: map[groupKey]bool{}}
	r.step.Now = now.UnixNano()
	nodes := slices.Collect(v.DrainingNodes())
	draining := map[fleet.NodeID]bool{}
	for _, n := range nodes {
		draining[n.ID] = true
	}
	r.draining = func(id fleet.NodeID) bool { return draining[id] }
	for _, n := range nodes {
		r.decideNode(n)
	}
	return r.step, r.recheckTime
}

type groupKey struct {
	namespace string
	job       fleet.JobID
	group     string
}

// drainPass is one look at all draining nodes.
type drainPass struct {
	view        *state.View
	now         time.Time
	draining    func(fleet.NodeID) bool
	groups      map[groupKey]bool // looked at already
	step        state.DrainStep
	recheckTime time.Time
}

func (r *drainPass) decideNode(n *fleet.Node) {
	node := Node{IgnoreSystem: n.DrainStrategy.IgnoreSystemJobs, Allocs: slices.Collect(r.view.AllocsByNode(n.ID))}
	left, _, done := node.Left()
	over := n.DrainStrategy.Over(r.now)
	if done || over {
		if r.flagForMigration(left) {
			r.step.Done = append(r.step.Done, state.NodeDrained{
				NodeID: n.ID, StartedAt: n.DrainStrategy.StartedAt, ForceDeadline: n.DrainStrategy.ForceDeadline, Deadlined: over,
			})
		}
		return
	}
	if !n.DrainStrategy.ForceDeadline.IsZero() {
		r.recheckBy(n.DrainStrategy.ForceDeadline)
	}
	for _, a := range left {
		if jobType(a) != fleet.JobTypeSystem {
			r.decideGroup(a)
		}
	}
}

// flagForMigration flags allocations, and reports whether all of them fit the entry.
func (r *drainPass) flagForMigration(allocs []*fleet.Alloc) bool {
	for _, a := range allocs {
		if a.Terminal() || a.DesiredTransition.Migrate || slices.Contains(r.step.Migrate, a.ID) {
			continue
		}
		if len(r.step.Migrate) == maxMigrate {
			return false
		}
		r.step.Migrate = append(r.step.Migrate, a.ID)
	}
	return true
}

func (r *drainPass) recheckBy(at time.Time) {
	if r.recheckTime.IsZero() || at.Before(r.recheckTime) {
		r.recheckTime = at
	}
}

// decideGroup looks at the group of an allocation, once.
func (r *drainPass) decideGroup(a *fleet.Alloc) {
	k := groupKey{a.Namespace, a.JobID, a.TaskGroup}
	if r.groups[k] {
		return
	}
	r.groups[k] = true
	job, ok := r.view.Job(a.Namespace, a.JobID)
	if !ok || job.Stop || job.Group(a.TaskGroup) == nil {
		return // its own evaluation ends it
	}
	tg := job.Group(a.TaskGroup)
	rules := migrateRulesOf(tg)
	g := Group{
		Count: tg.Count, MaxParallel: rules.maxParallel, Batch: job.Type != fleet.JobTypeService,
		Draining: r.draining, Healthy: func(a *fleet.Alloc) bool { return r.isHealthyFor(a, rules.minHealthy) }, Forsaken: r.isUnrecoverable,
	}
	for other := range r.view.AllocsByJob(a.Namespace, a.JobID) {
		if other.TaskGroup == a.TaskGroup {
			g.Allocs = append(g.Allocs, other)
		}
	}
	r.flagForMigration(g.Step().Migrate)
}

// migrateRules of a group's migrate block.
type migrateRules struct {
	maxParallel int
	minHealthy  time.Duration
}

func migrateRulesOf(g *fleet.TaskGroup) migrateRules {
	m := g.Migrate
	if m == nil {
		m = fleet.DefaultMigrate(fleet.JobTypeService)
	}
	return migrateRules{maxParallel: max(1, m.MaxParallel), minHealthy: m.MinHealthyTime}
}

// isHealthyFor reports whether an allocation serves: its edge says so, or where nobody
// asked it to, all of its tasks have been running for long enough, by the cluster's
// clock.
func (r *drainPass) isHealthyFor(a *fleet.Alloc, long time.Duration) bool {
	if a.ClientStatus != fleet.ClientRunning {
		return false
	}
	if s := a.DeploymentStatus; s != nil && s.Healthy != nil {
		return *s.Healthy
	}
	since := a.CreateTime
	for _, s := range a.TaskStates {
		since = max(since, s.RunningSince)
	}
	at := time.Unix(0, since).Add(long)
	if at.After(r.now) {
		r.recheckBy(at)
		return false
	}
	return true
}

// isUnrecoverable reports whether an allocation failed, or its edge says that it is not healthy,
// and nothing is going to change that: no deployment decides on it any more, no evaluation
// of its job is due, and none waits for it or for capacity.
func (r *drainPass) isUnrecoverable(a *fleet.Alloc) bool {
	if a.ClientStatus != fleet.ClientFailed && !(a.ClientStatus == fleet.ClientRunning && a.DeploymentStatus.IsUnhealthy()) {
		return false
	}
	if d, ok := r.view.Deployment(a.DeploymentID); ok && d.Active() {
		return false
	}
	for e := range r.view.EvalsByJob(a.Namespace, a.JobID) {
		if !e.Terminal() && (e.ID == a.FollowupEvalID || e.Status == fleet.EvalBlocked || !e.WaitUntil.After(r.now)) {
			return false
		}
	}
	return true
}
