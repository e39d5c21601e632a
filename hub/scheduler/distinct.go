package scheduler

import (
	"strconv"

	"skerry/fleet"
)

// distinct is a distinct_hosts or distinct_property constraint: at most limit
// allocations where the value is the same.
type distinct struct {
	c      fleet.Constraint
	group  string // whose allocations count; "": all of the job's
	limit  int
	counts map[string]int // allocations by value
}

// distincts makes the rules that hold for a group.
func distincts(job *fleet.Job, g *fleet.TaskGroup) []*distinct {
	var rules []*distinct
	add := func(cs []fleet.Constraint, group string) {
		for _, c := range cs {
			if d := newDistinct(c, group); d != nil {
				rules = append(rules, d)
			}
		}
	}
	add(job.Constraints, "")
	add(g.Constraints, g.Name)
	return rules
}

func newDistinct(c fleet.Constraint, group string) *distinct {
	d := &distinct{c: c, group: group, limit: 1, counts: map[string]int{}}
	switch c.Operand {
	case fleet.OpDistinctHosts:
		if on, err := strconv.ParseBool(c.RTarget); err == nil && !on {
			return nil
		}
	case fleet.OpDistinctProp:
		if n, err := strconv.Atoi(c.RTarget); err == nil {
			d.limit = n
		}
	default:
		return nil
	}
	return d
}

func (d *distinct) value(n *fleet.Node) (string, bool) {
	if d.c.Operand == fleet.OpDistinctHosts {
		return string(n.ID), true
	}
	return n.Value(d.c.LTarget)
}

// allows reports whether one more allocation may go onto a node.
func (d *distinct) allows(n *fleet.Node) bool {
	v, ok := d.value(n)
	return ok && d.counts[v] < d.limit
}

// count counts delta allocations of a group on a node.
func (d *distinct) count(n *fleet.Node, group string, delta int) {
	if d.group != "" && d.group != group {
		return
	}
	if v, ok := d.value(n); ok {
		d.counts[v] += delta
	}
}
