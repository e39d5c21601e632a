package fleet

// CheckResult is the newest result of a check, as Nomad's clients read it.
type CheckResult struct {
	ID         string
	Check      string
	Group      string // the allocation's name: JOB.GROUP[INDEX]
	Mode       string
	Output     string
	Service    string
	Task       string `json:",omitempty"`
	Status     string
	StatusCode int   `json:",omitempty"` // of an http check
	Timestamp  int64 // Unix seconds by the edge's wall clock; 0: not run yet
}
