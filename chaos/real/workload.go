package real

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/proc"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// The workload's task never ends by itself and tells each start, so that what
// really ran can be held against what hub and edge say.
const workloadScript = `echo $$ >> "$STARTS/$NOMAD_ALLOC_ID"; exec sleep 86400`

// workload is a job of count tasks; starts is the folder where they tell.
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

// processes counts the live processes of each task on an edge: the first one of
// each, for a task may have more. Supervisors are not among them.
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

// taskPids are the ids of those processes.
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
	return live, nil
}

// cloneName begins the names of machines that have another one's identity. What they
// start is none of the fleet's.
const cloneName = "clone-"

// started counts how often each allocation's task was started, as it told.
func started(starts string) (map[fleet.AllocID]int, error) {
	return countTold(starts, func(told []byte) int {
		return bytes.Count(told, []byte("\n")) - bytes.Count(told, []byte(" "+cloneName))
	})
}

// startsAt counts the starts that tasks told of one edge.
func startsAt(starts, edge string) (n int, err error) {
	told, err := countTold(starts, func(told []byte) int { return bytes.Count(told, []byte(" "+edge+"\n")) })
	for _, of := range told {
		n += of
	}
	return n, err
}

// countTold counts in what the tasks of each allocation told.
func countTold(starts string, count func(told []byte) int) (map[fleet.AllocID]int, error) {
	files, err := os.ReadDir(starts)
	if err != nil {
		return nil, fmt.Errorf("read what tasks told: %w", err)
	}
	counts := map[fleet.AllocID]int{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(starts, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("read what a task told: %w", err)
		}
		counts[fleet.AllocID(f.Name())] = count(b)
	}
	return counts, nil
}
