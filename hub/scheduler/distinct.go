package scheduler

import (
	"strconv"

	"skerry/fleet"
)

// distinctRule is a distinct_hosts or distinct_property constraint: at most limit allocations on nodes
// with the same value.
type distinctRule struct {
	c      fleet.Constraint
	group  string // the group whose allocations count; "": all groups of the job
	limit  int
	counts map[string]int // allocations by value
}

// newDistinctRules returns the distinct rules of the job and of a group.
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

// newDistinctRule returns the rule of a constraint, or nil if it is another constraint or is switched off.
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

// distinctValue returns the node's value that must be distinct; ok is false if it has none.
func (d *distinctRule) distinctValue(n *fleet.Node) (string, bool) {
	if d.c.Operand == fleet.OpDistinctHosts {
		return string(n.ID), true
	}
	return n.Value(d.c.LTarget)
}

// canPlaceOn reports whether the rule allows one more allocation on a node. A node without the value is
// not allowed.
func (d *distinctRule) canPlaceOn(n *fleet.Node) bool {
	v, ok := d.distinctValue(n)
	return ok && d.counts[v] < d.limit
}

// adjustValueCount adds delta allocations of a group on a node to the count of the node's value.
func (d *distinctRule) adjustValueCount(n *fleet.Node, group string, delta int) {
	if d.group != "" && d.group != group {
		return
	}
	if v, ok := d.distinctValue(n); ok {
		d.counts[v] += delta
	}
}
