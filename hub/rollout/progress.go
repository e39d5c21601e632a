package rollout

import (
	"maps"
	"slices"

	"skerry/fleet"
	"skerry/hub/state"
)

// Progress counts a deployment's allocations by their health. It counts each changed allocation by
// itself, so that the work of an update depends on the number of changes, not on the job's size.
type Progress struct {
	allocs map[fleet.AllocID]*fleet.Alloc
	groups map[string]*groupProgress
	// failedAllocs are unhealthy or failed allocations that are to run and are not yet marked for
	// rescheduling.
	failedAllocs map[fleet.AllocID]*fleet.Alloc
	// newestHealthyIndex is the newest entry in which an allocation became healthy.
	newestHealthyIndex fleet.Index
	// countedUpTo is the entry up to which changes are counted.
	countedUpTo fleet.Index
}

// groupProgress has the counts of one group.
type groupProgress struct {
	healthy         int // healthy and not terminal
	healthyCanaries int
	canaries        map[fleet.AllocID]*fleet.Alloc // canaries that are to run
	unhealthy       map[fleet.AllocID]*fleet.Alloc // unhealthy ones that are to run
}

// NewProgress counts allocations of one deployment.
func NewProgress(allocs ...*fleet.Alloc) *Progress {
	p := &Progress{allocs: map[fleet.AllocID]*fleet.Alloc{}, groups: map[string]*groupProgress{}, failedAllocs: map[fleet.AllocID]*fleet.Alloc{}}
	for _, a := range allocs {
		p.countAlloc(a, true)
	}
	return p
}

// countChanges returns p updated to the view's index. It counts the changes since then; where the view
// does not have them any more, it counts all allocations of the deployment.
func (p *Progress) countChanges(view *state.View, id fleet.DeploymentID) *Progress {
	changed, known := view.RolloutChanges(id, p.countedUpTo)
	if !known || p.countedUpTo == 0 {
		p = NewProgress(slices.Collect(view.AllocsByDeployment(id))...)
		p.countedUpTo = view.Index()
		return p
	}
	for _, c := range changed {
		if old := p.allocs[c.ID]; old != nil {
			p.countAlloc(old, false)
		}
		if c.Alloc != nil && c.Alloc.DeploymentID == id {
			p.countAlloc(c.Alloc, true)
		}
	}
	p.countedUpTo = view.Index()
	return p
}

// progressOfGroup returns the counts of one group, zero for one without allocations.
func (p *Progress) progressOfGroup(name string) groupProgress {
	if g := p.groups[name]; g != nil {
		return *g
	}
	return groupProgress{}
}

// countAlloc adds an allocation to all counts (in), or removes it.
func (p *Progress) countAlloc(a *fleet.Alloc, in bool) {
	g := p.groups[a.TaskGroup]
	if g == nil {
		g = &groupProgress{canaries: map[fleet.AllocID]*fleet.Alloc{}, unhealthy: map[fleet.AllocID]*fleet.Alloc{}}
		p.groups[a.TaskGroup] = g
	}
	by := 1
	if !in {
		by = -1
	}
	s := a.DeploymentStatus
	if s.IsHealthy() {
		p.newestHealthyIndex = max(p.newestHealthyIndex, s.ModifyIndex)
	}
	if s.IsHealthy() && !a.Terminal() {
		g.healthy += by
		if s.IsCanary() {
			g.healthyCanaries += by
		}
	}
	addOrDelete(p.allocs, a, in)
	addOrDelete(g.canaries, a, in && s.IsCanary() && !a.NoLongerWanted())
	addOrDelete(g.unhealthy, a, in && s.IsUnhealthy() && !a.NoLongerWanted())
	failed := s.IsUnhealthy() || a.ClientStatus == fleet.ClientFailed
	addOrDelete(p.failedAllocs, a, in && failed && !a.NoLongerWanted() && !a.DesiredTransition.Reschedule)
}

func addOrDelete(set map[fleet.AllocID]*fleet.Alloc, a *fleet.Alloc, in bool) {
	if in {
		set[a.ID] = a
	} else {
		delete(set, a.ID)
	}
}

// sortedByID lists allocations by id.
func sortedByID(set map[fleet.AllocID]*fleet.Alloc) []*fleet.Alloc {
	list := make([]*fleet.Alloc, 0, len(set))
	for _, id := range slices.Sorted(maps.Keys(set)) {
		list = append(list, set[id])
	}
	return list
}
