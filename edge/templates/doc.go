// Package templates renders the template blocks of a task before each attempt, and again when what they read changes.
//
// cmd/edged gives the Hook to edge/runner, which calls Prepare in the task's goroutine, and Watch in one of its own
// while an attempt runs. fleet/template renders; the package starts no goroutine.
//
// The newest rendering of each template is in STATE/ALLOC/TASK/template-N, which ends with the allocation. It is used
// whenever a source has no answer, for as long as that takes: a source that is missing ends no task, and keeps none
// from its restart. A change is recorded there before the file is written, and as done after the task was told: an
// agent that dies between the two tells the task when it is back.
package templates
