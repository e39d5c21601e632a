package fleet

import (
	"fmt"
	"slices"
)

// Warnings says what of a valid job is likely not to be what was meant, one line each.
func (j *Job) Warnings() []string {
	var out []string
	promoting, canaries := 0, 0
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		if g.HasServices() && !g.lingers() {
			out = append(out, fmt.Sprintf("group %q has services, and neither it nor a task has a shutdown_delay: who has just found them meets a task that stops", g.Name))
		}
		for k := range g.Tasks {
			out = append(out, g.Tasks[k].identityWarnings()...)
		}
		u := g.Update
		if u == nil {
			continue
		}
		if u.Canary > 0 {
			canaries++
			if u.AutoPromote {
				promoting++
			}
		}
		if j.Type == JobTypeService && g.Count > 0 && u.MaxParallel > g.Count {
			out = append(out, fmt.Sprintf("group %q: max_parallel is %d, and its count %d: an update replaces all of them at once", g.Name, u.MaxParallel, g.Count))
		}
	}
	if promoting > 0 && promoting < canaries {
		out = append(out, fmt.Sprintf("auto_promote is set for %d of %d groups with canaries: nothing is promoted by itself before it is set for all", promoting, canaries))
	}
	return out
}

// lingers reports whether the group or a task of it goes on for a while when its services
// are withdrawn.
func (g *TaskGroup) lingers() bool {
	return g.ShutdownDelay != nil && *g.ShutdownDelay > 0 || slices.ContainsFunc(g.Tasks, func(t Task) bool { return t.ShutdownDelay > 0 })
}

// identityWarnings says which tokens of a task anybody could accept, or for ever.
func (t *Task) identityWarnings() []string {
	var out []string
	for _, w := range t.Identities {
		if w.Name == "" || w.Name == DefaultIdentity {
			continue
		}
		if len(w.Audience) == 0 {
			out = append(out, fmt.Sprintf("task %q: identity %q has no audience (aud): anybody may take it for theirs", t.Name, w.Name))
		}
		if w.TTL == 0 {
			out = append(out, fmt.Sprintf("task %q: identity %q has no ttl: it never expires", t.Name, w.Name))
		}
	}
	return out
}
