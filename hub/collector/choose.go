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
	e := commandBuilder{maxRemovals: n}
	addRemovals(&e, c.Allocs, func(cmd *state.Collect) *[]fleet.AllocID { return &cmd.Allocs })
	addRemovals(&e, c.Evals, func(cmd *state.Collect) *[]fleet.EvalID { return &cmd.Evals })
	addRemovals(&e, c.Deployments, func(cmd *state.Collect) *[]fleet.DeploymentID { return &cmd.Deployments })
	addRemovals(&e, c.Jobs, func(cmd *state.Collect) *[]state.CollectedJob { return &cmd.Jobs })
	addRemovals(&e, c.Nodes, func(cmd *state.Collect) *[]state.CollectedNode { return &cmd.Nodes })
	return e.list
}

// commandBuilder are commands of at most so many removals each.
type commandBuilder struct {
	list        []state.Collect
	maxRemovals int
	capacity    int // in the last one
}

// addRemovals adds removals of one kind, which list finds in a command.
func addRemovals[T any](e *commandBuilder, all []T, list func(*state.Collect) *[]T) {
	for len(all) > 0 {
		if e.capacity == 0 {
			e.list, e.capacity = append(e.list, state.Collect{}), e.maxRemovals
		}
		n := min(e.capacity, len(all))
		*list(&e.list[len(e.list)-1]) = all[:n:n]
		all, e.capacity = all[n:], e.capacity-n
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
	c := chooser{view: v, now: now, thresholds: t, evalsInUse: map[fleet.EvalID]bool{}, nodesInUse: map[fleet.NodeID]bool{}}
	for j := range v.Jobs("*", "") {
		c.chooseJob(j)
	}
	for a := range v.Allocs("*", "") {
		if _, ok := v.Job(a.Namespace, a.JobID); !ok {
			jobType := fleet.JobTypeService
			if a.Job != nil {
				jobType = a.Job.Type
			}
			c.chooseAlloc(a, true, c.evalThreshold(jobType))
		}
	}
	for e := range v.Evals("*", "") {
		if c.isExpiredEval(e) && !c.evalsInUse[e.ID] {
			c.out.Evals = append(c.out.Evals, e.ID)
		}
	}
	for d := range v.Deployments("*", "") {
		if !d.Active() && c.isOldEnough(d.ModifyTime, t.Deployments) && !c.isDeploymentInUse(d) {
			c.out.Deployments = append(c.out.Deployments, d.ID)
		}
	}
	for n := range v.Nodes("") {
		if n.Status == fleet.NodeDown && !c.nodesInUse[n.ID] && c.isOldEnough(n.StatusUpdatedAt*int64(time.Second), t.Nodes) {
			c.out.Nodes = append(c.out.Nodes, state.CollectedNode{ID: n.ID, Epoch: n.Epoch})
		}
	}
	return c.out
}

type chooser struct {
	view       *state.View
	now        time.Time
	thresholds Thresholds
	out        Choice
	evalsInUse map[fleet.EvalID]bool // an allocation of it stays
	nodesInUse map[fleet.NodeID]bool // an allocation on it stays
}

// isOldEnough reports whether something that changed at at (UnixNano) has been kept for long
// enough.
func (c *chooser) isOldEnough(at int64, keep time.Duration) bool {
	return c.now.UnixNano()-at >= int64(keep)
}

func (c *chooser) evalThreshold(jobType string) time.Duration {
	if fleet.RunsToCompletion(jobType) {
		return c.thresholds.BatchEvals
	}
	return c.thresholds.Evals
}

// isExpiredEval reports whether an evaluation has been over for long enough.
func (c *chooser) isExpiredEval(e *fleet.Evaluation) bool {
	return e.Terminal() && c.isOldEnough(e.ModifyTime, c.evalThreshold(e.Type))
}

// chooseJob looks at a job and its allocations. A job that goes takes all of them along,
// also those that its own threshold would keep for longer.
func (c *chooser) chooseJob(j *fleet.Job) {
	whole, keep := c.isDeadJob(j), c.evalThreshold(j.Type)
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
		c.chooseAlloc(a, whole || superseded || isRecordUnneeded(a, j), keep)
	}
	if !whole {
		return
	}
	for e := range c.view.EvalsByJob(j.Namespace, j.ID) {
		if !c.isExpiredEval(e) { // one that is will be chosen with all others
			c.out.Evals = append(c.out.Evals, e.ID)
		}
	}
	c.out.Jobs = append(c.out.Jobs, state.CollectedJob{Namespace: j.Namespace, ID: j.ID, ModifyIndex: j.ModifyIndex})
}

// isDeadJob reports whether a job is over, with all that belongs to it, and has been for
// long enough.
func (c *chooser) isDeadJob(j *fleet.Job) bool {
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
		if !c.isFinishedAlloc(a) {
			return false
		}
		last = max(last, a.ModifyTime)
	}
	return c.isOldEnough(last, c.thresholds.Jobs)
}

// isDeploymentInUse reports whether what a deployment rolled out is there.
func (c *chooser) isDeploymentInUse(d *fleet.Deployment) bool {
	for a := range c.view.AllocsByDeployment(d.ID) {
		if !a.Terminal() || !c.isFinishedAlloc(a) {
			return true
		}
	}
	job, ok := c.view.Job(d.Namespace, d.JobID)
	return ok && !job.Stop && d.Of(job)
}

// isFinishedAlloc reports whether an allocation is over for good.
func (c *chooser) isFinishedAlloc(a *fleet.Alloc) bool {
	if !a.ClientTerminal() {
		return false
	}
	n, known := c.view.Node(a.NodeID)
	return !known || n.Revoked != nil || !a.OccupiesNode()
}

// isRecordUnneeded reports whether nothing of a job that lives depends on the record of one of its
// allocations.
func isRecordUnneeded(a *fleet.Alloc, job *fleet.Job) bool {
	another := a.Job != nil && job != nil && a.Job.CreateIndex < job.CreateIndex // of the same name, that was purged
	return job.Stopped() || another || a.NoLongerWanted() && !a.NeedsToReconnect() && !a.AwaitsPlacement()
}

// chooseAlloc looks at an allocation that may go (free) when it is over and old.
func (c *chooser) chooseAlloc(a *fleet.Alloc, free bool, keep time.Duration) {
	if free && c.isFinishedAlloc(a) && c.isOldEnough(a.ModifyTime, keep) {
		c.out.Allocs = append(c.out.Allocs, a.ID)
		return
	}
	c.evalsInUse[a.EvalID], c.nodesInUse[a.NodeID] = true, true
}
