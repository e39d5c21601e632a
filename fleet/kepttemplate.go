package fleet

import "time"

// KeptTemplate is the newest rendering that an edge has of a template or a secret block of a task, without its text.
type KeptTemplate struct {
	Task     string
	Name     string    // such as "template 1 (local/db.conf)"
	Rendered time.Time // by the edge's wall clock, at most an hour before the last time that the sources gave this text
	// Failing says why it could not be rendered again, and Since from when on, by the edge's wall clock; "": it can be.
	Failing string     `json:",omitempty"`
	Since   *time.Time `json:",omitempty"`
}
