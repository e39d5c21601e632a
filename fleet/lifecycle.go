package fleet

// Hooks of a task that is not a main one.
const (
	HookPrestart  = "prestart"
	HookPoststart = "poststart"
	HookPoststop  = "poststop"
)

// Lifecycle says when in an allocation's life a task runs. A sidecar runs on beside
// the main tasks.
type Lifecycle struct {
	Hook    string
	Sidecar bool
}

// TaskSchedule is when a task may run.
type TaskSchedule struct {
	Cron *TaskScheduleCron
}

// TaskScheduleCron starts and stops a task at times.
type TaskScheduleCron struct {
	Start    string
	End      string
	Timezone string
}

// RunsUntilStopped reports whether a task runs as long as its allocation.
func (t *Task) RunsUntilStopped() bool {
	return t.Lifecycle == nil || t.Lifecycle.Sidecar && t.Lifecycle.Hook != HookPoststop
}
