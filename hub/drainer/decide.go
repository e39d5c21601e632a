package drainer

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// maxMigrate bounds how many allocations one entry marks for migration.
const maxMigrate = 1000

// Group is one task group of a job that has allocations on draining nodes.
type Group struct {
	Count       int
	MaxParallel int  // of its migrate block
	Batch       bool // not migrated before the deadline
	Allocs      []*fleet.Alloc
	Draining    func(fleet.NodeID) bool
	Healthy     func(*fleet.Alloc) bool
	Forsaken    func(*fleet.Alloc) bool // not healthy, and nothing will replace it
	Since       fleet.Index             // allocations that ended after it count as migrated
}

// Step is the next step of a group.
type Step struct {
	Migrate  []*fleet.Alloc // to be marked for migration now
	Migrated []*fleet.Alloc // have ended on a draining node
	Done     bool           // no allocation of the group is left on draining nodes
}

// Step decides for one group. It marks as many allocations as leave at most MaxParallel of Count
// missing or not healthy. An allocation that is unknown on another node, or that failed for good, does
// not count as missing, as it would block the drain. An allocation on a draining node that is unknown
// or unhealthy is marked at once.
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

// Left returns the allocations that a drain still has to stop, how many of them it waits for, and
// whether it is done. It does not wait for allocations of system jobs, which stop last.
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

// Next returns the next step of all drains for the state of v, and when to call it again if that state
// does not change (zero: never). It is pure.
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

// drainPass is one call of Next.
type drainPass struct {
	view        *state.View
	now         time.Time
	draining    func(fleet.NodeID) bool
	groups      map[groupKey]bool // decided already
	step        state.DrainStep
	recheckTime time.Time
}

// decideNode adds the step of one draining node: the migration of its groups, or, when it is empty or
// past its deadline, the migration of the rest and the end of the drain.
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

// flagForMigration adds allocations to those that this pass marks for migration, maxMigrate at most. false: not all fitted.
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

// recheckBy makes Next ask to be called again at a time, or earlier.
func (r *drainPass) recheckBy(at time.Time) {
	if r.recheckTime.IsZero() || at.Before(r.recheckTime) {
		r.recheckTime = at
	}
}

// decideGroup adds the step of an allocation's group, once in a pass.
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

// isHealthyFor reports whether an allocation is healthy: its edge said so, or, where no deployment
// asked for its health, all of its tasks have run for the time long by the hub's clock.
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

// isUnrecoverable reports whether an allocation failed or is unhealthy and nothing will replace it: its
// deployment has ended, and its job has no evaluation that is pending, blocked, or follows it up.
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
