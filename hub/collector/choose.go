package collector

import (
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Choice is what may go. Allocations go before the evaluations that placed them, and
// both before the job or the node that they are of.
type Choice struct {
	Allocs      []fleet.AllocID
	Evals       []fleet.EvalID
	Jobs        []state.CollectedJob
	Nodes       []state.CollectedNode
	Deployments []fleet.DeploymentID
}

// Empty reports whether nothing goes.
func (c *Choice) Empty() bool {
	return len(c.Allocs)+len(c.Evals)+len(c.Jobs)+len(c.Nodes)+len(c.Deployments) == 0
}

// Commands are entries of at most n removals each, in order.
func (c *Choice) Commands(n int) []state.Collect {
	e := entries{most: n}
	fill(&e, c.Allocs, func(cmd *state.Collect) *[]fleet.AllocID { return &cmd.Allocs })
	fill(&e, c.Evals, func(cmd *state.Collect) *[]fleet.EvalID { return &cmd.Evals })
	fill(&e, c.Deployments, func(cmd *state.Collect) *[]fleet.DeploymentID { return &cmd.Deployments })
	fill(&e, c.Jobs, func(cmd *state.Collect) *[]state.CollectedJob { return &cmd.Jobs })
	fill(&e, c.Nodes, func(cmd *state.Collect) *[]state.CollectedNode { return &cmd.Nodes })
	return e.list
}

// entries are commands of at most so many removals each.
type entries struct {
	list []state.Collect
	most int
	room int // in the last one
}

// fill adds removals of one kind, which list finds in a command.
func fill[T any](e *entries, all []T, list func(*state.Collect) *[]T) {
	for len(all) > 0 {
		if e.room == 0 {
			e.list, e.room = append(e.list, state.Collect{}), e.most
		}
		n := min(e.room, len(all))
		*list(&e.list[len(e.list)-1]) = all[:n:n]
		all, e.room = all[n:], e.room-n
	}
}

// Choose says what may go of the state that v shows.
//
// An allocation goes when its edge has finished with it and nothing that runs
// depends on its record: what is out of sight (unknown) never goes, nor what was
// given up and may still run on a node that is known; what holds a place of a job
// that is not stopped stays (a batch job's success is not run again, a failure may be
// replaced by its record). An evaluation goes with the last of its allocations. A job
// goes when it is dead, is not one that starts again by itself or on demand, and
// all of it can go. A deployment goes when it is over and nothing that runs came with
// it, unless it is the last of a job that runs. A node goes when it has been down for long and nothing is left
// of it.
func Choose(v *state.View, now time.Time, t Thresholds) Choice {
	c := chooser{view: v, now: now, keep: t, kept: map[fleet.EvalID]bool{}, left: map[fleet.NodeID]bool{}}
	for j := range v.Jobs("*", "") {
		c.job(j)
	}
	for a := range v.Allocs("*", "") {
		if _, ok := v.Job(a.Namespace, a.JobID); !ok {
			jobType := fleet.JobTypeService
			if a.Job != nil {
				jobType = a.Job.Type
			}
			c.alloc(a, true, c.threshold(jobType))
		}
	}
	for e := range v.Evals("*", "") {
		if c.over(e) && !c.kept[e.ID] {
			c.out.Evals = append(c.out.Evals, e.ID)
		}
	}
	for d := range v.Deployments("*", "") {
		if !d.Active() && c.old(d.ModifyTime, t.Deployments) && !c.rolledOut(d) {
			c.out.Deployments = append(c.out.Deployments, d.ID)
		}
	}
	for n := range v.Nodes("") {
		if n.Status == fleet.NodeDown && !c.left[n.ID] && c.old(n.StatusUpdatedAt*int64(time.Second), t.Nodes) {
			c.out.Nodes = append(c.out.Nodes, state.CollectedNode{ID: n.ID, Epoch: n.Epoch})
		}
	}
	return c.out
}

type chooser struct {
	view *state.View
	now  time.Time
	keep Thresholds
	out  Choice
	kept map[fleet.EvalID]bool // an allocation of it stays
	left map[fleet.NodeID]bool // an allocation on it stays
}

// old reports whether something that changed at at (UnixNano) has been kept for long
// enough.
func (c *chooser) old(at int64, keep time.Duration) bool { return c.now.UnixNano()-at >= int64(keep) }

func (c *chooser) threshold(jobType string) time.Duration {
	if fleet.RunsToCompletion(jobType) {
		return c.keep.BatchEvals
	}
	return c.keep.Evals
}

// over reports whether an evaluation has been over for long enough.
func (c *chooser) over(e *fleet.Evaluation) bool {
	return e.Terminal() && c.old(e.ModifyTime, c.threshold(e.Type))
}

// job looks at a job and its allocations. A job that goes takes all of them along,
// also those that its own threshold would keep for longer.
func (c *chooser) job(j *fleet.Job) {
	whole, keep := c.dead(j), c.threshold(j.Type)
	if whole {
		keep = 0
	}
	newest := map[string]*fleet.Alloc{}
	if fleet.RunsToCompletion(j.Type) {
		for a := range c.view.AllocsByJob(j.Namespace, j.ID) {
			if n := newest[a.Name]; n == nil || a.CreateIndex > n.CreateIndex {
				newest[a.Name] = a
			}
		}
	}
	for a := range c.view.AllocsByJob(j.Namespace, j.ID) {
		superseded := fleet.RunsToCompletion(j.Type) && newest[a.Name].JobVersion > a.JobVersion
		c.alloc(a, whole || superseded || free(a, j), keep)
	}
	if !whole {
		return
	}
	for e := range c.view.EvalsByJob(j.Namespace, j.ID) {
		if !c.over(e) { // one that is will be chosen with all others
			c.out.Evals = append(c.out.Evals, e.ID)
		}
	}
	c.out.Jobs = append(c.out.Jobs, state.CollectedJob{Namespace: j.Namespace, ID: j.ID, ModifyIndex: j.ModifyIndex})
}

// dead reports whether a job is over, with all that belongs to it, and has been for
// long enough.
func (c *chooser) dead(j *fleet.Job) bool {
	if j.Status != fleet.JobStatusDead || !j.Stop && !fleet.RunsToCompletion(j.Type) {
		return false
	}
	last := j.SubmitTime
	for e := range c.view.EvalsByJob(j.Namespace, j.ID) {
		if !e.Terminal() {
			return false
		}
		last = max(last, e.ModifyTime)
	}
	for a := range c.view.AllocsByJob(j.Namespace, j.ID) {
		if !c.finished(a) {
			return false
		}
		last = max(last, a.ModifyTime)
	}
	return c.old(last, c.keep.Jobs)
}

// rolledOut reports whether what a deployment rolled out is there.
func (c *chooser) rolledOut(d *fleet.Deployment) bool {
	for a := range c.view.AllocsByDeployment(d.ID) {
		if !a.Terminal() || !c.finished(a) {
			return true
		}
	}
	job, ok := c.view.Job(d.Namespace, d.JobID)
	return ok && !job.Stop && d.Of(job)
}

// finished reports whether an allocation is over for good.
func (c *chooser) finished(a *fleet.Alloc) bool {
	if !a.ClientTerminal() {
		return false
	}
	n, known := c.view.Node(a.NodeID)
	return !known || n.Revoked != nil || !a.OccupiesNode()
}

// free reports whether nothing of a job that lives depends on the record of one of its
// allocations.
func free(a *fleet.Alloc, job *fleet.Job) bool {
	another := a.Job != nil && job != nil && a.Job.CreateIndex < job.CreateIndex // of the same name, that was purged
	return job.Stopped() || another || a.NoLongerWanted() && !a.NeedsToReconnect() && !a.AwaitsPlacement()
}

// alloc looks at an allocation that may go (free) when it is over and old.
func (c *chooser) alloc(a *fleet.Alloc, free bool, keep time.Duration) {
	if free && c.finished(a) && c.old(a.ModifyTime, keep) {
		c.out.Allocs = append(c.out.Allocs, a.ID)
		return
	}
	c.kept[a.EvalID], c.left[a.NodeID] = true, true
}
