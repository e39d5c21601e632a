package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"skerry/fleet"
)

// Dirs are the folders of runners, in Nomad's layout:
//
//	Allocs/ALLOC/alloc/{data,logs,tmp}         shared by the tasks; logs are TASK.stdout.N and TASK.stderr.N
//	Allocs/ALLOC/TASK/{local,secrets,tmp}      a task's own
//	State/ALLOC/TASK/ATTEMPT                   a driver's private state
//
// State of an allocation is removed when it ends; edge/allocs removes the rest.
type Dirs struct {
	Allocs string
	State  string
}

// folders are the folders of one task.
type folders struct {
	alloc   string // shared by the tasks
	task    string
	local   string
	secrets string
	logs    string
}

// taskFolders returns the paths of a task's folders. It makes none.
func (d Dirs) taskFolders(id fleet.AllocID, task string) folders {
	root := filepath.Join(d.Allocs, string(id))
	return folders{
		alloc:   filepath.Join(root, "alloc"),
		task:    filepath.Join(root, task),
		local:   filepath.Join(root, task, "local"),
		secrets: filepath.Join(root, task, "secrets"),
		logs:    filepath.Join(root, "alloc", "logs"),
	}
}

// createFolders makes the missing folders.
func (f folders) createFolders() error {
	for _, dir := range []string{
		f.logs, filepath.Join(f.alloc, "data"), filepath.Join(f.alloc, "tmp"), f.local, filepath.Join(f.task, "tmp"), f.secrets,
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make task folder: %w", err)
		}
	}
	return nil
}

// attemptStateDir returns the folder of a driver's private state of an attempt. It does not make it.
func (d Dirs) attemptStateDir(id fleet.AllocID, task string, attempt int) string {
	return filepath.Join(d.State, string(id), task, strconv.Itoa(attempt))
}

// lastAttempt returns the highest attempt of a task for which a driver has a folder of state, or 0. It shows
// attempts that the journal has lost.
func (d Dirs) lastAttempt(id fleet.AllocID, task string) int {
	entries, err := os.ReadDir(filepath.Join(d.State, string(id), task))
	if err != nil {
		return 0
	}
	last := 0
	for _, e := range entries {
		if n, err := strconv.ParseInt(e.Name(), 10, 31); err == nil {
			last = max(last, int(n))
		}
	}
	return last
}

// removeDriverState removes the drivers' state of an allocation that has ended.
func (d Dirs) removeDriverState(id fleet.AllocID) error {
	if id == "" {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(d.State, string(id))); err != nil {
		return fmt.Errorf("remove the drivers' state of allocation %s: %w", id, err)
	}
	return nil
}
