package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// nodeAllocs is a node, with the allocations of one group of a system job there, ended ones included.
type nodeAllocs struct {
	node    *fleet.Node // nil: its record was removed
	id      fleet.NodeID
	target  bool      // is in Input.Targets
	members []*member // by creation
	current *member   // nil: none
	vacant  bool      // needs an allocation and has none
	awaited bool      // becomes vacant when the node is ready again
	canary  bool      // gets a canary
}

// DecideSystem computes the decisions for a system or sysbatch job: one allocation of each group on every
// node of Input.Targets that suits the group.
//
// It never replaces an allocation on another node. It waits for allocations with the status unknown, by the
// rules of AbsenceOf. A node that takes no new work keeps its allocations until their tasks change in the job.
func DecideSystem(in Input) Output {
	d := &decision{in: in, changes: map[versionKey]diff.GroupChange{}, desiredNodes: map[string]int{}}
	d.out.Groups = map[string]GroupSummary{}
	groups := d.prepareAllocGroups()
	if !in.Job.Stopped() {
		for i := range in.Job.TaskGroups {
			g := &in.Job.TaskGroups[i]
			d.reconcileSystemGroup(g, d.allocsByNode(groups[g.Name]))
			delete(groups, g.Name)
		}
	}
	d.stopGroups(groups)
	d.beginOrEndDeployment()
	d.requestWindowEval()
	d.assignFollowUpEvals()
	d.summarizeGroups()
	for name, n := range d.desiredNodes {
		s := d.out.Groups[name]
		s.Desired = n
		d.out.Groups[name] = s
	}
	return d.out
}

// allocsByNode classifies a group's allocations and groups them by node. Target nodes without allocations
// are included.
func (d *decision) allocsByNode(allocs []*fleet.Alloc) []*nodeAllocs {
	byNode := map[fleet.NodeID]*nodeAllocs{}
	var nodes []*nodeAllocs
	at := func(id fleet.NodeID) *nodeAllocs {
		p := byNode[id]
		if p == nil {
			p = &nodeAllocs{id: id, node: d.in.Nodes[id]}
			byNode[id] = p
			nodes = append(nodes, p)
		}
		return p
	}
	for _, n := range d.in.Targets {
		p := at(n.ID)
		p.node, p.target = n, true
	}
	for _, a := range allocs {
		p := at(a.NodeID)
		p.members = append(p.members, d.classifyAlloc(a))
	}
	slices.SortFunc(nodes, func(a, b *nodeAllocs) int { return cmp.Compare(a.id, b.id) })
	for _, p := range nodes {
		slices.SortFunc(p.members, byCreation)
		for _, m := range p.members {
			if m.canBeCurrent() {
				p.current = m
			}
		}
	}
	return nodes
}

// hasMemberOfKind reports whether an allocation of the node has a kind.
func (p *nodeAllocs) hasMemberOfKind(k allocKind) bool {
	return slices.ContainsFunc(p.members, func(m *member) bool { return m.kind == k })
}

// newestOfKinds returns the newest member of one of the kinds, or nil.
func (p *nodeAllocs) newestOfKinds(kinds ...allocKind) *member {
	for i := len(p.members) - 1; i >= 0; i-- {
		if slices.Contains(kinds, p.members[i].kind) {
			return p.members[i]
		}
	}
	return nil
}

// reconcileSystemGroup decides for all allocations of one group of a system job.
func (d *decision) reconcileSystemGroup(g *fleet.TaskGroup, nodes []*nodeAllocs) {
	var members []*member
	for _, p := range nodes {
		members = append(members, p.members...)
	}
	r := d.newRollout(g, members)
	d.rollouts = append(d.rollouts, r)
	d.findVacantNodes(g, nodes, r)
	d.planSystemCanaries(g, nodes, r)
	d.desiredNodes[g.Name] = 0
	var crowded []*nodeAllocs
	for _, p := range nodes {
		if d.isUpdateStuck(p, g, r) {
			crowded = append(crowded, p)
			continue
		}
		d.reconcileNode(p, g, r)
	}
	for _, p := range crowded {
		d.reconcileNode(p, g, r)
	}
	r.total = d.desiredNodes[g.Name]
}

// isUpdateStuck reports whether a node that awaits its update cannot get the newest version now: it does not fit, or
// the node does not suit at the moment. Such nodes come last, so that they do not take the turn of another.
func (d *decision) isUpdateStuck(p *nodeAllocs, g *fleet.TaskGroup, r *rollout) bool {
	if r.turnsLeft <= 0 || !p.target || p.current == nil || !d.needsDestructiveUpdate(p.current.a) {
		return false
	}
	_, passing := d.checkSuits(p.node, g)
	return passing || d.in.Room != nil && !d.in.Room(p.current.a)
}

// reconcileNode decides for the allocations of a group on one node, and counts the node if it is to have
// one.
func (d *decision) reconcileNode(p *nodeAllocs, g *fleet.TaskGroup, r *rollout) {
	for _, m := range p.members {
		d.reconcileOtherAlloc(m, p)
	}
	wanted := true
	switch {
	case p.current != nil:
		wanted = d.reconcileCurrentOnNode(p, g, r)
	case p.vacant:
		d.placeOnEmptyNode(p, g)
		r.noteNewPlacement()
	case p.awaited:
		r.deferred++
	case p.hasMemberOfKind(kindReplaying), p.hasMemberOfKind(kindUnknown), p.hasMemberOfKind(kindDisconnecting), d.isLastAllocLost(p):
	default:
		wanted = false
	}
	if wanted {
		d.desiredNodes[g.Name]++
		r.recordProgress(p.currentOrUnknown())
	}
}

// currentOrUnknown returns the member that shows the progress of the node: the current one, else the
// newest that is unknown, disconnecting or replaying, or nil.
func (p *nodeAllocs) currentOrUnknown() *member {
	if p.current != nil {
		return p.current
	}
	return p.newestOfKinds(kindUnknown, kindDisconnecting, kindReplaying)
}

// reconcileOtherAlloc decides for an allocation that is not the current one of its node. It ignores the
// current one.
func (d *decision) reconcileOtherAlloc(m *member, p *nodeAllocs) {
	switch {
	case m == p.current:
	case m.kind == kindEnded:
		d.leaveEnded(m)
	case m.kind == kindReplaying:
		d.keepReplaying(m)
	case m.kind == kindUnknown:
		d.keepUnknown(m)
	case m.kind == kindDisconnecting:
		d.markAllocUnknown(m)
	case m.kind == kindLost:
		d.markAllocLost(m)
	case m.kind == kindMigrating:
		d.stopAllocation(m, Change{Reason: "an operator wants it stopped"})
	default:
		d.stopOrRetire(m, Change{Reason: fmt.Sprintf("%s has taken its place", fleet.Short(p.current.a.ID))})
	}
}
