package virtual

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/fleet"
)

// CrashTasks starts a goroutine that, each f.Params.Life, ends the tasks of an edge with exit code 1:
// those of f.Params.Job, or all. Healing stops it. The evidence is the number of ended tasks.
func (r *run) CrashTasks(ctx context.Context, edge string, f schedule.Fault) (engine.Active, error) {
	e := r.c.Edge(edge)
	ctx, stop := context.WithCancel(ctx)
	var hits atomic.Uint64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for engine.Pause(ctx, f.Params.Life) {
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
	return engine.Active{
		Heal:     func(context.Context) error { stop(); <-ended; return nil },
		Evidence: engine.Counted(hits.Load),
	}, nil
}

// isOf reports whether a task, by its TaskConfig.ID, belongs to a job. It is false if no running
// hub knows the allocation.
func (r *run) isOf(task string, job fleet.JobID) bool {
	id, ok := taskOf(task)
	if !ok {
		return false
	}
	return r.jobOf(id.Alloc) == job
}

// jobOf returns the job of an allocation; "" if no running hub knows it.
func (r *run) jobOf(alloc fleet.AllocID) fleet.JobID {
	for _, v := range r.c.runningViews() {
		if a, ok := v.Alloc(alloc); ok {
			return a.JobID
		}
	}
	return ""
}

// KillDriver makes the calls of an edge's driver fail until healed. The evidence is their number.
func (r *run) KillDriver(_ context.Context, edge string, _ schedule.Fault) (engine.Active, error) {
	e := r.c.Edge(edge)
	before := e.driver.refused.Load()
	e.driver.dead.Store(true)
	return engine.Active{
		Heal:     func(context.Context) error { e.driver.dead.Store(false); return nil },
		Evidence: engine.Counted(func() uint64 { return e.driver.refused.Load() - before }),
	}, nil
}

// driver is the driver sim with a switch: while dead is set, its calls fail and refused counts them.
type driver struct {
	*sim.Driver
	starting func(drivers.TaskConfig) // nil: nobody observes it
	dead     atomic.Bool
	refused  atomic.Uint64
}

var errDead = errors.New("the driver's daemon does not answer")

// checkDriverAlive returns errDead, and counts the call, if the driver is dead.
func (d *driver) checkDriverAlive() error {
	if d.dead.Load() {
		d.refused.Add(1)
		return errDead
	}
	return nil
}

// Fingerprint reports the driver as unhealthy while it is dead.
func (d *driver) Fingerprint(ctx context.Context) fleet.DriverInfo {
	if err := d.checkDriverAlive(); err != nil {
		return fleet.DriverInfo{Detected: true, HealthDescription: err.Error()}
	}
	return d.Driver.Fingerprint(ctx)
}

// Start starts a task and makes its state directory. While the driver is dead, the error is recoverable.
func (d *driver) Start(ctx context.Context, cfg drivers.TaskConfig) (drivers.Handle, error) {
	if err := d.checkDriverAlive(); err != nil {
		return drivers.Handle{}, drivers.Recoverable(err)
	}
	// Other drivers make this directory, too: an agent that lost its journal finds its
	// attempts by these directories.
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return drivers.Handle{}, drivers.Recoverable(err)
	}
	if d.starting != nil {
		d.starting(cfg)
	}
	return d.Driver.Start(ctx, cfg)
}

// Recover recovers a task. While the driver is dead, the error is recoverable.
func (d *driver) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	if err := d.checkDriverAlive(); err != nil {
		return nil, drivers.Recoverable(err)
	}
	return d.Driver.Recover(ctx, cfg, h)
}
