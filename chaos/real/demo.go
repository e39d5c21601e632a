package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"skerry/chaos/cluster"
	"skerry/chaos/faultnet"
	"skerry/fleet"
)

// Demo shows the behaviour of a fleet without a link on real processes, step by step, on a terminal. Its tasks are
// containers if a Docker Engine runs or can be started, and otherwise programs of the machine.
type Demo struct {
	Ground
	JobFile  string // job file to run instead of those of Examples
	Examples string // folder with shop.hcl and shop-docker.hcl
	Driver   string // AnyDriver, DockerDriver or RawExecDriver; "": AnyDriver
}

// demoBound is the maximum time of each step of the demo.
const demoBound = 30 * time.Second

// demoRun is the state of a running Demo.
type demoRun struct {
	*fleetRun
	jobRun []string // arguments of `skerry job run`
	began  time.Time
	away   *cluster.Edge // the edge that is cut off
	cut    *faultnet.Imposed
	alloc  fleet.AllocID // the allocation of that edge
}

// Run runs the demo. It returns an error if a step does not show the expected behaviour within
// demoBound, or if an invariant is violated at the end.
func (d Demo) Run(ctx context.Context) (err error) {
	s := &demoRun{fleetRun: &fleetRun{Ground: d.Ground}, began: time.Now()}
	cfg := fast(3, 3)
	engine, err := d.chooseTasks(ctx, s)
	if err != nil {
		return err
	}
	if engine != nil {
		defer func() { err = errors.Join(err, engine.removeDemo()) }()
		cfg.EdgeFlags = append(slices.Clone(cfg.EdgeFlags), "--docker-socket", engine.Socket)
	}
	s.printStep("starting 3 hubs and 3 edges, each a process of its own")
	return d.runOnFleet(ctx, cfg, func(st *fleetRun) error {
		s.fleetRun = st
		for _, step := range []func(context.Context) error{
			s.runJob, s.cutLink, s.rebootCutOffEdge, s.killLeader, s.healDemoLink, s.printAllocHistory, s.judgeDemo,
		} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		s.printStep("done; cleaning up")
		return nil
	})
}

// chooseTasks sets the job of the demo and prints the kind of its tasks. It returns the Docker Engine that runs them,
// or nil.
func (d Demo) chooseTasks(ctx context.Context, s *demoRun) (*demoDocker, error) {
	if d.JobFile != "" {
		s.jobRun = []string{d.JobFile}
		return nil, nil
	}
	s.jobRun = []string{filepath.Join(d.Examples, "shop.hcl")}
	if d.Driver == RawExecDriver {
		s.printStep("tasks are programs of this machine (driver raw_exec), as asked")
		return nil, nil
	}
	engine, err := d.findDocker(ctx)
	switch {
	case err == nil:
		s.printStep("tasks are containers (driver docker): %s", engine.said)
		s.jobRun = []string{"--var", "image=" + engine.image, filepath.Join(d.Examples, "shop-docker.hcl")}
	case d.Driver == DockerDriver:
		return nil, fmt.Errorf("find a Docker Engine: %w", err)
	default:
		s.printStep("tasks are programs of this machine (driver raw_exec), because Docker cannot be used: %s", err)
	}
	return engine, nil
}

// printStep prints the heading of a step with the time since the demo's start.
func (s *demoRun) printStep(format string, args ...any) {
	fmt.Fprintf(s.Out, "\n[%4.1fs] %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// runSkerryCommand runs the skerry command line against a running hub and prints its output.
func (s *demoRun) runSkerryCommand(ctx context.Context, args ...string) error {
	fmt.Fprintf(s.Out, "$ skerry %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, s.HubBinary, args...)
	cmd.Env = append(os.Environ(), "SKERRY_ADDR="+s.runningHub().URL())
	cmd.Stdout, cmd.Stderr = s.Out, s.Out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("skerry %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// runningHub returns the first running hub. The demo kills only a minority, so there is one.
func (s *demoRun) runningHub() *cluster.Hub {
	return s.fleet.Hubs[slices.IndexFunc(s.fleet.Hubs, (*cluster.Hub).Running)]
}

// runJob registers the job file, waits until all its allocations run, and chooses the edge that
// later steps cut off.
func (s *demoRun) runJob(ctx context.Context) error {
	if err := s.awaitFleet(ctx); err != nil {
		return err
	}
	s.printStep("running a job file")
	if err := s.runSkerryCommand(ctx, append([]string{"job", "run"}, s.jobRun...)...); err != nil {
		return err
	}
	s.away = s.fleet.Edges[1]
	return s.redrawTableUntil(ctx, "everything runs", func(rows []row) string {
		for _, r := range rows {
			if r.hub != fleet.ClientRunning || r.tasks == 0 {
				return fmt.Sprintf("%s is %s", r.edge, r.hub)
			}
			if r.edge == s.away.Name {
				s.alloc = r.alloc
			}
		}
		if s.alloc == "" {
			return s.away.Name + " has no allocation"
		}
		return ""
	})
}

// cutLink cuts the edge off, and waits until its allocation is unknown at the hub and still runs.
func (s *demoRun) cutLink(ctx context.Context) error {
	s.printStep("cutting the link of %s: from now on its packets vanish", s.away.Name)
	var err error
	if s.cut, err = s.away.Cut(); err != nil {
		return err
	}
	return s.redrawTableUntil(ctx, "the hub says unknown while the tasks go on", s.checkRunsWhileUnknown)
}

// checkRunsWhileUnknown returns "" if the hub reports the allocation as unknown while its tasks run
// on the edge, and otherwise the part that is missing.
func (s *demoRun) checkRunsWhileUnknown(rows []row) string {
	for _, r := range rows {
		if r.alloc != s.alloc {
			continue
		}
		if r.hub != fleet.ClientUnknown {
			return "the hub still says " + r.hub
		}
		if r.site != fleet.ClientRunning || r.tasks == 0 {
			return fmt.Sprintf("on site it is %s with %d tasks", r.site, r.tasks)
		}
		return ""
	}
	return "the allocation is gone"
}

// rebootCutOffEdge cuts the power of the edge, boots it without a link, and waits until its tasks
// run again.
func (s *demoRun) rebootCutOffEdge(ctx context.Context) error {
	s.printStep("power cut at %s, still without a link: the machine boots, the journal knows what to do", s.away.Name)
	if err := s.away.PowerCut(); err != nil {
		return err
	}
	if live, err := processes(s.away); err != nil || len(live) > 0 {
		return errors.Join(err, fmt.Errorf("power cut at %s: %d tasks still have processes", s.away.Name, len(live)))
	}
	began := time.Now()
	if err := s.away.Reboot(); err != nil {
		return err
	}
	err := s.redrawTableUntil(ctx, "its tasks are back, no hub was asked", s.checkRunsWhileUnknown)
	if err == nil {
		fmt.Fprintf(s.Out, "tasks of %s were running again %.2f s after its agent started\n", s.away.Name, time.Since(began).Seconds())
	}
	return err
}

// killLeader kills the leader and waits until another hub leads.
func (s *demoRun) killLeader(ctx context.Context) error {
	leader, err := s.fleet.Leader(ctx)
	if err != nil {
		return err
	}
	s.printStep("killing %s, the leading hub, with SIGKILL", leader.Name)
	leader.Kill()
	began := time.Now()
	return cluster.Eventually(ctx, demoBound, "another hub leads", func(ctx context.Context) string {
		next, err := s.fleet.Leader(ctx)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(s.Out, "%s leads after %.1f s\n", next.Name, time.Since(began).Seconds())
		return ""
	})
}

// healDemoLink heals the link, waits until the same allocation is running at the hub, and starts
// the killed hub again.
func (s *demoRun) healDemoLink(ctx context.Context) error {
	s.printStep("healing the link of %s", s.away.Name)
	began := time.Now()
	s.cut.Lift()
	err := s.redrawTableUntil(ctx, "the same allocation runs on, its history is in", func(rows []row) string {
		for _, r := range rows {
			if r.hub != fleet.ClientRunning {
				return fmt.Sprintf("%s of %s is %s", fleet.Short(r.alloc), r.edge, r.hub)
			}
			if r.edge == s.away.Name && r.alloc != s.alloc {
				return "another allocation took its place"
			}
		}
		return ""
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "settled %.1f s after the link was back\n", time.Since(began).Seconds())
	s.printStep("starting the killed hub again")
	return s.restartHubs(ctx)
}

// printAllocHistory prints the history of the allocation with `skerry alloc history`.
func (s *demoRun) printAllocHistory(ctx context.Context) error {
	s.printStep("what happened out there, replayed in order")
	return s.runSkerryCommand(ctx, "alloc", "history", fleet.Short(s.alloc))
}

// judgeDemo checks the invariants when the fleet is quiet.
func (s *demoRun) judgeDemo(ctx context.Context) error {
	s.wanted["shop"] = len(s.fleet.Edges)
	s.printStep("the invariants, judged from the edges' journals, all three hubs, and the processes that run")
	return s.judgeWhenQuiet(ctx)
}

// row is the state of one allocation, at the hub and on its edge, for the table.
type row struct {
	alloc     fleet.AllocID
	edge      string
	node      string // node status
	hub, site string // client status
	tasks     int    // number of its live processes
	unsent    uint64 // rows of the edge's journal that no hub has acknowledged
}

// redrawTableUntil prints the table of allocations after each change until done returns "". done
// returns what is missing. On a terminal the table is redrawn in place.
func (s *demoRun) redrawTableUntil(ctx context.Context, what string, done func([]row) string) error {
	shown := ""
	out, ok := s.Out.(*os.File)
	live := ok && term.IsTerminal(int(out.Fd()))
	return cluster.Eventually(ctx, demoBound, what, func(ctx context.Context) string {
		rows, err := s.fleetRows(ctx)
		if err != nil {
			return err.Error()
		}
		if drawn := draw(rows); drawn != shown {
			if live && shown != "" {
				fmt.Fprintf(s.Out, "\x1b[%dA\x1b[J", strings.Count(shown, "\n"))
			}
			shown = drawn
			fmt.Fprintf(s.Out, "%s", drawn)
		}
		missing := done(rows)
		if missing == "" {
			fmt.Fprintf(s.Out, "  -> %s\n", what)
		}
		return missing
	})
}

// fleetRows returns the current rows of the table, sorted by edge.
func (s *demoRun) fleetRows(ctx context.Context) ([]row, error) {
	up := s.runningHub()
	f, err := up.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	status := map[string]string{}
	for _, n := range f.Nodes {
		status[n.Name] = string(n.Status)
	}
	allocs, err := up.Allocs(ctx)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, e := range s.fleet.Edges {
		site, err := e.Local().Status(ctx)
		if err != nil {
			return nil, err
		}
		live, err := processes(e)
		if err != nil {
			return nil, err
		}
		for _, a := range allocs {
			if a.NodeID != site.NodeID || a.ServerTerminal() {
				continue
			}
			r := row{alloc: a.ID, edge: e.Name, node: status[e.Name], hub: a.ClientStatus, site: "-", unsent: site.Journal.Unacknowledged}
			for task, processes := range live {
				if task.Alloc == a.ID {
					r.tasks += processes
				}
			}
			for _, l := range site.Allocs {
				if l.ID == a.ID {
					r.site = l.ClientStatus
				}
			}
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(x, y row) int { return strings.Compare(x.edge, y.edge) })
	return rows, nil
}

// draw formats the table.
func draw(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "  edge\tnode is\tallocation\thub says\ton site\ttasks alive\trows not yet sent")
	for _, r := range rows {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%d\t%d\n", r.edge, r.node, fleet.Short(r.alloc), r.hub, r.site, r.tasks, r.unsent)
	}
	_ = w.Flush() // into memory
	return b.String()
}
