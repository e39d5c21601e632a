package fleet

import "time"

// How an allocation's health is told in an update and in a migration.
const (
	HealthChecks     = "checks"
	HealthTaskStates = "task_states"
	HealthManual     = "manual"
)

// Migrate says how a group's allocations leave a node that is drained. Service jobs
// alone have one.
type Migrate struct {
	MaxParallel     int
	HealthCheck     string
	MinHealthyTime  time.Duration
	HealthyDeadline time.Duration
}

// DefaultMigrate returns how allocations of a job type leave a drained node where a
// job file says nothing; nil for types that are not migrated.
func DefaultMigrate(jobType string) *Migrate {
	if jobType != JobTypeService {
		return nil
	}
	return &Migrate{MaxParallel: 1, HealthCheck: HealthChecks, MinHealthyTime: 10 * time.Second, HealthyDeadline: 5 * time.Minute}
}
