package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skerry/chaos/cluster"
	"skerry/chaos/disk"
	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/chaos/proc"
	"skerry/drivers/docker"
	"skerry/drivers/wasm"
	"skerry/fleet"
)

// Footprint measures the memory of an idle hub, of an edge with idle tasks of several drivers and of their
// supervisors, the size of the edge's program, and the bytes that an idle edge writes to its disk.
type Footprint struct {
	Ground
	Drivers []string      // of the tasks, which are divided among them
	Rest    time.Duration // idle time before each measurement of memory
	Settle  time.Duration // idle time before writes are counted: the last acknowledgement of a start is written a minute after it
	Idle    time.Duration // time in which the written bytes are counted; they are extrapolated to a day
	Table   string        // file whose table "footprint" is replaced by the results; "": none
}

const (
	mixedTasks    = 20 // tasks on the edge whose memory is measured
	writingTasks  = 10 // tasks on the edge whose writes are counted
	footprintDisk = 512 << 20
	// judgedIdle is the shortest Idle whose writes have a limit: an edge writes every ten minutes, and a shorter time may
	// have one of these writes or none.
	judgedIdle = 10 * time.Minute
)

// Run measures an edge for memory and another one for writes, and prints the results beside their limits. The error is
// ErrViolated if a figure exceeds its limit.
func (f Footprint) Run(ctx context.Context) error {
	table := f.newTable("what", "MiB", "at most")
	memory, err := f.measureMemory(ctx)
	if err != nil {
		return err
	}
	written, err := f.measureWrites(ctx)
	if err != nil {
		return err
	}
	return f.reportFigures(table, append(memory, written...))
}

// reportFigures prints the figures, writes them into the table, and then judges them.
func (f Footprint) reportFigures(table *figureTable, all []figure) error {
	for _, one := range all {
		limit := "-"
		if one.limit > 0 {
			limit = fmt.Sprintf("%g", one.limit)
		}
		f.printLine("%-66s %6.1f MiB   (at most %s)", one.name, one.value, limit)
		table.addRow(one.name, fmt.Sprintf("%.1f", one.value), limit)
	}
	about := fmt.Sprintf("%d tasks of the drivers %s; writes counted for %s", mixedTasks, strings.Join(f.Drivers, ", "), f.Idle)
	return errors.Join(table.replaceIn(f.Table, "footprint", about), judgeFigures(all))
}

// measureMemory measures the memory of a hub and of an edge with tasks of all drivers.
func (f Footprint) measureMemory(ctx context.Context) (found []figure, err error) {
	tasks, err := makeTaskFolder(filepath.Join(f.Dir, "tasks"), mixedTasks)
	if err != nil {
		return nil, err
	}
	sockets := map[string]string{}
	for i, driver := range f.Drivers {
		daemon, err := startDaemon(ctx, driver, filepath.Join(f.Dir, fmt.Sprint("d", i)))
		if err != nil {
			return nil, err
		}
		if daemon != nil {
			sockets[driver] = daemon.Socket
			defer func() { err = errors.Join(err, daemon.Remove()) }()
		}
	}
	err = f.runOnFleet(ctx, cluster.Config{Hubs: 1, Edges: 1, EdgeFlags: tasks.edgeFlags(sockets[docker.Docker], sockets[docker.Podman])}, func(s *fleetRun) error {
		if err := s.awaitFleet(ctx); err != nil {
			return err
		}
		if !engine.Pause(ctx, f.Rest) {
			return ctx.Err()
		}
		hub, err := proc.Resident(s.fleet.Hubs[0].Pid())
		if err != nil {
			return err
		}
		if err := f.startMixedTasks(ctx, s, tasks); err != nil {
			return err
		}
		if !engine.Pause(ctx, f.Rest) {
			return ctx.Err()
		}
		found, err = f.edgeMemory(ctx, s)
		found = append([]figure{inMiB("hub, idle, resident", hub, 60)}, found...)
		return err
	})
	return found, err
}

// startMixedTasks starts mixedTasks tasks, divided among the drivers, and waits until they run.
func (f Footprint) startMixedTasks(ctx context.Context, s *fleetRun, tasks taskFolder) error {
	for i, driver := range f.Drivers {
		count := mixedTasks / len(f.Drivers)
		if i < mixedTasks%len(f.Drivers) {
			count++
		}
		if err := s.requireDriver(ctx, driver); err != nil {
			return err
		}
		job := tasks.jobOf(driver, count)
		if err := s.registerAtAnyHub(ctx, job); err != nil {
			return err
		}
		if err := s.awaitRunning(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// edgeMemory measures the agent of an edge, its supervisors, and its program.
func (f Footprint) edgeMemory(ctx context.Context, s *fleetRun) ([]figure, error) {
	e := s.fleet.Edges[0]
	agent, err := proc.Resident(e.Pid())
	if err != nil {
		return nil, err
	}
	binary, err := os.Stat(f.EdgeBinary)
	if err != nil {
		return nil, fmt.Errorf("measure skerry-edge: %w", err)
	}
	figures := []figure{
		inMiB(fmt.Sprintf("edge agent with %d idle tasks of %d drivers, resident", mixedTasks, len(f.Drivers)), agent, 40),
		inMiB("`skerry-edge`, file", binary.Size(), 30),
	}
	sizes, err := supervised(e)
	if err != nil {
		return nil, err
	}
	for _, driver := range f.Drivers {
		largest, limit := int64(0), 0.0
		allocs, err := s.allocsOf(ctx, jobOfDriver(driver))
		if err != nil {
			return nil, err
		}
		for _, id := range allocs {
			largest = max(largest, sizes[id])
		}
		if largest == 0 {
			continue // the tasks of a daemon have no supervisor
		}
		name := "supervisor of a task of `" + driver + "`, proportional"
		if driver == wasm.Name {
			name, limit = "a whole task of `wasm` with its supervisor, proportional", 12
		}
		figures = append(figures, inMiB(name, largest, limit))
	}
	return figures, nil
}

// supervised returns, by allocation, the sum of the proportional set sizes, in bytes, of the processes that run the
// edge's own program: the supervisors of its tasks, and modules of wasm.
func supervised(e *cluster.Edge) (map[fleet.AllocID]int64, error) {
	pids, err := proc.Below(e.Dir)
	if err != nil {
		return nil, err
	}
	sizes := map[fleet.AllocID]int64{}
	for _, pid := range pids {
		if program, err := proc.Program(pid); err != nil || program != e.Binary() || pid == e.Pid() {
			continue
		}
		alloc, err := allocOfProcess(e, pid)
		if err != nil {
			return nil, err
		}
		pss, err := proc.Proportional(pid)
		if err != nil {
			return nil, err
		}
		sizes[alloc] += pss
	}
	return sizes, nil
}

// allocOfProcess returns the allocation of a supervisor, whose last argument is a folder of the task, or of a module.
func allocOfProcess(e *cluster.Edge, pid int) (fleet.AllocID, error) {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "", fmt.Errorf("read the command line of process %d: %w", pid, err)
	}
	if _, below, found := strings.Cut(string(args), filepath.Join(e.Dir, "tasks")+"/"); found {
		alloc, _, _ := strings.Cut(below, "/")
		return fleet.AllocID(alloc), nil
	}
	env, err := proc.Environ(pid)
	return fleet.AllocID(env["NOMAD_ALLOC_ID"]), err
}

// measureWrites counts the bytes that an edge with idle tasks writes, and extrapolates them to a day. It counts the
// writes to a block device with a file system for the edge alone. If such a disk cannot be made, it counts the writes
// of the processes.
func (f Footprint) measureWrites(ctx context.Context) ([]figure, error) {
	g := f.Ground
	g.Dir = filepath.Join(f.Dir, "w")
	g.Net, g.LocalHTTP = faultnet.NewProxy(), false // a network serves one fleet
	cfg := cluster.Config{Hubs: 1, Edges: 1}
	name := "written by an idle edge with %d tasks in a day, to its block device (ext4)"
	counted := func(e *cluster.Edge) (int64, error) {
		if err := e.Disk.Sync(); err != nil {
			return 0, err
		}
		return proc.DeviceWritten(e.Dir)
	}
	if err := disk.Try(filepath.Join(f.Dir, "try")); err == nil {
		cfg.Disk = func(name, dir string) (*disk.Disk, error) {
			if !strings.HasPrefix(name, "edge") {
				return nil, nil
			}
			return disk.Make(dir+".img", dir, footprintDisk)
		}
	} else {
		name, counted = "written by an idle edge with %d tasks in a day, by its processes (write_bytes)", writtenByProcesses
	}
	var figures []figure
	err := g.runOnFleet(ctx, cfg, func(s *fleetRun) error {
		job := workload("ten", writingTasks, s.starts)
		job.TaskGroups[0].EphemeralDisk.SizeMB = 10 // the disk is small
		job.TaskGroups[0].Tasks[0].LogConfig = fleet.LogConfig{MaxFiles: 1, MaxFileSizeMB: 1}
		if err := s.runJobUntilQuiet(ctx, job); err != nil {
			return err
		}
		if !engine.Pause(ctx, f.Settle) {
			return ctx.Err()
		}
		before, err := counted(s.fleet.Edges[0])
		if err != nil {
			return err
		}
		if !engine.Pause(ctx, f.Idle) {
			return ctx.Err()
		}
		after, err := counted(s.fleet.Edges[0])
		perDay, limit := float64(after-before)*(24*time.Hour).Seconds()/f.Idle.Seconds(), 0.0
		if f.Idle >= judgedIdle {
			limit = 5
		}
		figures = append(figures, inMiB(fmt.Sprintf(name, writingTasks), int64(perDay), limit))
		return err
	})
	return figures, err
}

// writtenByProcesses returns the bytes that the agent and the supervisors of an edge have written.
func writtenByProcesses(e *cluster.Edge) (int64, error) {
	pids, err := proc.Below(e.Dir)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, pid := range pids {
		n, err := proc.Written(pid)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
