package fleet

import "time"

// DeploymentOutlook is what becomes of a deployment in which no further allocation becomes healthy.
type DeploymentOutlook struct {
	Deadline    *time.Time `json:",omitempty"` // when it fails; nil: no deadline runs
	Description string     // its status description when it has failed
	RevertsTo   *uint64    `json:",omitempty"` // the version that its job goes back to then; nil: it stays as it is
	// Deferred: the deadline has passed and does not count, since all that is left to do is on
	// disconnected nodes, or waits for an update window.
	Deferred bool `json:",omitempty"`
}
