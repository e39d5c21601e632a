package fleet

import (
	"maps"
	"time"
)

// DrainStrategy says that a node is being emptied, and how.
type DrainStrategy struct {
	// Deadline is how long what is left may stay: below 0 nothing may, 0 says that
	// there is none.
	Deadline         time.Duration
	IgnoreSystemJobs bool // what runs on every node stays
	// ForceDeadline is when what is left is stopped: where Deadline ends, by the
	// hub's clock. Zero: never.
	ForceDeadline time.Time
	StartedAt     time.Time // kept where the strategy of a drain is changed
}

// Statuses of a DrainMetadata.
const (
	DrainDraining = "draining"
	DrainComplete = "complete"
	DrainCanceled = "canceled"
)

// DrainMetadata is what is known of a node's last drain, also after it.
type DrainMetadata struct {
	StartedAt  time.Time
	UpdatedAt  time.Time
	Status     string
	AccessorID string            `json:",omitempty"` // of the token that drained the node, or canceled the drain
	Meta       map[string]string `json:",omitempty"` // as whoever asked for it says
}

// NewDrain is the strategy of a drain that is asked for now.
func NewDrain(deadline time.Duration, ignoreSystem bool, now time.Time) *DrainStrategy {
	d := &DrainStrategy{Deadline: deadline, IgnoreSystemJobs: ignoreSystem, StartedAt: now.UTC()}
	if deadline != 0 {
		d.ForceDeadline = now.Add(max(deadline, 0)).UTC()
	}
	return d
}

// Equal reports whether two strategies ask for the same; when they began does not
// count.
func (d *DrainStrategy) Equal(o *DrainStrategy) bool {
	if d == nil || o == nil {
		return d == o
	}
	return d.Deadline == o.Deadline && d.IgnoreSystemJobs == o.IgnoreSystemJobs && d.ForceDeadline.Equal(o.ForceDeadline)
}

// Over reports whether the deadline has passed.
func (d *DrainStrategy) Over(now time.Time) bool {
	return !d.ForceDeadline.IsZero() && !now.Before(d.ForceDeadline)
}

// Equal reports whether two records say the same.
func (m *DrainMetadata) Equal(o *DrainMetadata) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.Status == o.Status && m.AccessorID == o.AccessorID && m.StartedAt.Equal(o.StartedAt) && m.UpdatedAt.Equal(o.UpdatedAt) && maps.Equal(m.Meta, o.Meta)
}
