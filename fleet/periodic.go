package fleet

// PeriodicCron is the one way to say when a periodic job runs.
const PeriodicCron = "cron"

// Periodic makes a job a template of which a child is launched at times.
type Periodic struct {
	Enabled         bool     // default true
	Spec            string   // one cron expression, or
	Specs           []string // several
	SpecType        string   // default PeriodicCron
	ProhibitOverlap bool     // no launch while the child before it runs
	TimeZone        string   // default UTC
	// RunAtEdge makes the nodes launch the job's allocations themselves, also without a link. There are no children.
	RunAtEdge bool `json:",omitempty"`
}

// IsPeriodic reports whether hubs launch children of the job at times, and it does not run itself.
func (j *Job) IsPeriodic() bool { return j.Periodic != nil && !j.Periodic.RunAtEdge }

// RunsAtEdge reports whether nodes launch the job's allocations at times.
func (j *Job) RunsAtEdge() bool { return j != nil && j.Periodic != nil && j.Periodic.RunAtEdge }
