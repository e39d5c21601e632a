package observe

import (
	"slices"

	"skerry/chaos/check"
	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/hub/consensus"
	"skerry/hub/state"
)

// addStoppedForRoom adds to rs a turn for an allocation that this entry stopped to free resources for the newest
// version. A later entry places its replacement.
func addStoppedForRoom(a consensus.Applied, rs *[]check.Rollout, old *fleet.Alloc) {
	if !isTakenDown(a, old) || !makesRoom(a.View, old, "") {
		return
	}
	dep := a.View.LatestDeployment(old.Namespace, old.JobID)
	job, _ := a.View.Job(old.Namespace, old.JobID)
	if r := rolloutOf(a, rs, dep.ID, job, old.TaskGroup); r != nil {
		r.Turns = append(r.Turns, check.Turn{Old: old.ID, Node: old.NodeID, Site: siteOf(a.View, old.NodeID), Canary: r.System && r.Held, Served: isInService(old)})
	}
}

// awaitingRoom returns the allocations of a group that earlier entries stopped, to free resources or because they were
// lost, and that have no replacement yet.
func awaitingRoom(a consensus.Applied, dep *fleet.Deployment, group string) (parts []check.Part) {
	for old := range a.View.AllocsByJob(dep.Namespace, dep.JobID) {
		if old.TaskGroup == group && old.AllocModifyIndex < a.Index && makesRoom(a.View, old, "") {
			parts = append(parts, check.Part{Alloc: old.ID, Node: old.NodeID, Site: siteOf(a.View, old.NodeID), Lost: old.WasGivenUp()})
		}
	}
	return parts
}

// makesRoom reports whether an allocation was stopped for the newest version of its job, which an active deployment
// rolls out, and its replacement is next ("": none). It must be the last allocation of its name or node, and the job
// must still use that.
func makesRoom(v *state.View, old *fleet.Alloc, next fleet.AllocID) bool {
	if !old.ServerTerminal() || old.NextAllocation != next {
		return false
	}
	stopped := *old
	stopped.NextAllocation = ""
	dep := v.LatestDeployment(old.Namespace, old.JobID)
	job, ok := v.Job(old.Namespace, old.JobID)
	if !dep.StoppedForUpdate(&stopped) || !dep.Active() || !ok || !dep.Of(job) {
		return false
	}
	g, n := job.Group(old.TaskGroup), readyNode(v, old.NodeID)
	if _, part := dep.TaskGroups[old.TaskGroup]; g == nil || n == nil || !part || old.Job.CreateIndex != job.CreateIndex {
		return false
	}
	everywhere := fleet.RunsEverywhere(job.Type)
	index, named := old.NameIndex()
	switch {
	case everywhere && !(n.Schedulable() && job.InPool(n.NodePool) && job.InDatacenter(n.Datacenter)):
		return false // the job no longer uses the node
	case everywhere && slices.ContainsFunc(g.Tasks, func(t fleet.Task) bool { return !n.HasDriver(t.Driver) }):
		return false // the node cannot run the newest version
	case !everywhere && (!named || index >= g.Count):
		return false // the job no longer uses the name
	case diff.GroupUpdate(old.Job, job, old.TaskGroup) != diff.GroupDestructive:
		return false
	}
	for other := range v.AllocsByJob(old.Namespace, old.JobID) {
		beside := other.TaskGroup == old.TaskGroup && (everywhere && other.NodeID == old.NodeID || !everywhere && other.Name == old.Name)
		if beside && other.ID != old.ID && other.ID != next && (!other.NoLongerWanted() || other.CreateIndex > old.CreateIndex) {
			return false
		}
	}
	return true
}

// readyNode returns a node if it is ready, or nil.
func readyNode(v *state.View, id fleet.NodeID) *fleet.Node {
	n, known := v.Node(id)
	if !known || n.Status != fleet.NodeReady {
		return nil
	}
	return n
}
