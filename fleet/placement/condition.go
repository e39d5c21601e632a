package placement

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"skerry/fleet"
)

// Bounds of a Constraint, so that one job cannot make every placement dear.
const (
	MaxConstraintLength = 4096
	MaxRegexpLength     = 1024
)

// Condition is a compiled Constraint. It is immutable, and safe for several goroutines.
type Condition struct {
	c        fleet.Constraint
	re       *regexp.Regexp
	versions versionRange
}

// Compile checks the constraint and makes it ready: the operator and the targets
// must be known, and a regular expression or version bounds well formed.
func Compile(c fleet.Constraint) (Condition, error) {
	cond := Condition{c: c}
	if len(c.LTarget)+len(c.RTarget) > MaxConstraintLength {
		return cond, fmt.Errorf("a constraint may have at most %d characters", MaxConstraintLength)
	}
	if err := checkOperand(c); err != nil {
		return cond, err
	}
	for _, target := range []string{c.LTarget, c.RTarget} {
		if err := checkTarget(target); err != nil {
			return cond, err
		}
	}
	if isInterpolated(c.RTarget) {
		return cond, nil // compiled when the node is known
	}
	var err error
	switch c.Operand {
	case fleet.OpRegexp:
		cond.re, err = compileRegexp(c.RTarget)
	case fleet.OpVersion, fleet.OpSemver:
		cond.versions, err = parseVersionRange(c.RTarget, c.Operand == fleet.OpSemver)
	}
	return cond, err
}

// Conditions compiles several constraints, as far as the first that is wrong.
func Conditions(cs []fleet.Constraint) ([]Condition, error) {
	conds := make([]Condition, 0, len(cs))
	for _, c := range cs {
		cond, err := Compile(c)
		if err != nil {
			return nil, fmt.Errorf("constraint %s: %w", c, err)
		}
		conds = append(conds, cond)
	}
	return conds, nil
}

// Constraint returns what the condition was made of.
func (c Condition) Constraint() fleet.Constraint { return c.c }

// PerNode reports whether the condition depends on properties that are unique to a node, so that
// the nodes of one class may differ.
func (c Condition) PerNode() bool {
	return strings.Contains(c.c.LTarget, "unique.") || strings.Contains(c.c.RTarget, "unique.")
}

// Holds reports whether the node meets the condition. distinct_hosts and distinct_property always
// hold here: the scheduler decides them.
func (c Condition) Holds(n *fleet.Node) bool {
	l, lok := n.Value(c.c.LTarget)
	r, rok := n.Value(c.c.RTarget)
	switch c.c.Operand {
	case fleet.OpDistinctHosts, fleet.OpDistinctProp:
		return true
	case fleet.OpEqual, "==", "is":
		return lok && rok && (l == r || equalQuantities(l, r))
	case fleet.OpNotEqual, "not":
		return (lok || rok) && (lok != rok || l != r && !equalQuantities(l, r))
	case fleet.OpIsSet:
		return lok
	case fleet.OpIsNotSet:
		return !lok
	}
	if !lok || !rok {
		return false
	}
	switch c.c.Operand {
	case fleet.OpLess, fleet.OpLessEqual, fleet.OpGreater, fleet.OpGreaterEqual:
		return compareOrdered(c.c.Operand, l, r)
	case fleet.OpRegexp:
		re := c.re
		if re == nil {
			var err error
			if re, err = compileRegexp(r); err != nil {
				return false
			}
		}
		return re.MatchString(l)
	case fleet.OpVersion, fleet.OpSemver:
		vr := c.versions
		if vr.bounds == nil {
			var err error
			if vr, err = parseVersionRange(r, c.c.Operand == fleet.OpSemver); err != nil {
				return false
			}
		}
		return vr.isSatisfiedBy(l)
	case fleet.OpSetContains, "set_contains_all":
		return setContains(l, r, true)
	case fleet.OpSetContainsAny:
		return setContains(l, r, false)
	}
	return false
}

// checkOperand refuses unknown operands and missing targets.
func checkOperand(c fleet.Constraint) error {
	switch c.Operand {
	case fleet.OpDistinctHosts:
		if c.RTarget != "" {
			if _, err := strconv.ParseBool(c.RTarget); err != nil {
				return fmt.Errorf("%s is true or false, not %q", fleet.OpDistinctHosts, c.RTarget)
			}
		}
		return nil
	case fleet.OpDistinctProp:
		if n, err := strconv.Atoi(c.RTarget); c.RTarget != "" && (err != nil || n < 1) {
			return fmt.Errorf("%s allows a whole number of 1 or more, not %q", fleet.OpDistinctProp, c.RTarget)
		}
	case fleet.OpEqual, "==", "is", fleet.OpNotEqual, "not", fleet.OpLess, fleet.OpLessEqual, fleet.OpGreater, fleet.OpGreaterEqual,
		fleet.OpRegexp, fleet.OpVersion, fleet.OpSemver, fleet.OpSetContains, "set_contains_all", fleet.OpSetContainsAny:
		if c.RTarget == "" {
			return fmt.Errorf("a constraint with operator %q needs a value", c.Operand)
		}
	case fleet.OpIsSet, fleet.OpIsNotSet:
	default:
		return fmt.Errorf("unknown constraint operator %q", c.Operand)
	}
	if c.LTarget == "" {
		return fmt.Errorf("a constraint with operator %q needs an attribute", c.Operand)
	}
	return nil
}

// checkTarget refuses what looks like an interpolation and can never be resolved.
func checkTarget(target string) error {
	for _, kind := range []string{"$attr.", "$meta.", "$node."} {
		if strings.HasPrefix(target, kind) {
			return fmt.Errorf("%q is missing its braces: ${%s}", target, target[1:])
		}
	}
	if !strings.HasPrefix(target, "${") {
		return nil
	}
	if !strings.HasSuffix(target, "}") {
		return fmt.Errorf("%q is missing its closing brace", target)
	}
	name := target[2 : len(target)-1]
	if strings.HasPrefix(name, "attr.") || strings.HasPrefix(name, "meta.") {
		return nil
	}
	if _, known := (&fleet.Node{}).Property(name); known {
		return nil
	}
	return fmt.Errorf("unknown attribute %q: a node has ${attr.…}, ${meta.…}, ${node.unique.id}, "+
		"${node.unique.name}, ${node.datacenter}, ${node.site}, ${node.class} and ${node.pool}", target)
}

// isInterpolated reports whether a target depends on the node.
func isInterpolated(target string) bool { return strings.HasPrefix(target, "${") }

func compileRegexp(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > MaxRegexpLength {
		return nil, fmt.Errorf("a regular expression may have at most %d characters", MaxRegexpLength)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("malformed regular expression %q: %w", pattern, err)
	}
	return re, nil
}

// compareOrdered compares by value where both sides are numbers, or quantities of one dimension; else by letters.
func compareOrdered(op, l, r string) bool {
	c := strings.Compare(l, r)
	if x, y, ok := integers(l, r); ok {
		c = compareNumbers(x, y)
	} else if x, y, ok := floats(l, r); ok {
		c = compareNumbers(x, y)
	} else if x, y, ok := quantities(l, r); ok {
		c = compareNumbers(x, y)
	}
	switch op {
	case fleet.OpLess:
		return c < 0
	case fleet.OpLessEqual:
		return c <= 0
	case fleet.OpGreater:
		return c > 0
	}
	return c >= 0
}

func integers(l, r string) (x, y int64, ok bool) {
	x, errX := strconv.ParseInt(l, 10, 64)
	y, errY := strconv.ParseInt(r, 10, 64)
	return x, y, errX == nil && errY == nil
}

func floats(l, r string) (x, y float64, ok bool) {
	x, errX := strconv.ParseFloat(l, 64)
	y, errY := strconv.ParseFloat(r, 64)
	return x, y, errX == nil && errY == nil
}

func compareNumbers[T int64 | float64](x, y T) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// setContains reports whether the list l has all, or any, of the list r. Lists are
// separated by commas; spaces around an element do not count.
func setContains(l, r string, all bool) bool {
	have := map[string]bool{}
	for e := range strings.SplitSeq(l, ",") {
		have[strings.TrimSpace(e)] = true
	}
	for e := range strings.SplitSeq(r, ",") {
		if have[strings.TrimSpace(e)] != all {
			return !all
		}
	}
	return all
}
