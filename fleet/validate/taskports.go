package validate

import (
	"fmt"

	"skerry/fleet"
)

// refuseTaskPorts refuses ports in the network blocks of tasks that cannot be ports of the allocation as well.
func refuseTaskPorts(j *fleet.Job, ps *fleet.Problems) {
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		seen := portOwners{byLabel: map[string]string{}, byNumber: map[string]string{}}
		for _, n := range g.Networks {
			seen.recordPorts(n.ReservedPorts, "the group", nil)
			seen.recordPorts(n.DynamicPorts, "the group", nil)
		}
		for k := range g.Tasks {
			t := &g.Tasks[k]
			for x, n := range t.Resources.Networks {
				path := fmt.Sprintf("TaskGroups[%d].Tasks[%d].Resources.Networks[%d]", i, k, x)
				refuse := func(hint, format string, args ...any) { ps.AddHint(path, hint, format, args...) }
				if mode := g.NetworkMode(); mode != fleet.NetworkHost && len(n.ReservedPorts)+len(n.DynamicPorts) > 0 {
					refuse("write the ports in the group's network block", "task %q has ports of its own, and its group has a network of mode %q", t.Name, mode)
				}
				seen.recordPorts(n.ReservedPorts, "task "+t.Name, refuse)
				seen.recordPorts(n.DynamicPorts, "task "+t.Name, refuse)
			}
		}
	}
}

// portOwners knows who of a group has which port.
type portOwners struct {
	byLabel, byNumber map[string]string
}

// recordPorts records ports, and refuses those that another one has. The ports of groups are checked elsewhere: refuse is nil.
func (o portOwners) recordPorts(ports []fleet.Port, owner string, refuse func(hint, format string, args ...any)) {
	for _, p := range ports {
		number := ""
		if p.Value > 0 && !p.IgnoreCollision {
			number = fmt.Sprintf("%s:%d", p.HostNetwork, p.Value)
		}
		if other, taken := o.byLabel[p.Label]; taken && other != owner && refuse != nil {
			refuse("give each port of a group a label of its own", "port %q of %s is also one of %s", p.Label, owner, other)
		} else if other, taken := o.byNumber[number]; taken && number != "" && other != owner && refuse != nil {
			refuse("give each port of a group a number of its own", "port %d of %s is also one of %s", p.Value, owner, other)
		}
		o.byLabel[p.Label] = owner
		if number != "" {
			o.byNumber[number] = owner
		}
	}
}
