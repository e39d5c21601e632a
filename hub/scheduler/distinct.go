package scheduler

import (
	"strconv"

	"skerry/fleet"
)

// distinctRule is a distinct_hosts or distinct_property constraint: at most limit
// allocations where the value is the same.
type distinctRule struct {
	c      fleet.Constraint
	group  string // whose allocations count; "": all of the job's
	limit  int
	counts map[string]int // allocations by value
}

// newDistinctRules makes the rules that hold for a group.
func newDistinctRules(job *fleet.Job, g *fleet.TaskGroup) []*distinctRule {
	var rules []*distinctRule
	add := func(cs []fleet.Constraint, group string) {
		for _, c := range cs {
			if d := newDistinctRule(c, group); d != nil {
				rules = append(rules, d)
			}
		}
	}
	add(job.Constraints, "")
	add(g.Constraints, g.Name)
	return rules
}

func newDistinctRule(c fleet.Constraint, group string) *distinctRule {
	d := &distinctRule{c: c, group: group, limit: 1, counts: map[string]int{}}
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

func (d *distinctRule) distinctValue(n *fleet.Node) (string, bool) {
	if d.c.Operand == fleet.OpDistinctHosts {
		return string(n.ID), true
	}
	return n.Value(d.c.LTarget)
}

// canPlaceOn reports whether one more allocation may go onto a node.
func (d *distinctRule) canPlaceOn(n *fleet.Node) bool {
	v, ok := d.distinctValue(n)
	return ok && d.counts[v] < d.limit
}

// adjustValueCount counts delta allocations of a group on a node.
func (d *distinctRule) adjustValueCount(n *fleet.Node, group string, delta int) {
	if d.group != "" && d.group != group {
		return
	}
	if v, ok := d.distinctValue(n); ok {
		d.counts[v] += delta
	}
}
