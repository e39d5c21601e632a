package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// GroupChange says what a newer version of a job means for an allocation of one of
// its groups.
type GroupChange string

const (
	GroupSame        GroupChange = "same"        // nothing that concerns the group
	GroupInPlace     GroupChange = "in-place"    // the allocation takes the new version and its tasks run on
	GroupDestructive GroupChange = "destructive" // its tasks must be started anew
	GroupRemoved     GroupChange = "removed"     // the new version does not have the group
)

// GroupUpdate compares a group between two versions of a job. In place are counts,
// priority, constraints, datacenters, the pool, the policies (restart, reschedule,
// disconnect, update, migrate), services, scaling, actions, how large logs may get, and how
// a task is stopped: of these, the caller must still see whether the allocation's node fits
// the new version. All else changes the processes, what they are told (meta and the job's
// name are in their environment), what they hold of the node, or which nodes they prefer,
// and is destructive. Either job may be nil; a group that only the new version has is
// destructive.
func GroupUpdate(old, updated *Job, group string) GroupChange {
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

// groupProcesses is what must not change under a running allocation, as text.
func groupProcesses(j *Job, g *TaskGroup) string {
	tasks := make([]Task, len(g.Tasks))
	var affinities []string // of the job, the group and the tasks: wherever they stand, and in any order
	prefers := func(list []Affinity) {
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
	slices.SortStableFunc(tasks, func(a, b Task) int { return strings.Compare(a.Name, b.Name) })
	return canonical(struct {
		JobName, JobType string
		Tasks            []Task
		Affinities       []string
		Spreads          []Spread
		Disk             EphemeralDisk
		Networks         []NetworkResource
		Volumes          map[string]VolumeRequest
		Consul           *Consul
	}{j.Name, j.Type, tasks, affinities, slices.Concat(j.Spreads, g.Spreads), g.EphemeralDisk, heldPorts(g.Networks), g.Volumes, g.Consul})
}

// taskProcess is the part of a task that its running process depends on.
func taskProcess(t Task) Task {
	t.Constraints, t.Affinities, t.RestartPolicy = nil, nil, nil
	t.KillTimeout, t.KillSignal, t.ShutdownDelay = 0, "", 0
	t.Leader = false
	t.Services, t.ScalingPolicies, t.Actions = nil, nil, nil
	t.LogConfig = LogConfig{Disabled: t.LogConfig.Disabled}
	return t
}

// heldPorts are a group's networks as far as they say what an allocation holds of its node.
func heldPorts(networks []NetworkResource) []NetworkResource {
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
func jobPlacement(j *Job) Job {
	return Job{
		Region: j.Region, Namespace: j.Namespace, Priority: j.Priority, AllAtOnce: j.AllAtOnce,
		Datacenters: j.Datacenters, NodePool: j.NodePool, Constraints: j.Constraints, Meta: j.Meta,
	}
}

// canonical writes a value so that equal content gives equal text, whatever number
// types a codec left in a Config.
func canonical(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%#v", v) // a Config that never came from JSON: differing types count as a difference
	}
	return string(b)
}

// InDatacenter reports whether the job may run in a datacenter. "*" in its list
// stands for any characters; an empty list for every datacenter.
func (j *Job) InDatacenter(dc string) bool {
	if len(j.Datacenters) == 0 {
		return true
	}
	for _, pattern := range j.Datacenters {
		if glob(pattern, dc) {
			return true
		}
	}
	return false
}

// glob matches s against a pattern in which "*" stands for any characters.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = after
	}
	return true
}

// InPool reports whether the job may run on nodes of a pool.
func (j *Job) InPool(pool string) bool {
	if pool == "" {
		pool = DefaultPool
	}
	switch j.NodePool {
	case "":
		return pool == DefaultPool
	case AllPools:
		return true
	}
	return j.NodePool == pool
}
