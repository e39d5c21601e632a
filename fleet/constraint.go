package fleet

// Constraint is a condition on a node: LTarget Operand RTarget. Targets may hold
// ${attr.…}, ${node.…} and ${meta.…}.
type Constraint struct {
	LTarget string
	RTarget string
	Operand string
}

// Operands of a Constraint. "=", "==" and "is" are the same, so are "!=" and
// "not".
const (
	OpEqual          = "="
	OpNotEqual       = "!="
	OpGreater        = ">"
	OpGreaterEqual   = ">="
	OpLess           = "<"
	OpLessEqual      = "<="
	OpRegexp         = "regexp"
	OpSetContains    = "set_contains"
	OpSetContainsAny = "set_contains_any"
	OpVersion        = "version"
	OpSemver         = "semver"
	OpIsSet          = "is_set"
	OpIsNotSet       = "is_not_set"
	OpDistinctHosts  = "distinct_hosts"
	OpDistinctProp   = "distinct_property"
)

// String returns the constraint as a job file has it.
func (c Constraint) String() string {
	switch c.Operand {
	case OpIsSet, OpIsNotSet:
		return c.LTarget + " " + c.Operand
	case OpDistinctHosts:
		return c.Operand
	}
	return c.LTarget + " " + c.Operand + " " + c.RTarget
}
