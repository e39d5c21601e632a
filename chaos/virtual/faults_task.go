package virtual

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/fleet"
)

// taskInjectors are what happens to tasks and drivers.
var taskInjectors = map[schedule.Kind]faultInjector{
	schedule.CrashLoop:  {onEdges(crashLoop), []check.Effect{check.EndsTasks}},
	schedule.DriverDead: {onEdges(killDriver), []check.Effect{check.EndsTasks}},
}

// crashLoop ends the edge's tasks soon after each start.
func crashLoop(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	ctx, stop := context.WithCancel(ctx)
	var hits atomic.Uint64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause(ctx, f.Params.Life) {
			for _, id := range e.world.Running() {
				if f.Params.Job != "" && !r.isOf(id, f.Params.Job) {
					continue
				}
				if e.world.End(id, drivers.Exit{Code: 1}) {
					hits.Add(1)
				}
			}
		}
	}()
	return activeFault{
		heal: func(context.Context) error { stop(); <-ended; return nil },
		hits: hits.Load,
	}, nil
}

// isOf reports whether a task belongs to a job, as the hubs know it.
func (r *run) isOf(task string, job fleet.JobID) bool {
	id, ok := taskOf(task)
	if !ok {
		return false
	}
	return r.jobOf(id.Alloc) == job
}

// jobOf is an allocation's job, "" where no hub that is up knows it.
func (r *run) jobOf(alloc fleet.AllocID) fleet.JobID {
	for _, h := range r.c.Hubs {
		if d := h.runningDaemon(); d != nil {
			if a, ok := d.State().View().Alloc(alloc); ok {
				return a.JobID
			}
		}
	}
	return ""
}

func killDriver(_ context.Context, _ *run, e *Edge, _ schedule.Fault) (activeFault, error) {
	before := e.driver.refused.Load()
	e.driver.dead.Store(true)
	return activeFault{
		heal: func(context.Context) error { e.driver.dead.Store(false); return nil },
		hits: func() uint64 { return e.driver.refused.Load() - before },
	}, nil
}

// driver is the driver sim, which may be dead: it then answers nothing but errors.
type driver struct {
	*sim.Driver
	dead    atomic.Bool
	refused atomic.Uint64
}

var errDead = errors.New("the driver's daemon does not answer")

func (d *driver) checkDriverAlive() error {
	if d.dead.Load() {
		d.refused.Add(1)
		return errDead
	}
	return nil
}

func (d *driver) Fingerprint(ctx context.Context) fleet.DriverInfo {
	if err := d.checkDriverAlive(); err != nil {
		return fleet.DriverInfo{Detected: true, HealthDescription: err.Error()}
	}
	return d.Driver.Fingerprint(ctx)
}

func (d *driver) Start(ctx context.Context, cfg drivers.TaskConfig) (drivers.Handle, error) {
	if err := d.checkDriverAlive(); err != nil {
		return drivers.Handle{}, drivers.Recoverable(err)
	}
	// As other drivers do: an agent whose journal is gone finds its attempts by these.
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return drivers.Handle{}, drivers.Recoverable(err)
	}
	return d.Driver.Start(ctx, cfg)
}

func (d *driver) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	if err := d.checkDriverAlive(); err != nil {
		return nil, drivers.Recoverable(err)
	}
	return d.Driver.Recover(ctx, cfg, h)
}
