package fleet

// RequestedDevice is hardware that a task needs. Name is TYPE, VENDOR/TYPE or
// VENDOR/TYPE/NAME.
type RequestedDevice struct {
	Name        string
	Count       int // default 1
	Constraints []Constraint
	Affinities  []Affinity
}

// NUMA is how a task's cores lie to each other and to its devices.
type NUMA struct {
	Affinity string // none, prefer or require
	Devices  []string
}
