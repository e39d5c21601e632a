// Package validate turns text and trees into jobs, fills in their defaults, and says what is
// wrong with them. Package jobspec, the HTTP API, the commands and the tests call it.
//
// DecodeJob reads Nomad's JSON and FillDefaults completes a job built in Go; Job returns the
// problems, Unsupported the parts that nothing acts on, and Warnings the likely mistakes.
//
// It is pure: it starts no goroutine, reads no clock and does no I/O. It knows nothing of
// drivers, nodes and other jobs.
package validate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// Job returns the problems of a job whose defaults are filled in. Package
// placement checks its conditions on nodes, package cron its expressions of time.
func Job(j *fleet.Job) fleet.Problems {
	var ps fleet.Problems
	checkName(&ps, "ID", "the job", string(j.ID), fleet.MaxJobIDLength)
	if strings.ContainsAny(string(j.ID), " \t\r\n") {
		ps.Add("ID", "a job's ID may not contain spaces")
	}
	if strings.ContainsRune(j.Name, 0) {
		ps.Add("Name", "a job's name may not contain a NUL")
	}
	checkOneOf(&ps, "Type", "it is service, batch, system or sysbatch", "unknown job type", j.Type,
		fleet.JobTypeService, fleet.JobTypeBatch, fleet.JobTypeSystem, fleet.JobTypeSysBatch)
	if j.Priority < fleet.JobPriorityMin || j.Priority > fleet.JobPriorityMax {
		ps.Add("Priority", "must be between %d and %d, not %d", fleet.JobPriorityMin, fleet.JobPriorityMax, j.Priority)
	}
	for i, dc := range j.Datacenters {
		if dc == "" {
			ps.Add(fmt.Sprintf("Datacenters[%d]", i), "a datacenter's name may not be empty")
		}
	}
	checkMeta(&ps, "Meta", j.Meta)
	validateJobKind(j, &ps)
	validateGroups(j, &ps)
	return ps
}

func validateGroups(j *fleet.Job, ps *fleet.Problems) {
	switch n := len(j.TaskGroups); {
	case n == 0:
		ps.Add("TaskGroups", "a job needs a group")
	case n > fleet.MaxTaskGroups:
		ps.Add("TaskGroups", "%d groups: at most %d are allowed", n, fleet.MaxTaskGroups)
		return
	}
	seen := map[string]int{}
	total := 0
	for i := range j.TaskGroups {
		g, path := &j.TaskGroups[i], fmt.Sprintf("TaskGroups[%d]", i)
		if first, dup := seen[g.Name]; dup && g.Name != "" {
			ps.Add(path+".Name", "group %q is defined twice: groups %d and %d", g.Name, first+1, i+1)
		}
		seen[g.Name] = i
		total += max(0, min(g.Count, fleet.JobCountMax+1))
		validateGroup(g, ps, path, j.Type)
	}
	if total > fleet.JobCountMax && len(j.TaskGroups) > 1 {
		ps.Add("TaskGroups", "%d allocations together: at most %d are allowed", total, fleet.JobCountMax)
	}
}

func validateGroup(g *fleet.TaskGroup, ps *fleet.Problems, path, jobType string) {
	checkName(ps, path+".Name", "a group", g.Name, fleet.MaxNameLength)
	switch {
	case g.Count < 0:
		ps.Add(path+".Count", "may not be negative: %d", g.Count)
	case g.Count > fleet.JobCountMax:
		ps.Add(path+".Count", "%d is more than %d", g.Count, fleet.JobCountMax)
	case g.Count > 1 && fleet.RunsEverywhere(jobType):
		ps.Add(path+".Count", "jobs of type %s have one of a group on each node, not %d", jobType, g.Count)
	}
	checkMeta(ps, path+".Meta", g.Meta)
	validateRestart(ps, path+".RestartPolicy", g.RestartPolicy)
	validateReschedule(ps, path+".ReschedulePolicy", g.ReschedulePolicy, jobType)
	validateDisconnect(ps, path+".Disconnect", g.Disconnect, jobType)
	if g.EphemeralDisk.SizeMB < fleet.MinDiskMB {
		ps.Add(path+".EphemeralDisk.SizeMB", "must be at least %d MB, not %d", fleet.MinDiskMB, g.EphemeralDisk.SizeMB)
	}
	validateGroupParts(g, ps, path)
	switch n := len(g.Tasks); {
	case n == 0:
		ps.Add(path+".Tasks", "group %q needs a task", g.Name)
	case n > fleet.MaxTasks:
		ps.Add(path+".Tasks", "%d tasks: at most %d are allowed", n, fleet.MaxTasks)
		return
	}
	seen, leader := map[string]int{}, -1
	for i := range g.Tasks {
		t, taskPath := &g.Tasks[i], fmt.Sprintf("%s.Tasks[%d]", path, i)
		if first, dup := seen[t.Name]; dup && t.Name != "" {
			ps.Add(taskPath+".Name", "task %q is defined twice in group %q: tasks %d and %d", t.Name, g.Name, first+1, i+1)
		}
		seen[t.Name] = i
		if t.Leader && leader >= 0 {
			ps.Add(taskPath+".Leader", "a group has one leader at most, and task %q is it", g.Tasks[leader].Name)
		} else if t.Leader {
			leader = i
		}
		validateTask(t, ps, taskPath, g)
	}
}

func checkName(ps *fleet.Problems, path, what, name string, longest int) {
	switch {
	case name == "":
		ps.Add(path, "%s needs a name", what)
	case len(name) > longest:
		ps.Add(path, "%s has a name of %d characters: at most %d are allowed", what, len(name), longest)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		ps.Add(path, "%s may not have control characters in its name: %q", what, name)
	}
}

func checkMeta(ps *fleet.Problems, path string, meta map[string]string) {
	if _, ok := meta[""]; ok {
		ps.Add(path, "a key may not be empty")
	}
}

func checkDuration(ps *fleet.Problems, path string, d time.Duration) {
	switch {
	case d < 0:
		ps.Add(path, "may not be negative: %s", d)
	case d > fleet.MaxDuration:
		ps.Add(path, "%s is longer than 400 days", d)
	}
}

// checkOneOf refuses a value that is none of the known ones.
func checkOneOf(ps *fleet.Problems, path, hint, what, value string, known ...string) {
	if !slices.Contains(known, value) {
		ps.AddHint(path, hint, "%s %q", what, value)
	}
}

// checkNotNegative refuses a negative number.
func checkNotNegative(ps *fleet.Problems, path string, n int) {
	if n < 0 {
		ps.Add(path, "may not be negative: %d", n)
	}
}
