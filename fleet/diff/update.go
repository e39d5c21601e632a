package diff

import (
	"slices"
	"strings"

	"skerry/fleet"
)

// GroupChange says what a newer version of a job means for an allocation of one of
// its groups.
type GroupChange string

// The changes of a group.
const (
	GroupSame        GroupChange = "same"        // nothing that concerns the group
	GroupInPlace     GroupChange = "in-place"    // the allocation takes the new version, and its tasks keep running
	GroupDestructive GroupChange = "destructive" // another allocation replaces it
	GroupRemoved     GroupChange = "removed"     // the new version does not have the group
)

// GroupUpdate compares a group between two versions of a job, either of which may be nil.
//
// These change in place, and the caller must still check that the allocation's node fits the
// new version: count, priority, constraints, datacenters, pool, policies, services, scaling,
// actions, the size of logs, and how a task is stopped. All else changes the processes, their
// environment, the resources that they hold, or the preferred nodes, and is destructive.
// So is a group that only the new version has.
func GroupUpdate(old, updated *fleet.Job, group string) GroupChange {
	if updated == nil || updated.Group(group) == nil {
		return GroupRemoved
	}
	if old == nil || old.Group(group) == nil {
		return GroupDestructive
	}
	was, is := old.Group(group), updated.Group(group)
	switch {
	case groupProcesses(old, was) != groupProcesses(updated, is):
		return GroupDestructive
	case canonical(jobPlacement(old)) != canonical(jobPlacement(updated)), canonical(was) != canonical(is):
		return GroupInPlace
	}
	return GroupSame
}

// groupProcesses returns, as text, the parts of a group that may not change under a running allocation.
func groupProcesses(j *fleet.Job, g *fleet.TaskGroup) string {
	tasks := make([]fleet.Task, len(g.Tasks))
	var affinities []string // of the job, the group and the tasks: wherever they stand, and in any order
	prefers := func(list []fleet.Affinity) {
		for _, a := range list {
			affinities = append(affinities, canonical(a))
		}
	}
	prefers(j.Affinities)
	prefers(g.Affinities)
	for i, t := range g.Tasks {
		tasks[i] = taskProcess(t)
		tasks[i].Meta = j.TaskMeta(g.Name, t.Name)
		prefers(t.Affinities)
	}
	slices.Sort(affinities)
	slices.SortStableFunc(tasks, func(a, b fleet.Task) int { return strings.Compare(a.Name, b.Name) })
	return canonical(struct {
		JobName, JobType string
		Tasks            []fleet.Task
		Affinities       []string
		Spreads          []fleet.Spread
		Disk             fleet.EphemeralDisk
		Networks         []fleet.NetworkResource
		Volumes          map[string]fleet.VolumeRequest
		Consul           *fleet.Consul
	}{j.Name, j.Type, tasks, affinities, slices.Concat(j.Spreads, g.Spreads), g.EphemeralDisk, heldPorts(g.Networks), g.Volumes, g.Consul})
}

// taskProcess is the part of a task that its running process depends on.
func taskProcess(t fleet.Task) fleet.Task {
	t.Constraints, t.Affinities, t.RestartPolicy = nil, nil, nil
	t.KillTimeout, t.KillSignal, t.ShutdownDelay = 0, "", 0
	t.Leader = false
	t.Services, t.ScalingPolicies, t.Actions = nil, nil, nil
	t.LogConfig = fleet.LogConfig{Disabled: t.LogConfig.Disabled}
	return t
}

// heldPorts are a group's networks as far as they say what an allocation holds of its node.
func heldPorts(networks []fleet.NetworkResource) []fleet.NetworkResource {
	held := slices.Clone(networks)
	for i := range held {
		n := &held[i]
		n.Device, n.CIDR, n.IP = "", "", ""
		n.ReservedPorts = slices.Clone(n.ReservedPorts)
		for k := range n.ReservedPorts {
			n.ReservedPorts[k].IgnoreCollision = false
		}
	}
	return held
}

// jobPlacement is the part of the job itself that concerns each of its groups.
func jobPlacement(j *fleet.Job) fleet.Job {
	return fleet.Job{
		Region: j.Region, Namespace: j.Namespace, Priority: j.Priority, AllAtOnce: j.AllAtOnce,
		Datacenters: j.Datacenters, NodePool: j.NodePool, Constraints: j.Constraints, Meta: j.Meta,
	}
}
