package real

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/fleet"
)

// Kinds of fault, as a run counts them.
const (
	faultCut       = "cut"        // an edge's link
	faultKillEdge  = "kill-edge"  // its agent, with SIGKILL
	faultReboot    = "reboot"     // power lost, another boot, without a link
	faultKillHub   = "kill-hub"   // a hub that does not lead
	faultKillLead  = "kill-lead"  // the one that leads
	faultCutHub    = "cut-hub"    // a hub's link to everyone
	faultScale     = "scale"      // a job's count changes meanwhile
	faultRestarted = "stop-start" // an agent is stopped in good order and started again
)

// Faults lists the kinds that a partition run draws from.
func Faults() []string {
	return []string{faultCut, faultKillEdge, faultReboot, faultKillHub, faultKillLead, faultCutHub, faultScale, faultRestarted}
}

// playRoundFaults draws what happens in one round. An edge is always cut off; the rest
// happens while it is.
func (r *partition) playRoundFaults(ctx context.Context) error {
	cut := r.rng.Perm(len(r.fleet.Edges))[:1+r.rng.IntN(len(r.fleet.Edges))]
	for _, i := range cut {
		if err := r.fleet.Edges[i].Cut(); err != nil {
			return err
		}
		r.recordFaultHit(faultCut, "cut %s", r.fleet.Edges[i].Name)
	}
	away := cutShortest + time.Duration(r.rng.Int64N(int64(cutLongest-cutShortest)))
	if err := pause(ctx, away/2); err != nil {
		return err
	}
	for range r.rng.IntN(3) {
		if err := r.playRandomFault(ctx, r.fleet.Edges[cut[0]]); err != nil {
			return err
		}
	}
	r.log = append(r.log, fmt.Sprintf("%.1fs", away.Seconds()))
	return pause(ctx, away/2)
}

// playRandomFault does one more fault; away is an edge that is cut off.
func (r *partition) playRandomFault(ctx context.Context, away *cluster.Edge) error {
	switch kind := Faults()[1+r.rng.IntN(len(Faults())-1)]; kind {
	case faultKillEdge:
		e := r.fleet.Edges[r.rng.IntN(len(r.fleet.Edges))]
		e.Kill()
		r.recordFaultHit(kind, "kill %s", e.Name)
		return e.Start()
	case faultRestarted:
		e := r.fleet.Edges[r.rng.IntN(len(r.fleet.Edges))]
		r.recordFaultHit(kind, "restart %s", e.Name)
		return errors.Join(e.Stop(), e.Start())
	case faultReboot:
		return r.rebootCutOffEdge(ctx, away)
	case faultScale:
		return r.scaleRandomJob(ctx)
	case faultKillHub, faultKillLead, faultCutHub:
		return r.killOrCutHub(ctx, kind)
	}
	return nil
}

// rebootCutOffEdge reboots an edge that is cut off and waits until its tasks run again.
func (r *partition) rebootCutOffEdge(ctx context.Context, e *cluster.Edge) error {
	before, err := running(ctx, e)
	if err != nil {
		return err
	}
	took, err := rebootOnce(ctx, e, before)
	if err != nil {
		return err
	}
	r.rebooted = append(r.rebooted, took)
	r.recordFaultHit(faultReboot, "reboot %s (%d tasks back after %.2fs)", e.Name, len(before), took.Seconds())
	return nil
}

// running lists the tasks that an edge itself says it runs. An agent that was
// just started is waited for.
func running(ctx context.Context, e *cluster.Edge) ([]check.TaskKey, error) {
	var tasks []check.TaskKey
	err := cluster.Eventually(ctx, rebootBound, e.Name+" answers on its socket", func(ctx context.Context) string {
		s, err := e.Local().Status(ctx)
		if err != nil {
			return err.Error()
		}
		tasks = tasks[:0]
		for _, a := range s.Allocs {
			for task, ts := range a.Tasks {
				if a.Desired == fleet.DesiredRun && ts.State == fleet.TaskRunning {
					tasks = append(tasks, check.TaskKey{Alloc: a.ID, Task: task})
				}
			}
		}
		return ""
	})
	return tasks, err
}

// scaleRandomJob changes a job's count by one, where the fleet has a leader to tell.
func (r *partition) scaleRandomJob(ctx context.Context) error {
	id := r.jobs[r.rng.IntN(len(r.jobs))]
	count := 1 + r.rng.IntN(2*r.Edges)
	var disconnect *fleet.Disconnect
	var job fleet.Job
	for _, h := range r.fleet.Hubs {
		if h.Running() && h.Call(ctx, "GET", "/v1/job/"+string(id)+"?stale", nil, &job) == nil {
			disconnect = job.TaskGroups[0].Disconnect
			break
		}
	}
	if job.ID == "" {
		return errors.New("scale a job: no hub knows it")
	}
	r.recordFaultHit(faultScale, "scale %s to %d", id, count)
	return r.registerAtAnyHub(ctx, workload(id, count, r.starts, disconnect))
}

// killOrCutHub kills or cuts off one hub; a majority stays.
func (r *partition) killOrCutHub(ctx context.Context, kind string) error {
	leader, err := r.fleet.Leader(ctx)
	if err != nil {
		return nil // an election is going on: fault enough
	}
	for _, h := range r.fleet.Hubs {
		if !h.Running() {
			return nil
		}
	}
	victim := leader
	if kind == faultKillHub {
		others := slices.DeleteFunc(slices.Clone(r.fleet.Hubs), func(h *cluster.Hub) bool { return h == leader })
		victim = others[r.rng.IntN(len(others))]
	}
	if kind == faultCutHub {
		victim = r.fleet.Hubs[r.rng.IntN(len(r.fleet.Hubs))]
		r.recordFaultHit(kind, "cut %s", victim.Name)
		if err := victim.Cut(); err != nil {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		return victim.Heal()
	}
	victim.Kill()
	r.recordFaultHit(kind, "kill %s", victim.Name)
	return nil
}

// healAllMembers heals every link and starts what was killed.
func (r *partition) healAllMembers(ctx context.Context) error {
	for _, e := range r.fleet.Edges {
		if err := e.Heal(); err != nil {
			return err
		}
		if !e.Running() {
			if err := e.Start(); err != nil {
				return err
			}
		}
	}
	for _, h := range r.fleet.Hubs {
		if err := h.Heal(); err != nil {
			return err
		}
		if !h.Running() {
			if err := h.Start(); err != nil {
				return err
			}
		}
	}
	for _, h := range r.fleet.Hubs {
		if err := h.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}
