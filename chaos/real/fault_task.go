package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/proc"
	"skerry/chaos/schedule"
)

var taskKinds = []realKind{
	{kind: schedule.CrashLoop, effects: []check.Effect{check.EndsTasks}, edge: func(s *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault {
		return &crashLoop{s: s, edge: e, life: f.Params.Life}
	}},
	{kind: schedule.DriverDead, effects: []check.Effect{check.EndsTasks}, edge: func(_ *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &unsupervised{edge: e}
	}},
}

// crashLoop has every task of an edge end soon after each of its starts.
type crashLoop struct {
	s      *campaignRun
	edge   *cluster.Edge
	life   time.Duration
	before int
	ended  int
	after  int
}

func (t *crashLoop) crashMarkerPath() string { return filepath.Join(t.s.crashDir(), t.edge.Name) }

func (t *crashLoop) injectFault(context.Context) (err error) {
	if t.before, err = t.s.startsOn(t.edge.Name); err != nil {
		return err
	}
	life := strconv.FormatFloat(t.life.Seconds(), 'f', 3, 64)
	if err := os.WriteFile(t.crashMarkerPath(), []byte(life+"\n"), 0o644); err != nil {
		return fmt.Errorf("have the tasks of %s crash: %w", t.edge.Name, err)
	}
	pids, err := taskPids(t.edge)
	if err != nil {
		return err
	}
	for _, of := range pids {
		for _, pid := range of {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				t.ended++
			}
		}
	}
	return nil
}

func (t *crashLoop) healFault(context.Context) (err error) {
	if err := os.Remove(t.crashMarkerPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("have the tasks of %s no longer crash: %w", t.edge.Name, err)
	}
	t.after, err = t.s.startsOn(t.edge.Name)
	return err
}

func (t *crashLoop) faultEvidence() (uint64, string) {
	if t.ended == 0 {
		return 0, "it ran no task"
	}
	return uint64(max(0, t.after-t.before)), fmt.Sprintf("%s: %d tasks ended, and were started %d times", t.edge.Name, t.ended, t.after-t.before)
}

// unsupervised kills the processes that supervise an edge's tasks: the nearest that
// raw_exec has to a driver's daemon that dies.
type unsupervised struct {
	edge   *cluster.Edge
	killed uint64
}

func (t *unsupervised) injectFault(context.Context) error {
	pids, err := proc.Below(t.edge.Dir)
	if err != nil {
		return err
	}
	agent := t.edge.Pid()
	for _, pid := range pids {
		if program, err := proc.Program(pid); err != nil || program != t.edge.Binary() || pid == agent {
			continue
		}
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			t.killed++
		}
	}
	return nil
}

func (t *unsupervised) healFault(context.Context) error { return nil }

func (t *unsupervised) faultEvidence() (uint64, string) {
	return t.killed, fmt.Sprintf("%s: %d supervisors killed", t.edge.Name, t.killed)
}
