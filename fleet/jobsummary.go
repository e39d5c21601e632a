package fleet

// JobSummary counts a job's allocations by task group and client status.
type JobSummary struct {
	JobID       JobID
	Namespace   string
	Summary     map[string]TaskGroupSummary // by task group
	Children    *JobChildrenSummary         // nil: the job is neither periodic nor parameterized
	CreateIndex Index
	ModifyIndex Index
}

// TaskGroupSummary counts a task group's allocations. Queued ones are wanted and not placed.
type TaskGroupSummary struct {
	Queued, Starting, Running, Complete, Failed, Lost, Unknown int
}

// JobChildrenSummary counts the jobs that a periodic or parameterized job has launched.
type JobChildrenSummary struct {
	Pending, Running, Dead int64
}
