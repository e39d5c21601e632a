package fleet

import "fmt"

// DefaultWeight is the weight of an affinity or a spread where a job says nothing.
const DefaultWeight = 50

// Affinity is a wish about nodes: LTarget Operand RTarget, as in a Constraint.
// A node that fulfils it is preferred by Weight, or avoided where it is negative.
type Affinity struct {
	LTarget string
	RTarget string
	Operand string // default "="
	Weight  int    // -100 to 100, not 0; default DefaultWeight
}

// Constraint returns the condition without its weight.
func (a Affinity) Constraint() Constraint {
	return Constraint{LTarget: a.LTarget, RTarget: a.RTarget, Operand: a.Operand}
}

// String returns the condition with its weight.
func (a Affinity) String() string { return fmt.Sprintf("%s (%d)", a.Constraint(), a.Weight) }
