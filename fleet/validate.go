package fleet

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of names and lists of a job.
const (
	MaxJobIDLength = 255
	MaxNameLength  = 128
	MaxTaskGroups  = 1000
	MaxTasks       = 100 // in a group
	MaxLogFiles    = 1000
	MaxDuration    = 400 * 24 * time.Hour // the longest absence a link is meant to survive
	// MinStopOnClientAfter is the shortest time without a hub after which an edge
	// may be told to stop an allocation: it beats three times within it.
	MinStopOnClientAfter = 3 * time.Second
)

// Validate returns all that is wrong with a job whose defaults are filled in. It
// knows nothing of drivers, nodes and other jobs: whether the driver exists is for
// whoever registers the job.
func (j *Job) Validate() Problems {
	var ps Problems
	checkName(&ps, "ID", "the job", string(j.ID), MaxJobIDLength)
	if strings.ContainsAny(string(j.ID), " \t\r\n") {
		ps.add("ID", "a job's ID may not contain spaces")
	}
	if strings.ContainsRune(j.Name, 0) {
		ps.add("Name", "a job's name may not contain a NUL")
	}
	switch j.Type {
	case JobTypeService, JobTypeBatch, JobTypeSystem, JobTypeSysBatch:
	default:
		ps.addHint("Type", "it is service, batch, system or sysbatch", "unknown job type %q", j.Type)
	}
	if j.Priority < JobPriorityMin || j.Priority > JobPriorityMax {
		ps.add("Priority", "must be between %d and %d, not %d", JobPriorityMin, JobPriorityMax, j.Priority)
	}
	for i, dc := range j.Datacenters {
		if dc == "" {
			ps.add(fmt.Sprintf("Datacenters[%d]", i), "a datacenter's name may not be empty")
		}
	}
	checkMeta(&ps, "Meta", j.Meta)
	checkConstraints(&ps, "", j.Constraints)
	j.validateKind(&ps)
	j.validateGroups(&ps)
	return ps
}

func (j *Job) validateGroups(ps *Problems) {
	switch n := len(j.TaskGroups); {
	case n == 0:
		ps.add("TaskGroups", "a job needs a group")
	case n > MaxTaskGroups:
		ps.add("TaskGroups", "%d groups, at most %d", n, MaxTaskGroups)
		return
	}
	seen := map[string]int{}
	total := 0
	for i := range j.TaskGroups {
		g, path := &j.TaskGroups[i], fmt.Sprintf("TaskGroups[%d]", i)
		if first, dup := seen[g.Name]; dup && g.Name != "" {
			ps.add(path+".Name", "group %q is there twice: groups %d and %d", g.Name, first+1, i+1)
		}
		seen[g.Name] = i
		total += max(0, min(g.Count, JobCountMax+1))
		g.validateGroup(ps, path, j.Type)
	}
	if total > JobCountMax && len(j.TaskGroups) > 1 {
		ps.add("TaskGroups", "%d allocations together, at most %d", total, JobCountMax)
	}
}

func (g *TaskGroup) validateGroup(ps *Problems, path, jobType string) {
	checkName(ps, path+".Name", "a group", g.Name, MaxNameLength)
	switch {
	case g.Count < 0:
		ps.add(path+".Count", "may not be negative: %d", g.Count)
	case g.Count > JobCountMax:
		ps.add(path+".Count", "%d is more than %d", g.Count, JobCountMax)
	case g.Count > 1 && RunsEverywhere(jobType):
		ps.add(path+".Count", "jobs of type %s have one of a group on each node, not %d", jobType, g.Count)
	}
	checkMeta(ps, path+".Meta", g.Meta)
	checkConstraints(ps, path, g.Constraints)
	validateRestart(ps, path+".RestartPolicy", g.RestartPolicy)
	validateReschedule(ps, path+".ReschedulePolicy", g.ReschedulePolicy, jobType)
	validateDisconnect(ps, path+".Disconnect", g.Disconnect, jobType)
	if g.EphemeralDisk.SizeMB < MinDiskMB {
		ps.add(path+".EphemeralDisk.SizeMB", "must be at least %d MB, not %d", MinDiskMB, g.EphemeralDisk.SizeMB)
	}
	g.validateParts(ps, path)
	switch n := len(g.Tasks); {
	case n == 0:
		ps.add(path+".Tasks", "group %q needs a task", g.Name)
	case n > MaxTasks:
		ps.add(path+".Tasks", "%d tasks, at most %d", n, MaxTasks)
		return
	}
	seen, leader := map[string]int{}, -1
	for i := range g.Tasks {
		t, taskPath := &g.Tasks[i], fmt.Sprintf("%s.Tasks[%d]", path, i)
		if first, dup := seen[t.Name]; dup && t.Name != "" {
			ps.add(taskPath+".Name", "task %q is there twice in group %q: tasks %d and %d", t.Name, g.Name, first+1, i+1)
		}
		seen[t.Name] = i
		if t.Leader && leader >= 0 {
			ps.add(taskPath+".Leader", "a group has one leader at most, and task %q is it", g.Tasks[leader].Name)
		} else if t.Leader {
			leader = i
		}
		t.validateTask(ps, taskPath, g)
	}
}

// reserved are names of folders that an allocation has beside those of its tasks.
var reserved = []string{"alloc", ".", ".."}

var signalName = regexp.MustCompile(`^SIG[A-Z0-9]+([+-][0-9]+)?$`)

func (t *Task) validateTask(ps *Problems, path string, g *TaskGroup) {
	checkName(ps, path+".Name", "a task", t.Name, MaxNameLength)
	if strings.ContainsAny(t.Name, `/\`) {
		ps.add(path+".Name", "a task's name may not contain slashes: it names a folder")
	}
	if slices.Contains(reserved, t.Name) {
		ps.add(path+".Name", "a task may not be named %q: that folder is the allocation's own", t.Name)
	}
	if t.Driver == "" {
		ps.add(path+".Driver", "task %q needs a driver", t.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(t.Env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			ps.add(path+".Env", "%q cannot name a variable", k)
		}
		if strings.ContainsRune(t.Env[k], 0) {
			ps.add(path+".Env."+k, "a variable may not contain a NUL")
		}
	}
	checkMeta(ps, path+".Meta", t.Meta)
	for i, c := range t.Constraints {
		if c.Operand == OpDistinctHosts || c.Operand == OpDistinctProp {
			ps.add(fmt.Sprintf("%s.Constraints[%d].Operand", path, i),
				"%s concerns whole allocations: it belongs to the job or the group", c.Operand)
		}
	}
	checkConstraints(ps, path, t.Constraints)
	if t.RestartPolicy != nil && (g.RestartPolicy == nil || *t.RestartPolicy != *g.RestartPolicy) {
		validateRestart(ps, path+".RestartPolicy", t.RestartPolicy)
	}
	checkDuration(ps, path+".KillTimeout", t.KillTimeout)
	if t.KillSignal != "" && !signalName.MatchString(t.KillSignal) {
		ps.addHint(path+".KillSignal", "SIGTERM, SIGINT, …", "%q is not the name of a signal", t.KillSignal)
	}
	t.validateParts(ps, path, g)
	t.validateResources(ps, path, g)
}

func (t *Task) validateResources(ps *Problems, path string, g *TaskGroup) {
	switch r := t.Resources; {
	case r.Cores < 0:
		ps.add(path+".Resources.Cores", "may not be negative: %d", r.Cores)
	case r.Cores > 0 && r.CPU > 0:
		ps.add(path+".Resources.Cores", "a task asks for cpu or for cores, not for both")
	case r.Cores == 0 && r.CPU < MinCPU:
		ps.add(path+".Resources.CPU", "must be at least %d MHz, not %d", MinCPU, r.CPU)
	}
	if most := t.Resources.MemoryMaxMB; most != 0 && most != -1 && most < t.Resources.MemoryMB {
		ps.add(path+".Resources.MemoryMaxMB", "%d MB is less than the memory of %d MB", most, t.Resources.MemoryMB)
	}
	if t.Resources.SecretsMB < 0 {
		ps.add(path+".Resources.SecretsMB", "may not be negative: %d", t.Resources.SecretsMB)
	}
	checkNetworks(ps, path+".Resources.Networks", t.Resources.Networks)
	t.validateDevices(ps, path)
	if t.Resources.MemoryMB < MinMemoryMB {
		ps.add(path+".Resources.MemoryMB", "must be at least %d MB, not %d", MinMemoryMB, t.Resources.MemoryMB)
	}
	if t.Resources.DiskMB < 0 {
		ps.add(path+".Resources.DiskMB", "may not be negative: %d", t.Resources.DiskMB)
	}
	l := t.LogConfig
	if l.MaxFiles < 1 || l.MaxFiles > MaxLogFiles {
		ps.add(path+".LogConfig.MaxFiles", "must be between 1 and %d, not %d", MaxLogFiles, l.MaxFiles)
		return
	}
	if l.MaxFileSizeMB < 1 {
		ps.add(path+".LogConfig.MaxFileSizeMB", "must be at least 1 MB, not %d", l.MaxFileSizeMB)
		return
	}
	if logs := int64(l.MaxFiles) * int64(l.MaxFileSizeMB); logs >= int64(g.EphemeralDisk.SizeMB) {
		ps.addHint(path+".LogConfig", "raise the group's ephemeral_disk, or keep fewer logs",
			"task %q may write %d MB of logs, and its group has %d MB of disk", t.Name, logs, g.EphemeralDisk.SizeMB)
	}
}

func validateRestart(ps *Problems, path string, p *RestartPolicy) {
	if p == nil {
		return
	}
	if p.Mode != RestartModeFail && p.Mode != RestartModeDelay {
		ps.addHint(path+".Mode", "it is fail or delay", "unknown restart mode %q", p.Mode)
	}
	if p.Attempts < 0 {
		ps.add(path+".Attempts", "may not be negative: %d", p.Attempts)
		return
	}
	if p.Attempts == 0 && p.Mode == RestartModeDelay {
		ps.add(path+".Attempts", "mode delay with 0 attempts is ambiguous")
	}
	if p.Interval < 5*time.Second {
		ps.add(path+".Interval", "must be at least 5s, not %s", p.Interval)
	}
	checkDuration(ps, path+".Interval", p.Interval)
	checkDuration(ps, path+".Delay", p.Delay)
	if p.Interval > 0 && p.Delay > 0 && int64(p.Attempts) > int64(p.Interval/p.Delay) {
		ps.add(path+".Interval", "%d attempts with a delay of %s do not fit into %s", p.Attempts, p.Delay, p.Interval)
	}
}

func validateDisconnect(ps *Problems, path string, d *Disconnect, jobType string) {
	if d == nil {
		return
	}
	if d.LostAfter != nil {
		checkDuration(ps, path+".LostAfter", *d.LostAfter)
	}
	if d.StopOnClientAfter != nil {
		checkDuration(ps, path+".StopOnClientAfter", *d.StopOnClientAfter)
		if after := *d.StopOnClientAfter; after >= 0 && after < MinStopOnClientAfter {
			ps.add(path+".StopOnClientAfter", "must be at least %s, not %s: an edge that is in touch beats once a second at most",
				MinStopOnClientAfter, after)
		}
		if RunsEverywhere(jobType) {
			ps.add(path+".StopOnClientAfter", "jobs of type %s do not allow stop_on_client_after", jobType)
		}
	}
	if d.LostAfter != nil && d.StopOnClientAfter != nil {
		ps.add(path+".StopOnClientAfter", "lost_after and stop_on_client_after exclude each other")
	}
	switch d.Reconcile {
	case "", ReconcileKeepOriginal, ReconcileKeepReplacement, ReconcileLongestRunning, ReconcileBestScore:
	default:
		ps.addHint(path+".Reconcile", "it is best_score, keep_original, keep_replacement or longest_running",
			"unknown way to reconcile %q", d.Reconcile)
	}
}

func checkConstraints(ps *Problems, path string, cs []Constraint) {
	for i, c := range cs {
		if _, err := c.Compile(); err != nil {
			ps.add(joinPath(path, fmt.Sprintf("Constraints[%d]", i)), "%s", err)
		}
	}
}

func checkName(ps *Problems, path, what, name string, longest int) {
	switch {
	case name == "":
		ps.add(path, "%s needs a name", what)
	case len(name) > longest:
		ps.add(path, "%s has a name of %d characters, at most %d", what, len(name), longest)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		ps.add(path, "%s may not have control characters in its name: %q", what, name)
	}
}

func checkMeta(ps *Problems, path string, meta map[string]string) {
	if _, ok := meta[""]; ok {
		ps.add(path, "a key may not be empty")
	}
}

func checkDuration(ps *Problems, path string, d time.Duration) {
	switch {
	case d < 0:
		ps.add(path, "may not be negative: %s", d)
	case d > MaxDuration:
		ps.add(path, "%s is longer than 400 days", d)
	}
}
