package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"skerry/chaos/engine"
	"skerry/chaos/proc"
	"skerry/chaos/schedule"
)

// CrashTasks kills the tasks of an edge, and makes each task end soon after each later start, by a
// file that the tasks read. Healing removes the file. The evidence is the number of restarts.
func (p platform) CrashTasks(_ context.Context, edge string, f schedule.Fault) (engine.Active, error) {
	marker := filepath.Join(p.s.crashDir(), edge)
	before, err := startsAt(p.s.starts, edge)
	if err != nil {
		return engine.Active{}, err
	}
	ended, after := 0, before
	a := engine.Active{
		Heal: func(context.Context) (err error) {
			if err := os.Remove(marker); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("stop crashing the tasks of %s: %w", edge, err)
			}
			after, err = startsAt(p.s.starts, edge)
			return err
		},
		Evidence: func() (uint64, string) {
			if ended == 0 {
				return 0, "it ran no task"
			}
			return uint64(max(0, after-before)), fmt.Sprintf("%s: %d tasks ended, and were started %d times", edge, ended, after-before)
		},
	}
	life := strconv.FormatFloat(f.Params.Life.Seconds(), 'f', 3, 64)
	if err := os.WriteFile(marker, []byte(life+"\n"), 0o644); err != nil {
		return a, fmt.Errorf("crash the tasks of %s: %w", edge, err)
	}
	tasks, err := taskPids(p.s.fleet.Edge(edge))
	for _, pids := range tasks {
		ended += killProcesses(pids)
	}
	return a, err
}

// killProcesses sends SIGKILL to processes and returns the number of those that still existed.
func killProcesses(pids []int) (killed int) {
	for _, pid := range pids {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// KillDriver kills the processes that supervise an edge's tasks: for raw_exec this comes closest
// to the death of a driver's daemon.
func (p platform) KillDriver(_ context.Context, edge string, _ schedule.Fault) (engine.Active, error) {
	e := p.s.fleet.Edge(edge)
	pids, err := proc.Below(e.Dir)
	if err != nil {
		return engine.Active{}, err
	}
	var supervisors []int
	for _, pid := range pids {
		if program, err := proc.Program(pid); err == nil && program == e.Binary() && pid != e.Pid() {
			supervisors = append(supervisors, pid)
		}
	}
	killed := killProcesses(supervisors)
	return engine.Done(uint64(killed), fmt.Sprintf("%s: %d supervisors killed", edge, killed)), nil
}
