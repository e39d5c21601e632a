// Package artifacts fetches the artifact blocks of a job file: over http and https, from files of the edge, from git,
// from s3 and from registries of images, with the spellings that people know from go-getter.
//
// A content goes into edge/store first, under its source, options and checksum, and is unpacked or copied from there
// into the task's folder. What the store has is not fetched again, so a start needs no network. A download that was
// cut goes on where it ended, also after a restart.
//
// cmd/edged gives the Hook to edge/runner, which calls it before each attempt of a task, in the task's goroutine. The
// package starts no goroutine of its own but for the program git. It persists, beside the store, which artifacts of a
// task are done: STATE/ALLOC/TASK/artifacts, which ends with the allocation. A task that restarts fetches nothing.
//
// Nothing that an archive holds is written outside of its destination, and what it becomes is bounded.
package artifacts
