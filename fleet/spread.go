package fleet

// Spread distributes a group's allocations over the values of a node's attribute:
// evenly, or by the percentages of its targets.
type Spread struct {
	Attribute    string
	Weight       int // 1 to 100, default DefaultWeight
	SpreadTarget []SpreadTarget
}

// SpreadTarget is the share of allocations that nodes with one value shall have.
type SpreadTarget struct {
	Value   string
	Percent int
}
