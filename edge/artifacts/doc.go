// Package artifacts fetches the artifact blocks of a job file: over http and https, from files of the edge, from git,
// from s3 and from registries of images, with the spellings that people know from go-getter.
//
// The package first puts a content into edge/store, under its source, options and checksum, and unpacks or copies it
// from there into the task's folder. It does not fetch a content that the store has, so a start needs no network. An
// interrupted download is resumed, also after a restart of the agent.
//
// cmd/edged gives the Hook to edge/runner, which calls it before each attempt of a task, in the task's goroutine. The
// package starts no goroutine. It persists, beside the store, which artifacts of a
// task are done: STATE/ALLOC/TASK/artifacts, which ends with the allocation. A task that restarts fetches nothing.
//
// No file of an archive is written outside of the destination, and the unpacked size is bounded.
package artifacts
