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
	"skerry/chaos/faultnet"
	"skerry/fleet"
)

// Ground is where a run takes place.
type Ground struct {
	Net        faultnet.Network
	LocalHTTP  bool // hubs serve HTTP on 127.0.0.1 of their place
	HubBinary  string
	EdgeBinary string
	Dir        string    // of everything that the run leaves
	Out        io.Writer // what people are shown
}

// ErrViolated is returned by a run in which an invariant did not hold, or
// something was not as it must be.
var ErrViolated = errors.New("a promise was broken")

// ErrVoid is returned by a run that proves nothing about something: a kind of fault never hit.
var ErrVoid = errors.New("the run is void")

// quietBound is how long after the last fault everything has to be settled: the
// edges' back-off cap, an election, and the replacement's delays.
const quietBound = 40 * time.Second

// FastHub and FastEdge are flags under which absence is noticed within seconds,
// so that a run sees many partitions.
var (
	FastHub  = []string{"--heartbeat-min-ttl", "1s", "--heartbeat-grace", "1s"}
	FastEdge = []string{"--backoff-cap", "1s"}
)

// fleetRun is a fleet that runs on a ground, and what it is wanted to run.
type fleetRun struct {
	Ground
	fleet            *cluster.Cluster
	starts           string // folder where tasks tell their starts; "": nobody looks
	wanted           map[fleet.JobID]int
	rowsBeforeDamage map[string][]fleet.Transition // by edges, before their journals were damaged
	// settleBound is how long after the last fault everything has to be settled.
	settleBound time.Duration
}

// fast is a fleet that notices absence within seconds.
func fast(hubs, edges int) cluster.Config {
	return cluster.Config{Hubs: hubs, Edges: edges, HubFlags: FastHub, EdgeFlags: FastEdge}
}

// runOnFleet runs play on a fleet that is made here, and takes everything down.
func (g Ground) runOnFleet(ctx context.Context, cfg cluster.Config, play func(*fleetRun) error) (err error) {
	s := &fleetRun{Ground: g, starts: filepath.Join(g.Dir, "starts"), wanted: map[fleet.JobID]int{}, rowsBeforeDamage: map[string][]fleet.Transition{}, settleBound: quietBound}
	if err := os.MkdirAll(s.starts, 0o755); err != nil {
		return fmt.Errorf("make the run's folder: %w", err)
	}
	cfg.Dir, cfg.HubBinary, cfg.EdgeBinary, cfg.Net, cfg.LocalHTTP = g.Dir, g.HubBinary, g.EdgeBinary, g.Net, g.LocalHTTP
	if s.fleet, err = cluster.Start(ctx, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.fleet.Close()) }()
	return play(s)
}

// measureTasks runs measure on a fleet with so many tasks, and has what is left behind judged.
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

// printLine prints a line.
func (g Ground) printLine(format string, args ...any) { fmt.Fprintf(g.Out, format+"\n", args...) }

// awaitFleet waits until all edges are ready.
func (s *fleetRun) awaitFleet(ctx context.Context) error {
	return cluster.Eventually(ctx, s.settleBound, "the fleet is ready", func(ctx context.Context) string {
		return firstUnsettled(ctx, s.fleet)
	})
}

// restartHubs starts hubs that are down, and waits until they have caught up.
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

// registerAtAnyHub registers a job at any hub that takes it.
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

// runJobUntilQuiet registers a job and waits until it runs and all is quiet.
func (s *fleetRun) runJobUntilQuiet(ctx context.Context, job *fleet.Job) error {
	if err := s.registerAtAnyHub(ctx, job); err != nil {
		return err
	}
	_, err := s.waitUntilQuiet(ctx)
	return err
}

// judgeWhenQuiet waits until all is quiet, checks everything, and fails with the first
// violation.
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
