package fleet

import (
	"fmt"
	"slices"
)

// validateKind checks what a job's type decides: what it may be launched by, and what
// its groups may say.
func (j *Job) validateKind(ps *Problems) {
	batch := RunsToCompletion(j.Type)
	everywhere := RunsEverywhere(j.Type)
	if j.Periodic != nil {
		if !batch {
			ps.add("Periodic", "jobs of type %s cannot be periodic: batch and sysbatch jobs can", j.Type)
		}
		j.Periodic.validatePeriodic(ps, "Periodic")
	}
	if j.ParameterizedJob != nil {
		if !batch {
			ps.add("ParameterizedJob", "jobs of type %s cannot be parameterized: batch and sysbatch jobs can", j.Type)
		}
		j.ParameterizedJob.validateParameterized(ps, "ParameterizedJob")
	}
	if everywhere {
		refuseRanking(ps, "", j.Type, j.Affinities, j.Spreads)
	}
	checkAffinities(ps, "", j.Affinities)
	checkSpreads(ps, "", j.Spreads)
	for i := range j.TaskGroups {
		g, path := &j.TaskGroups[i], fmt.Sprintf("TaskGroups[%d]", i)
		if everywhere {
			refuseRanking(ps, path, j.Type, g.Affinities, g.Spreads)
			for k, t := range g.Tasks {
				refuseRanking(ps, fmt.Sprintf("%s.Tasks[%d]", path, k), j.Type, t.Affinities, nil)
			}
		}
		g.validateKind(ps, path, j.Type, batch)
	}
}

func (g *TaskGroup) validateKind(ps *Problems, path, jobType string, batch bool) {
	if g.Update != nil && batch {
		ps.add(path+".Update", "jobs of type %s do not allow an update block", jobType)
	} else if g.Update != nil {
		g.Update.validateUpdate(ps, path+".Update")
	}
	if g.Migrate != nil && jobType != JobTypeService {
		ps.add(path+".Migrate", "jobs of type %s do not allow a migrate block", jobType)
	} else if g.Migrate != nil {
		g.Migrate.validateMigrate(ps, path+".Migrate")
	}
	if g.MaxRunDuration == nil {
		return
	}
	if !batch {
		ps.add(path+".MaxRunDuration", "jobs of type %s do not allow max_run_duration", jobType)
	}
	if *g.MaxRunDuration <= 0 {
		ps.add(path+".MaxRunDuration", "must be more than nothing, not %s", *g.MaxRunDuration)
	}
	checkDuration(ps, path+".MaxRunDuration", max(0, *g.MaxRunDuration))
}

// refuseRanking refuses what ranks nodes in jobs that run on every node.
func refuseRanking(ps *Problems, path, jobType string, affinities []Affinity, spreads []Spread) {
	if len(affinities) > 0 {
		ps.add(joinPath(path, "Affinities"), "jobs of type %s may not have an affinity block: they run on every node", jobType)
	}
	if len(spreads) > 0 {
		ps.add(joinPath(path, "Spreads"), "jobs of type %s may not have a spread block: they run on every node", jobType)
	}
}

func checkAffinities(ps *Problems, path string, as []Affinity) {
	for i, a := range as {
		at := joinPath(path, fmt.Sprintf("Affinities[%d]", i))
		if a.Weight < -100 || a.Weight > 100 || a.Weight == 0 {
			ps.add(at+".Weight", "must be between -100 and 100, and not 0: %d", a.Weight)
		}
		if a.Operand == OpDistinctHosts || a.Operand == OpDistinctProp {
			ps.add(at+".Operand", "%s is a constraint's: an affinity cannot have it", a.Operand)
			continue
		}
		if _, err := a.Constraint().Compile(); err != nil {
			ps.add(at, "%s", err)
		}
	}
}

func checkSpreads(ps *Problems, path string, spreads []Spread) {
	for i, s := range spreads {
		at := joinPath(path, fmt.Sprintf("Spreads[%d]", i))
		if s.Attribute == "" {
			ps.add(at+".Attribute", "a spread needs an attribute")
		} else if err := checkTarget(s.Attribute); err != nil {
			ps.add(at+".Attribute", "%s", err)
		}
		if s.Weight < 1 || s.Weight > 100 {
			ps.add(at+".Weight", "must be between 1 and 100, not %d", s.Weight)
		}
		sum, seen := 0, map[string]bool{}
		for k, t := range s.SpreadTarget {
			target := fmt.Sprintf("%s.SpreadTarget[%d]", at, k)
			if seen[t.Value] {
				ps.add(target+".Value", "target %q is there twice", t.Value)
			}
			seen[t.Value] = true
			if t.Percent < 0 || t.Percent > 100 {
				ps.add(target+".Percent", "must be between 0 and 100, not %d", t.Percent)
			}
			sum += t.Percent
		}
		if sum > 100 {
			ps.add(at, "the targets have %d percent together, at most 100", sum)
		}
	}
}

func (u *Update) validateUpdate(ps *Problems, path string) {
	checkHealth(ps, path, u.HealthCheck)
	if u.MaxParallel < 0 {
		ps.add(path+".MaxParallel", "may not be negative: %d", u.MaxParallel)
	}
	if u.Canary < 0 {
		ps.add(path+".Canary", "may not be negative: %d", u.Canary)
	}
	if u.AutoPromote && u.Canary == 0 {
		ps.add(path+".AutoPromote", "auto_promote needs canaries: set canary")
	}
	checkDuration(ps, path+".Stagger", u.Stagger)
	checkDuration(ps, path+".MinHealthyTime", u.MinHealthyTime)
	checkDuration(ps, path+".ProgressDeadline", u.ProgressDeadline)
	if u.HealthyDeadline <= 0 {
		ps.add(path+".HealthyDeadline", "must be more than nothing, not %s", u.HealthyDeadline)
	} else if u.MinHealthyTime >= u.HealthyDeadline {
		ps.add(path+".MinHealthyTime", "%s must be less than the healthy_deadline of %s", u.MinHealthyTime, u.HealthyDeadline)
	}
	if u.ProgressDeadline > 0 && u.HealthyDeadline >= u.ProgressDeadline {
		ps.add(path+".HealthyDeadline", "%s must be less than the progress_deadline of %s", u.HealthyDeadline, u.ProgressDeadline)
	}
	u.validateSites(ps, path)
}

// maxWindows bounds the windows of an update block: each travels with what it holds back.
const maxWindows = 10

// validateSites checks what is Skerry's own; whether a window's expression says
// something is for package cron to tell.
func (u *Update) validateSites(ps *Problems, path string) {
	if u.MaxUnavailablePerSite < 0 {
		ps.add(path+".MaxUnavailablePerSite", "may not be negative: %d", u.MaxUnavailablePerSite)
	}
	if _, _, ok := u.WaitShare(); !ok {
		ps.addHint(path+".WaitFor", `it is reachable, all, or a percentage such as "95%"`, "%q says nothing to wait for", u.WaitFor)
	}
	if len(u.Windows) > maxWindows {
		ps.add(path+".Windows", "%d windows: at most %d are taken", len(u.Windows), maxWindows)
	}
	for i, w := range u.Windows {
		at := fmt.Sprintf("%s.Windows[%d]", path, i)
		if w.Cron == "" {
			ps.add(at+".Cron", "a window needs a cron expression that says when it opens")
		}
		if w.Duration <= 0 {
			ps.add(at+".Duration", "must be more than nothing, not %s", w.Duration)
		}
		checkDuration(ps, at+".Duration", max(0, w.Duration))
	}
}

func (m *Migrate) validateMigrate(ps *Problems, path string) {
	checkHealth(ps, path, m.HealthCheck)
	if m.MaxParallel < 0 {
		ps.add(path+".MaxParallel", "may not be negative: %d", m.MaxParallel)
	}
	checkDuration(ps, path+".MinHealthyTime", m.MinHealthyTime)
	checkDuration(ps, path+".HealthyDeadline", m.HealthyDeadline)
	if m.MinHealthyTime > m.HealthyDeadline {
		ps.add(path+".MinHealthyTime", "%s must be less than the healthy_deadline of %s", m.MinHealthyTime, m.HealthyDeadline)
	}
}

func checkHealth(ps *Problems, path, check string) {
	switch check {
	case HealthChecks, HealthTaskStates, HealthManual:
	default:
		ps.addHint(path+".HealthCheck", "it is checks, task_states or manual", "unknown way to check health %q", check)
	}
}

// validatePeriodic checks the block's form; whether its expressions say something is for
// package cron to tell.
func (p *Periodic) validatePeriodic(ps *Problems, path string) {
	if p.SpecType != PeriodicCron {
		ps.addHint(path+".SpecType", "it is cron", "unknown type %q", p.SpecType)
	}
	switch {
	case p.Spec != "" && len(p.Specs) > 0:
		ps.add(path+".Specs", "cron and crons exclude each other")
	case p.Spec == "" && len(p.Specs) == 0:
		ps.add(path, "a periodic job needs a cron expression")
	}
}

func (p *ParameterizedJob) validateParameterized(ps *Problems, path string) {
	switch p.Payload {
	case PayloadOptional, PayloadRequired, PayloadForbidden:
	default:
		ps.addHint(path+".Payload", "it is optional, required or forbidden", "unknown rule for payloads %q", p.Payload)
	}
	for i, key := range p.MetaOptional {
		if slices.Contains(p.MetaRequired, key) {
			ps.add(fmt.Sprintf("%s.MetaOptional[%d]", path, i), "%q is required and optional", key)
		}
	}
}

// validateScaling checks a task's scaling blocks. Nothing holds the task to their bounds:
// whoever scales it registers its job with other resources.
func (t *Task) validateScaling(ps *Problems, at string) {
	for i, s := range t.ScalingPolicies {
		path := fmt.Sprintf("%s.ScalingPolicies[%d]", at, i)
		switch {
		case s.Type != ScalingVerticalCPU && s.Type != ScalingVerticalMem:
			ps.addHint(path+".Type", "it is vertical_cpu or vertical_mem", "a task has no scaling of type %q", s.Type)
		case slices.ContainsFunc(t.ScalingPolicies[:i], func(o ScalingPolicy) bool { return o.Type == s.Type }):
			ps.add(path+".Type", "a task has one scaling block of type %s", s.Type)
		}
		if s.Min != nil && *s.Min < 0 {
			ps.add(path+".Min", "may not be negative: %d", *s.Min)
		}
		if s.Max != nil && (*s.Max < 0 || s.Min != nil && *s.Max < *s.Min) {
			ps.add(path+".Max", "%d is less than the min", *s.Max)
		}
	}
}

func (s *ScalingPolicy) validateScalingPolicy(ps *Problems, path string, count int) {
	if s.Type != ScalingHorizontal {
		ps.add(path+".Type", "a group is scaled by its count: the type is %s, not %q", ScalingHorizontal, s.Type)
	}
	if s.Max == nil {
		ps.add(path+".Max", "a scaling block needs a max")
		return
	}
	least := 0
	if s.Min != nil {
		least = *s.Min
	}
	switch {
	case least < 0:
		ps.add(path+".Min", "may not be negative: %d", least)
	case *s.Max < least:
		ps.add(path+".Max", "%d is less than the min of %d", *s.Max, least)
	case count < least:
		ps.add(path+".Min", "the group's count of %d is less than %d", count, least)
	case count > *s.Max:
		ps.add(path+".Max", "the group's count of %d is more than %d", count, *s.Max)
	}
}
