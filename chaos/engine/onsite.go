package engine

import (
	"context"
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
	"skerry/edge/local"
	"skerry/fleet"
)

// OnSite is the part of an edge's local API that people on site use.
type OnSite interface {
	Status(ctx context.Context) (local.Status, error)
	Stop(ctx context.Context, req local.StopRequest) error
	Start(ctx context.Context, alloc fleet.AllocID, reason string) (local.Started, error)
	Restart(ctx context.Context, alloc fleet.AllocID, task, reason string) error
}

// sitePatience is for how long a person on site tries again where the agent does not answer.
const sitePatience = time.Minute

// person is somebody on the site of an edge.
type person struct {
	p      *Faults
	edge   string
	job    fleet.JobID // the only job of interest; "": all
	reason string      // of every stop of this person, which tells them from those of others
	hits   uint64
	failed error // why something was left undone
}

// newPerson returns the person of a fault on one of its edges.
func newPerson(p *Faults, edge string, f schedule.Fault) *person {
	return &person{p: p, edge: edge, job: f.Params.Job, reason: fmt.Sprintf("%s at %s", f.Kind, f.At)}
}

// describeHits returns how many allocations the person stopped or restarted, or why some are left.
func (v *person) describeHits() (uint64, string) {
	if v.failed != nil {
		return v.hits, v.failed.Error()
	}
	return v.hits, fmt.Sprintf("%s: %d allocations", v.edge, v.hits)
}

// stopOnSite stops the allocations of an edge, as a person there does, and starts them again when the fault is
// healed. A fault without a duration leaves them stopped.
func stopOnSite(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	v := newPerson(p, edge, f)
	v.repeatUntilDone(ctx, min(sitePatience, max(f.For, retryEvery)), "stop", v.stopAll)
	a := Active{Evidence: v.describeHits}
	if f.For > 0 {
		a.Heal = func(ctx context.Context) error {
			v.repeatUntilDone(ctx, max(0, p.Users.Schedule.Length-p.Users.Elapsed())+lastCalls, "start", v.startAll)
			return nil
		}
	}
	return a, nil
}

// restartOnSite restarts the running tasks of an edge, as a person there does.
func restartOnSite(ctx context.Context, p *Faults, edge string, f schedule.Fault) (Active, error) {
	v := newPerson(p, edge, f)
	v.repeatUntilDone(ctx, sitePatience, "restart", v.restartAll)
	hits, what := v.describeHits()
	return Done(hits, what), nil
}

// repeatUntilDone calls act with the local API and what it lists until act leaves nothing undone, for a limited time.
func (v *person) repeatUntilDone(ctx context.Context, patience time.Duration, what string, act func(context.Context, OnSite, local.Status) error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		err := v.askOnce(ctx, act)
		if err == nil {
			v.failed = nil
			return
		}
		v.failed = fmt.Errorf("%s the allocations of %s on site: %w", what, v.edge, err)
		if !Pause(ctx, retryEvery) {
			return
		}
	}
}

// askOnce calls act once, with a limited time for all answers of the agent.
func (v *person) askOnce(ctx context.Context, act func(context.Context, OnSite, local.Status) error) error {
	at := v.p.OnSite(v.edge)
	if at == nil {
		return fmt.Errorf("the agent of %s does not run", v.edge)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := at.Status(ctx)
	if err != nil {
		return err
	}
	return act(ctx, at, s)
}

// stopAll stops each allocation that is to run and that nobody has stopped.
func (v *person) stopAll(ctx context.Context, at OnSite, s local.Status) error {
	for _, a := range s.Allocs {
		if a.Held != nil || !v.isWanted(a) {
			continue
		}
		v.observeRequest(a, check.AskStop)
		if err := at.Stop(ctx, local.StopRequest{Alloc: a.ID, Reason: v.reason}); err != nil {
			if fleet.CodeOf(err) == fleet.CodeConflict {
				continue // a hub stopped it meanwhile, or it ended
			}
			return err
		}
		v.observeRequest(a, check.StopRecorded)
		v.hits++
	}
	return nil
}

// startAll starts each allocation that this person stopped, and those that the edge holds since they have its name.
func (v *person) startAll(ctx context.Context, at OnSite, s local.Status) error {
	for _, a := range s.Allocs {
		if a.Held == nil || a.Held.Reason != v.reason {
			continue
		}
		v.observeRequest(a, check.AskStart)
		if _, err := at.Start(ctx, a.ID, v.reason+" is over"); err != nil {
			if fleet.CodeOf(err) == fleet.CodeConflict {
				continue // another allocation of its name was started, or a newer version overruled the stop
			}
			return err
		}
		v.observeRequest(a, check.StartRecorded)
	}
	return nil
}

// restartAll restarts each allocation that runs.
func (v *person) restartAll(ctx context.Context, at OnSite, s local.Status) error {
	for _, a := range s.Allocs {
		if a.Held != nil || a.ClientStatus != fleet.ClientRunning || !v.isWanted(a) {
			continue
		}
		v.observeRequest(a, check.AskRestart)
		if err := at.Restart(ctx, a.ID, "", v.reason); err != nil {
			continue // it has just ended
		}
		v.hits++
	}
	return nil
}

// isWanted reports whether the person acts on an allocation: it is to run, has not ended, and is of the job.
func (v *person) isWanted(a local.Alloc) bool {
	ended := a.ClientStatus == fleet.ClientComplete || a.ClientStatus == fleet.ClientFailed || a.ClientStatus == fleet.ClientLost
	return a.Desired == fleet.DesiredRun && !ended && (v.job == "" || a.JobID == v.job)
}

// observeRequest tells the checkers of a request about an allocation.
func (v *person) observeRequest(a local.Alloc, what string) {
	v.p.Observe(check.Observation{Request: &check.Request{
		Edge: v.edge, Alloc: a.ID, What: what, Job: a.JobID, Name: a.Name, Version: a.JobVersion,
	}})
}
