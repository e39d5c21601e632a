// Package templates renders the template blocks of a task before each attempt, and again when their sources change.
//
// cmd/edged gives the Hook to edge/runner, which calls Prepare in the task's goroutine, and Watch in one of its own
// while an attempt runs. fleet/template renders; the package starts no goroutine.
//
// The newest rendering of each template is in STATE/ALLOC/TASK/template-N, which ends with the allocation. It is used
// whenever a source has no answer, however long that lasts: a missing source neither ends a task nor delays its
// restart. A change is recorded there before the file is written, and marked done after the task was told: an
// agent that died between the two tells the task after its restart.
package templates
