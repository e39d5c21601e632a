package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"skerry/chaos/cluster"
	"skerry/chaos/faultnet"
	"skerry/drivers/docker"
	"skerry/drivers/docker/dockertest"
	"skerry/drivers/java"
	"skerry/drivers/qemu"
	"skerry/fleet"
)

// Reboot measures, after a reboot of the machine without a link to the hubs, the time from the agent's start until
// each task reports that it runs. A reboot kills all processes of the edge, its tasks and their daemon, and drops
// files that a machine keeps in memory. Daemons start before the agent, as their units would.
type Reboot struct {
	Ground
	Drivers []string // measured one after the other, each on a fleet of its own
	Boots   int      // of each driver
	Tasks   int      // of each driver
	Secrets bool     // boot in turns without and with a variable, templates and identities for each task, and judge both
	Table   string   // file whose table "reboot", or "reboot-secrets", is replaced by the results; "": none
}

// bootsInTurn is how many boots follow each other, each time on a new fleet, before those of the other kind of tasks have their turn.
const bootsInTurn = 5

// rebootBound is the time after which the run fails if the tasks do not run, at first and after a reboot.
const rebootBound = 2 * time.Minute

// rebootPoll is the interval of checks whether tasks run again. Checks every 10 ms took 4 % of the processors that are measured.
const rebootPoll = 25 * time.Millisecond

// rebootLimit returns the limit of the 99th percentile of a driver.
func rebootLimit(driver string) time.Duration {
	switch driver {
	case docker.Docker, docker.Podman, java.Name:
		return 5 * time.Second
	case qemu.Name:
		return 10 * time.Second
	}
	return 2 * time.Second
}

// RebootResult has the measured times of one driver.
type RebootResult struct {
	Driver  string
	Tasks   []time.Duration // from the agent's start until a task said that it runs, sorted
	Secrets []time.Duration // the same of tasks with secrets; nil: not measured
	Daemons []time.Duration // from the start of the driver's daemon until it answered, sorted
	Alone   []time.Duration // until that daemon alone had started a container, after a boot without the agent, sorted
}

// Run measures each driver, and prints the times. The error is ErrViolated if the 99th percentile of a driver exceeds
// its limit.
func (b Reboot) Run(ctx context.Context) error {
	name, about := "reboot", fmt.Sprintf("%d tasks of each driver, %d boots", b.Tasks, b.Boots)
	table := b.newTable("driver", "p50", "p99", "longest", "p99 at most", "start of its daemon, p50", "containers by the daemon alone, p99")
	if b.Secrets {
		name, about = "reboot-secrets", about+" without secrets and as many with them, in turns"
		table = b.newTable("driver", "p50 without", "p50 with", "p99 without", "p99 with", "longest without", "longest with", "p99 at most")
	}
	results, err := b.Measure(ctx)
	var figures []figure
	for _, r := range results {
		figures = append(figures, r.listFigures()...)
		table.addRow(r.tableCells()...)
	}
	return errors.Join(err, judgeFigures(figures), table.replaceIn(b.Table, name, about))
}

// listFigures returns the 99th percentiles of a driver beside its limit.
func (r RebootResult) listFigures() []figure {
	limit := rebootLimit(r.Driver)
	figures := []figure{inSeconds("until tasks of "+r.Driver+" run again, 99th percentile", p99(r.Tasks), limit)}
	if r.Secrets != nil {
		figures = append(figures, inSeconds("until tasks of "+r.Driver+" with secrets run again, 99th percentile", p99(r.Secrets), limit))
	}
	return figures
}

// tableCells returns the row of a driver in the table of Run.
func (r RebootResult) tableCells() []string {
	cells, limit := []string{"`" + r.Driver + "`"}, seconds(rebootLimit(r.Driver))
	if r.Secrets != nil {
		for _, of := range []func([]time.Duration) time.Duration{p50, p99, longest} {
			cells = append(cells, seconds(of(r.Tasks)), seconds(of(r.Secrets)))
		}
		return append(cells, limit)
	}
	daemon, alone := "-", "-"
	if len(r.Daemons) > 0 {
		daemon, alone = seconds(p50(r.Daemons)), seconds(p99(r.Alone))
	}
	return append(cells, seconds(p50(r.Tasks)), seconds(p99(r.Tasks)), seconds(longest(r.Tasks)), limit, daemon, alone)
}

func p50(sorted []time.Duration) time.Duration { return percentile(sorted, 50) }
func p99(sorted []time.Duration) time.Duration { return percentile(sorted, 99) }

// Measure measures each driver, and prints the times. It returns the results of the drivers that could be measured,
// and an error for each other one.
func (b Reboot) Measure(ctx context.Context) (results []RebootResult, err error) {
	var errs []error
	for i, driver := range b.Drivers {
		r, err := b.measureDriver(ctx, i, driver)
		if err != nil {
			errs = append(errs, fmt.Errorf("reboot with tasks of %s: %w", driver, err))
			continue
		}
		b.printLine("%s: %d tasks, %d boots without a link: p50 %s, p99 %s, longest %s", driver, b.Tasks, b.Boots,
			seconds(p50(r.Tasks)), seconds(p99(r.Tasks)), seconds(longest(r.Tasks)))
		if b.Secrets {
			b.printLine("%s: the same with secrets: p50 %s, p99 %s, longest %s; p99 at most %s", driver,
				seconds(p50(r.Secrets)), seconds(p99(r.Secrets)), seconds(longest(r.Secrets)), seconds(rebootLimit(driver)))
		}
		if len(r.Alone) > 0 {
			b.printLine("%s: as many containers by the daemon alone: p50 %s, p99 %s", driver, seconds(p50(r.Alone)), seconds(p99(r.Alone)))
		}
		results = append(results, r)
	}
	return results, errors.Join(errs...)
}

// measureDriver measures the driver with a number: b.Boots on one fleet, or as many of each kind in turns, so that the load of
// the machine is the same for both.
func (b Reboot) measureDriver(ctx context.Context, number int, driver string) (RebootResult, error) {
	if !b.Secrets {
		return b.measureTurn(ctx, driver, rebootTurn{folder: fmt.Sprint(number), boots: b.Boots, alone: true})
	}
	all := RebootResult{Driver: driver}
	for done := 0; done < b.Boots; done += bootsInTurn {
		turn := rebootTurn{folder: fmt.Sprintf("%d-%d", number, done), boots: min(bootsInTurn, b.Boots-done)}
		without, err := b.measureTurn(ctx, driver, turn)
		if err != nil {
			return all, err
		}
		turn.folder, turn.secrets = turn.folder+"s", true
		with, err := b.measureTurn(ctx, driver, turn)
		if err != nil {
			return all, err
		}
		all.Tasks, all.Secrets = append(all.Tasks, without.Tasks...), append(all.Secrets, with.Tasks...)
	}
	slices.Sort(all.Tasks)
	slices.Sort(all.Secrets)
	return all, nil
}

// rebootTurn is some boots on a fleet of their own.
type rebootTurn struct {
	folder  string // in Reboot.Dir; short, because sockets lie below it
	boots   int
	secrets bool // tasks have a variable, templates and identities
	alone   bool // measure the daemon alone, too
}

// measureTurn measures a turn of boots with tasks of a driver.
func (b Reboot) measureTurn(ctx context.Context, driver string, turn rebootTurn) (result RebootResult, err error) {
	g := b.Ground
	g.Net, g.LocalHTTP = faultnet.NewProxy(), false // a network serves one fleet
	g.Dir = filepath.Join(b.Dir, turn.folder)
	tasks, err := makeTaskFolder(filepath.Join(g.Dir, "tasks"), b.Tasks)
	if err != nil {
		return result, err
	}
	machine := &coldMachine{driver: driver}
	if machine.daemon, err = startDaemon(ctx, driver, filepath.Join(g.Dir, "d")); err != nil {
		return result, err
	}
	socket := ""
	if machine.daemon != nil {
		socket = machine.daemon.Socket
		defer func() { err = errors.Join(err, machine.daemon.Remove()) }()
	}
	cfg := fast(1, 1)
	cfg.EdgeFlags = append(slices.Clone(cfg.EdgeFlags), tasks.edgeFlags(socket, socket)...)
	err = g.runOnFleet(ctx, cfg, func(s *fleetRun) error {
		machine.edge = s.fleet.Edges[0]
		result, err = turn.rebootMachine(ctx, s, machine, tasks.jobOf(driver, b.Tasks))
		return errors.Join(err, machine.powerCut()) // the tasks in containers, before their daemon is gone
	})
	return result, err
}

// rebootMachine runs a job, reboots its machine behind a cut link as often as the turn says, and then checks that the hub
// shows the same allocations running.
func (t rebootTurn) rebootMachine(ctx context.Context, s *fleetRun, m *coldMachine, job *fleet.Job) (RebootResult, error) {
	result := RebootResult{Driver: m.driver}
	if err := s.awaitFleet(ctx); err != nil {
		return result, err
	}
	if err := s.requireDriver(ctx, m.driver); err != nil {
		return result, err
	}
	if t.secrets {
		if err := s.giveSecrets(ctx, job); err != nil {
			return result, err
		}
	}
	if err := s.registerAtAnyHub(ctx, job); err != nil {
		return result, err
	}
	if err := s.awaitRunning(ctx, job); err != nil {
		return result, err
	}
	var err error
	if m.allocs, err = s.allocsOf(ctx, job.ID); err != nil {
		return result, err
	}
	if err := m.awaitTasks(ctx, map[fleet.AllocID]int{}, func() {}); err != nil {
		return result, err
	}
	cut, err := m.edge.Cut()
	if err != nil {
		return result, err
	}
	for boot := range t.boots {
		if err := m.rebootOnce(ctx, &result); err != nil {
			return result, fmt.Errorf("boot %d: %w", boot+1, err)
		}
		if t.secrets {
			if err := m.checkSecrets(); err != nil {
				return result, fmt.Errorf("boot %d: %w", boot+1, err)
			}
			s.marks.MarkFiles(s.Dir) // the next loss of power takes the identities away
		}
	}
	if m.daemon != nil && t.alone {
		if err := m.timeDaemonAlone(ctx, t.boots, &result); err != nil {
			return result, err
		}
	}
	slices.Sort(result.Tasks)
	slices.Sort(result.Daemons)
	slices.Sort(result.Alone)
	cut.Lift()
	if err := s.awaitRunning(ctx, job); err != nil {
		return result, err
	}
	after, err := s.allocsOf(ctx, job.ID)
	if err == nil && !slices.Equal(after, m.allocs) {
		err = fmt.Errorf("%w: after the reboots the allocations are %v, and not %v", ErrViolated, after, m.allocs)
	}
	return result, err
}

// requireDriver returns ErrVoid unless a driver works on the only edge.
func (s *fleetRun) requireDriver(ctx context.Context, driver string) error {
	id, err := s.fleet.Edges[0].NodeID(ctx)
	if err != nil {
		return err
	}
	return cluster.Eventually(ctx, rebootBound, "driver "+driver+" works", func(ctx context.Context) string {
		node, err := s.fleet.Hubs[0].Own.Node(ctx, id)
		if err != nil {
			return err.Error()
		}
		if d := node.Drivers[driver]; !d.Healthy {
			return "its health is: " + d.HealthDescription
		}
		return ""
	})
}

// awaitRunning waits until the hub reports all allocations of a job as running.
func (s *fleetRun) awaitRunning(ctx context.Context, job *fleet.Job) error {
	return cluster.Eventually(ctx, rebootBound, "all allocations of "+string(job.ID)+" run", func(ctx context.Context) string {
		allocs, err := s.fleet.Hubs[0].Allocs(ctx)
		if err != nil {
			return err.Error()
		}
		running, state := 0, ""
		for _, a := range allocs {
			switch {
			case a.JobID == job.ID && a.ClientStatus == fleet.ClientRunning:
				running++
			case a.JobID == job.ID:
				state = fmt.Sprintf(", %s is %s (%s)", fleet.Short(a.ID), a.ClientStatus, a.ClientDescription)
			}
		}
		if running != job.TaskGroups[0].Count {
			return fmt.Sprintf("%d of %d run%s", running, job.TaskGroups[0].Count, state)
		}
		return ""
	})
}

// allocsOf returns the sorted ids of a job's desired allocations.
func (s *fleetRun) allocsOf(ctx context.Context, job fleet.JobID) (ids []fleet.AllocID, err error) {
	allocs, err := s.fleet.Hubs[0].Allocs(ctx)
	for _, a := range allocs {
		if a.JobID == job && !a.ServerTerminal() {
			ids = append(ids, a.ID)
		}
	}
	slices.Sort(ids)
	return ids, err
}

// coldMachine is an edge with the daemon beside it.
type coldMachine struct {
	driver string
	edge   *cluster.Edge
	daemon *dockertest.Daemon // nil: the driver needs none
	allocs []fleet.AllocID
}

// powerCut kills the agent, the daemon and the tasks, and removes files that a machine keeps in memory.
func (m *coldMachine) powerCut() error {
	m.edge.Kill()
	if m.daemon != nil {
		if err := m.daemon.CutPower(); err != nil {
			return err
		}
	}
	return errors.Join(m.edge.PowerCut(), dockertest.UnmountBelow(m.edge.Dir))
}

// rebootOnce cuts the power, boots the machine, and adds to result the times at which the tasks report that they run.
func (m *coldMachine) rebootOnce(ctx context.Context, result *RebootResult) error {
	if err := m.powerCut(); err != nil {
		return err
	}
	before := map[fleet.AllocID]int{}
	for _, id := range m.allocs {
		before[id] = m.timesRunning(id)
	}
	if m.daemon != nil {
		began := time.Now()
		if err := m.daemon.Start(ctx); err != nil {
			return err
		}
		result.Daemons = append(result.Daemons, time.Since(began))
	}
	began := time.Now()
	if err := m.edge.Boot(); err != nil {
		return err
	}
	return m.awaitTasks(ctx, before, func() { result.Tasks = append(result.Tasks, time.Since(began)) })
}

// aloneBoots bounds the boots in which the daemon alone is measured.
const aloneBoots = 5

// timeDaemonAlone boots the machine without the agent, a few times, and adds the times in which the daemon alone starts as many
// containers as there are tasks. Then it boots the agent.
func (m *coldMachine) timeDaemonAlone(ctx context.Context, boots int, result *RebootResult) error {
	for range min(boots, aloneBoots) {
		if err := m.powerCut(); err != nil {
			return err
		}
		if err := m.daemon.Start(ctx); err != nil {
			return err
		}
		took, err := m.daemon.TimeStarts(ctx, runningImage, runningScript, len(m.allocs))
		if err != nil {
			return err
		}
		result.Alone = append(result.Alone, took...)
	}
	return m.edge.Boot()
}

// awaitTasks waits until each task has reported more often than before that it runs, and calls record at each report.
func (m *coldMachine) awaitTasks(ctx context.Context, before map[fleet.AllocID]int, record func()) error {
	ctx, cancel := context.WithTimeout(ctx, rebootBound)
	defer cancel()
	tick := time.NewTicker(rebootPoll)
	defer tick.Stop()
	for waiting := m.allocs; ; {
		waiting = slices.DeleteFunc(slices.Clone(waiting), func(id fleet.AllocID) bool {
			runs := m.timesRunning(id) > before[id]
			if runs {
				record()
			}
			return runs
		})
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until all tasks report that they run: %w: %d of %d have not, such as the one of %s", ctx.Err(), len(waiting), len(m.allocs), waiting[0])
		}
	}
}

// timesRunning returns how often a task has reported that it runs.
func (m *coldMachine) timesRunning(id fleet.AllocID) int {
	said, err := os.ReadFile(filepath.Join(m.edge.Dir, "allocs", string(id), "alloc", "logs", "main.stdout.0"))
	if err != nil {
		return 0 // it has reported nothing yet
	}
	return bytes.Count(bytes.ReplaceAll(said, []byte("\r"), nil), []byte(runningLine))
}
