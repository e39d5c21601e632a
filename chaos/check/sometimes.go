package check

// tally is how often branches were reached.
type tally map[string]uint64
