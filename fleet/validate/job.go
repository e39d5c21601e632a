package validate

import (
	"fmt"
	"slices"

	"skerry/fleet"
)

// validateJobKind checks the parts of a job that its type decides.
func validateJobKind(j *fleet.Job, ps *fleet.Problems) {
	batch := fleet.RunsToCompletion(j.Type)
	everywhere := fleet.RunsEverywhere(j.Type)
	if j.Periodic != nil {
		if !batch {
			ps.Add("Periodic", "jobs of type %s cannot be periodic: batch and sysbatch jobs can", j.Type)
		}
		validatePeriodic(j.Periodic, ps, "Periodic")
	}
	if j.ParameterizedJob != nil {
		if !batch {
			ps.Add("ParameterizedJob", "jobs of type %s cannot be parameterized: batch and sysbatch jobs can", j.Type)
		}
		validateParameterized(j.ParameterizedJob, ps, "ParameterizedJob")
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
		validateGroupKind(g, ps, path, j.Type, batch)
		validateLocalControl(g.LocalControl, ps, path+".LocalControl")
	}
}

func validateGroupKind(g *fleet.TaskGroup, ps *fleet.Problems, path, jobType string, batch bool) {
	if g.Update != nil && batch {
		ps.Add(path+".Update", "jobs of type %s do not allow an update block", jobType)
	} else if g.Update != nil {
		validateUpdate(g.Update, ps, path+".Update")
	}
	if g.Migrate != nil && jobType != fleet.JobTypeService {
		ps.Add(path+".Migrate", "jobs of type %s do not allow a migrate block", jobType)
	} else if g.Migrate != nil {
		validateMigrate(g.Migrate, ps, path+".Migrate")
	}
	if g.MaxRunDuration == nil {
		return
	}
	if !batch {
		ps.Add(path+".MaxRunDuration", "jobs of type %s do not allow max_run_duration", jobType)
	}
	if *g.MaxRunDuration <= 0 {
		ps.Add(path+".MaxRunDuration", "must be longer than 0s, not %s", *g.MaxRunDuration)
	}
	checkDuration(ps, path+".MaxRunDuration", max(0, *g.MaxRunDuration))
}

// refuseRanking refuses affinities and spreads in jobs that run on every node.
func refuseRanking(ps *fleet.Problems, path, jobType string, affinities []fleet.Affinity, spreads []fleet.Spread) {
	if len(affinities) > 0 {
		ps.Add(joinPath(path, "Affinities"), "jobs of type %s may not have an affinity block: they run on every node", jobType)
	}
	if len(spreads) > 0 {
		ps.Add(joinPath(path, "Spreads"), "jobs of type %s may not have a spread block: they run on every node", jobType)
	}
}

func checkAffinities(ps *fleet.Problems, path string, as []fleet.Affinity) {
	for i, a := range as {
		at := joinPath(path, fmt.Sprintf("Affinities[%d]", i))
		if a.Weight < -100 || a.Weight > 100 || a.Weight == 0 {
			ps.Add(at+".Weight", "must be between -100 and 100, and not 0: %d", a.Weight)
		}
		if a.Operand == fleet.OpDistinctHosts || a.Operand == fleet.OpDistinctProp {
			ps.Add(at+".Operand", "%s is only allowed in a constraint, not in an affinity", a.Operand)
		}
	}
}

func checkSpreads(ps *fleet.Problems, path string, spreads []fleet.Spread) {
	for i, s := range spreads {
		at := joinPath(path, fmt.Sprintf("Spreads[%d]", i))
		if s.Attribute == "" {
			ps.Add(at+".Attribute", "a spread needs an attribute")
		}
		if s.Weight < 1 || s.Weight > 100 {
			ps.Add(at+".Weight", "must be between 1 and 100, not %d", s.Weight)
		}
		sum, seen := 0, map[string]bool{}
		for k, t := range s.SpreadTarget {
			target := fmt.Sprintf("%s.SpreadTarget[%d]", at, k)
			if seen[t.Value] {
				ps.Add(target+".Value", "target %q is defined twice", t.Value)
			}
			seen[t.Value] = true
			if t.Percent < 0 || t.Percent > 100 {
				ps.Add(target+".Percent", "must be between 0 and 100, not %d", t.Percent)
			}
			sum += t.Percent
		}
		if sum > 100 {
			ps.Add(at, "the targets have %d percent together, at most 100", sum)
		}
	}
}

// validatePeriodic checks the form of the block. Package cron checks the expressions.
func validatePeriodic(p *fleet.Periodic, ps *fleet.Problems, path string) {
	if p.SpecType != fleet.PeriodicCron {
		ps.AddHint(path+".SpecType", "it is cron", "unknown type %q", p.SpecType)
	}
	switch {
	case p.Spec != "" && len(p.Specs) > 0:
		ps.Add(path+".Specs", "cron and crons exclude each other")
	case p.Spec == "" && len(p.Specs) == 0:
		ps.Add(path, "a periodic job needs a cron expression")
	}
	if p.RunAtEdge && !p.ProhibitOverlap {
		ps.AddHint(path+".ProhibitOverlap", "write prohibit_overlap = true",
			"with run_at_edge, all launches of an allocation use its folder and its ports, so they cannot overlap")
	}
}

func validateParameterized(p *fleet.ParameterizedJob, ps *fleet.Problems, path string) {
	checkOneOf(ps, path+".Payload", "it is optional, required or forbidden", "unknown rule for payloads", p.Payload,
		fleet.PayloadOptional, fleet.PayloadRequired, fleet.PayloadForbidden)
	for i, key := range p.MetaOptional {
		if slices.Contains(p.MetaRequired, key) {
			ps.Add(fmt.Sprintf("%s.MetaOptional[%d]", path, i), "%q is required and optional", key)
		}
	}
}

// validateScaling checks a task's scaling blocks. Nothing enforces their bounds: to scale a task
// is to register its job with other resources.
func validateScaling(t *fleet.Task, ps *fleet.Problems, at string) {
	for i, s := range t.ScalingPolicies {
		path := fmt.Sprintf("%s.ScalingPolicies[%d]", at, i)
		switch {
		case s.Type != fleet.ScalingVerticalCPU && s.Type != fleet.ScalingVerticalMem:
			ps.AddHint(path+".Type", "it is vertical_cpu or vertical_mem", "a task has no scaling of type %q", s.Type)
		case slices.ContainsFunc(t.ScalingPolicies[:i], func(o fleet.ScalingPolicy) bool { return o.Type == s.Type }):
			ps.Add(path+".Type", "a task has one scaling block of type %s", s.Type)
		}
		if s.Min != nil && *s.Min < 0 {
			ps.Add(path+".Min", "may not be negative: %d", *s.Min)
		}
		if s.Max != nil && (*s.Max < 0 || s.Min != nil && *s.Max < *s.Min) {
			ps.Add(path+".Max", "%d is less than the min", *s.Max)
		}
	}
}

func validateScalingPolicy(s *fleet.ScalingPolicy, ps *fleet.Problems, path string, count int) {
	if s.Type != fleet.ScalingHorizontal {
		ps.Add(path+".Type", "a group is scaled by its count: the type is %s, not %q", fleet.ScalingHorizontal, s.Type)
	}
	if s.Max == nil {
		ps.Add(path+".Max", "a scaling block needs a max")
		return
	}
	least := 0
	if s.Min != nil {
		least = *s.Min
	}
	switch {
	case least < 0:
		ps.Add(path+".Min", "may not be negative: %d", least)
	case *s.Max < least:
		ps.Add(path+".Max", "%d is less than the min of %d", *s.Max, least)
	case count < least:
		ps.Add(path+".Min", "the group's count of %d is less than %d", count, least)
	case count > *s.Max:
		ps.Add(path+".Max", "the group's count of %d is more than %d", count, *s.Max)
	}
}
