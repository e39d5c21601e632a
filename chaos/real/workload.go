package real

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/proc"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// workloadScript is the script of a task that records its start in a file and never ends by
// itself. The files show the real starts, independent of hub and edge.
const workloadScript = `echo $$ >> "$STARTS/$NOMAD_ALLOC_ID"; exec sleep 86400`

// workload returns a job of count tasks; starts is the directory where they record their starts.
func workload(id fleet.JobID, count int, starts string) *fleet.Job {
	job := &fleet.Job{
		ID:   id,
		Type: fleet.JobTypeService,
		TaskGroups: []fleet.TaskGroup{{
			Name:  "main",
			Count: count,
			RestartPolicy: &fleet.RestartPolicy{
				Attempts: 10, Interval: time.Minute, Delay: 100 * time.Millisecond, Mode: fleet.RestartModeDelay,
			},
			ReschedulePolicy: &fleet.ReschedulePolicy{
				Delay: 5 * time.Second, DelayFunction: fleet.DelayConstant, Unlimited: true,
			},
			Tasks: []fleet.Task{{
				Name:        "main",
				Driver:      "raw_exec",
				Config:      map[string]any{"command": "/bin/sh", "args": []any{"-c", workloadScript}},
				Env:         map[string]string{"STARTS": starts},
				Resources:   fleet.TaskResources{Resources: fleet.Resources{CPU: 20, MemoryMB: 16}},
				KillTimeout: time.Second,
			}},
		}},
	}
	validate.FillDefaults(job)
	return job
}

// processes returns the number of live processes of each task on an edge. It counts leaders of process groups but no
// supervisors, and only the first process of a container.
func processes(e *cluster.Edge) (map[check.TaskKey]int, error) {
	pids, err := taskPids(e)
	if err != nil {
		return nil, err
	}
	live := make(map[check.TaskKey]int, len(pids))
	for task, of := range pids {
		live[task] = len(of)
	}
	return live, nil
}

// taskPids returns the ids of the processes that processes counts.
func taskPids(e *cluster.Edge) (map[check.TaskKey][]int, error) {
	pids, err := proc.Below(e.Dir)
	if err != nil {
		return nil, err
	}
	live := map[check.TaskKey][]int{}
	for _, pid := range pids {
		program, err := proc.Program(pid)
		if err != nil || program == e.Binary() || !proc.LeadsGroup(pid) {
			continue // ended meanwhile, or no task
		}
		if env, err := proc.Environ(pid); err == nil && env["NOMAD_ALLOC_ID"] != "" {
			task := check.TaskKey{Alloc: fleet.AllocID(env["NOMAD_ALLOC_ID"]), Task: env["NOMAD_TASK_NAME"]}
			live[task] = append(live[task], pid)
		}
	}
	if e.Daemon == nil {
		return live, nil
	}
	contained, err := e.Daemon.FirstProcesses()
	for _, pid := range contained {
		if slices.Contains(pids, pid) {
			continue
		}
		// The edge may no longer know the allocation. A runtime that is still creating the container has no such
		// variables.
		if env, err := proc.Environ(pid); err == nil && env["NOMAD_ALLOC_ID"] != "" {
			task := check.TaskKey{Alloc: fleet.AllocID(env["NOMAD_ALLOC_ID"]), Task: env["NOMAD_TASK_NAME"]}
			live[task] = append(live[task], pid)
		}
	}
	return live, err
}

// cloneName is the prefix of the names of clones. Starts of tasks on clones do not count.
const cloneName = "clone-"

// started returns the number of starts that each allocation's task recorded in the directory `starts`,
// without those on clones.
func started(starts string) (map[fleet.AllocID]int, error) {
	return countTold(starts, func(told []byte) int {
		return bytes.Count(told, []byte("\n")) - bytes.Count(told, []byte(" "+cloneName))
	})
}

// startsAt returns the number of starts that tasks recorded on one edge.
func startsAt(starts, edge string) (n int, err error) {
	told, err := countTold(starts, func(told []byte) int { return bytes.Count(told, []byte(" "+edge+"\n")) })
	for _, of := range told {
		n += of
	}
	return n, err
}

// countTold applies count to the start records of each allocation, and returns the results.
func countTold(starts string, count func(told []byte) int) (map[fleet.AllocID]int, error) {
	files, err := os.ReadDir(starts)
	if err != nil {
		return nil, fmt.Errorf("read the starts of tasks: %w", err)
	}
	counts := map[fleet.AllocID]int{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(starts, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the starts of a task: %w", err)
		}
		counts[fleet.AllocID(f.Name())] = count(b)
	}
	return counts, nil
}
