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
}

// IsPeriodic reports whether the job is launched at times and does not run itself.
func (j *Job) IsPeriodic() bool { return j.Periodic != nil }
