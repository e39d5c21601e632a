package real

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/fleet"
)

// Ground is the environment of a run: network, programs, directory and output.
type Ground struct {
	Net        faultnet.Network
	LocalHTTP  bool // hubs serve HTTP on 127.0.0.1 inside their network namespace
	HubBinary  string
	EdgeBinary string
	Dir        string    // the directory of all files of the run
	Out        io.Writer // where progress and results are printed
}

// ErrViolated is the error of a run in which an invariant was violated or a measured limit
// was exceeded.
var ErrViolated = errors.New("an invariant or a limit was violated")

// ErrVoid is the error of a run that proves too little, for example since a kind of fault
// never had an effect.
var ErrVoid = errors.New("the run is void")

// quietBound is the time after the last fault in which the fleet has to settle: the sum of
// the edges' back-off cap, an election, and the delays of replacements.
const quietBound = 40 * time.Second

// FastHub and FastEdge are flags with which disconnected nodes are detected within seconds,
// so that a run has time for many partitions.
var (
	FastHub  = []string{"--heartbeat-min-ttl", "1s", "--heartbeat-grace", "1s"}
	FastEdge = []string{"--backoff-cap", "1s"}
)

// fleetRun is a running fleet on a ground, and the jobs that it has to run.
type fleetRun struct {
	Ground
	fleet            *cluster.Cluster
	starts           string                        // directory where tasks record their starts; "": starts are not checked
	wanted           map[fleet.JobID]int           // desired number of allocations of each job
	rowsBeforeDamage map[string][]fleet.Transition // by edge, the journal's rows before it was damaged
	marks            *engine.SecretMarks           // secrets of the run
	searchesItself   bool                          // the run judges its secrets itself
	// settleBound is the time after the last fault in which the fleet has to settle.
	settleBound time.Duration
}

// fast returns the configuration of a fleet with the flags FastHub and FastEdge.
func fast(hubs, edges int) cluster.Config {
	return cluster.Config{Hubs: hubs, Edges: edges, HubFlags: FastHub, EdgeFlags: FastEdge}
}

// runOnFleet starts a fleet, calls play, searches what the members have written for secrets, and stops all processes and the
// network. The result joins the errors of all.
func (g Ground) runOnFleet(ctx context.Context, cfg cluster.Config, play func(*fleetRun) error) (err error) {
	s := &fleetRun{Ground: g, starts: filepath.Join(g.Dir, "starts"), wanted: map[fleet.JobID]int{}, rowsBeforeDamage: map[string][]fleet.Transition{}, marks: engine.NewSecretMarks(), settleBound: quietBound}
	if err := os.MkdirAll(s.starts, 0o755); err != nil {
		return fmt.Errorf("make the run's folder: %w", err)
	}
	cfg.Dir, cfg.HubBinary, cfg.EdgeBinary, cfg.Net, cfg.LocalHTTP = g.Dir, g.HubBinary, g.EdgeBinary, g.Net, g.LocalHTTP
	if s.fleet, err = cluster.Start(ctx, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.fleet.Close()) }()
	err = play(s)
	if !s.searchesItself && ctx.Err() == nil {
		err = errors.Join(err, failOnSecrets(s.searchSecrets()))
	}
	return err
}

// measureTasks starts a fleet with a job of that many tasks, calls measure when the fleet is
// quiet, and then checks the invariants.
func (g Ground) measureTasks(ctx context.Context, cfg cluster.Config, tasks int, measure func(*fleetRun) error) error {
	return g.runOnFleet(ctx, cfg, func(s *fleetRun) error {
		if err := s.runJobUntilQuiet(ctx, workload("measured", tasks, s.starts)); err != nil {
			return err
		}
		if err := measure(s); err != nil {
			return err
		}
		return s.judgeWhenQuiet(ctx)
	})
}

// printLine prints a formatted line to g.Out.
func (g Ground) printLine(format string, args ...any) { fmt.Fprintf(g.Out, format+"\n", args...) }

// awaitFleet waits up to settleBound until all nodes are ready and nothing waits for a decision.
func (s *fleetRun) awaitFleet(ctx context.Context) error {
	return cluster.Eventually(ctx, s.settleBound, "the fleet is ready", func(ctx context.Context) string {
		return firstUnsettled(ctx, s.fleet)
	})
}

// restartHubs starts the hubs that are down, and waits until they are ready.
func (s *fleetRun) restartHubs(ctx context.Context) error {
	for _, h := range s.fleet.Hubs {
		if h.Running() {
			continue
		}
		if err := h.Start(); err != nil {
			return err
		}
		if err := h.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// registerAtAnyHub registers a job at the first hub that accepts it, retries for quietBound, and
// records the job's count in s.wanted.
func (s *fleetRun) registerAtAnyHub(ctx context.Context, job *fleet.Job) error {
	err := cluster.Eventually(ctx, quietBound, "register job "+string(job.ID), func(ctx context.Context) string {
		var errs []error
		for _, h := range s.fleet.Hubs {
			if !h.Running() {
				continue
			}
			_, err := h.RegisterJob(ctx, job, api.JobRegisterRequest{})
			if err == nil {
				return ""
			}
			errs = append(errs, err)
		}
		if len(errs) == 0 {
			return "no hub runs"
		}
		return errors.Join(errs...).Error()
	})
	if err == nil {
		s.wanted[job.ID] = job.TaskGroups[0].Count
	}
	return err
}

// runJobUntilQuiet registers a job and waits until the fleet is quiet.
func (s *fleetRun) runJobUntilQuiet(ctx context.Context, job *fleet.Job) error {
	if err := s.registerAtAnyHub(ctx, job); err != nil {
		return err
	}
	_, err := s.waitUntilQuiet(ctx)
	return err
}

// judgeWhenQuiet waits until the fleet is quiet, checks the invariants, and prints the verdicts. The
// error is ErrViolated with the first violation.
func (s *fleetRun) judgeWhenQuiet(ctx context.Context) error {
	picture, err := s.waitUntilQuiet(ctx)
	if err != nil {
		return err
	}
	found := check.Quiet(picture)
	fmt.Fprint(s.Out, formatVerdicts(quietVerdicts(1), found))
	if len(found) > 0 {
		return fmt.Errorf("%w: %s", ErrViolated, found[0])
	}
	return nil
}
