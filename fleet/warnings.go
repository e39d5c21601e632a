package fleet

import "fmt"

// Warnings says what of a valid job is likely not to be what was meant, one line each.
func (j *Job) Warnings() []string {
	var out []string
	promoting, canaries := 0, 0
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
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
