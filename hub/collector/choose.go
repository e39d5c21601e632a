package collector

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Choice has the objects to remove. Allocations are removed before the evaluations that placed them,
// and both before their job and node.
type Choice struct {
	Allocs      []fleet.AllocID
	Evals       []fleet.EvalID
	Jobs        []state.CollectedJob
	Nodes       []state.CollectedNode
	Deployments []fleet.DeploymentID
	Prefetches  []state.EndedPrefetch // to end; their edges let the contents go
	ACLTokens   []string              // accessors
	OneTime     [][]byte              // hashes of one-time tokens
	SiteCodes   []string              // ids
}

// Empty reports whether there is nothing to remove.
func (c *Choice) Empty() bool {
	return len(c.Allocs)+len(c.Evals)+len(c.Jobs)+len(c.Nodes)+len(c.Deployments)+len(c.Prefetches)+len(c.ACLTokens)+len(c.OneTime)+len(c.SiteCodes) == 0
}

// Commands returns commands of at most n removals each, in the order in which to commit them. Prefetches and tokens
// have commands of their own.
func (c *Choice) Commands(n int) []state.Collect {
	e := commandBuilder{maxRemovals: n}
	addRemovals(&e, c.Allocs, func(cmd *state.Collect) *[]fleet.AllocID { return &cmd.Allocs })
	addRemovals(&e, c.Evals, func(cmd *state.Collect) *[]fleet.EvalID { return &cmd.Evals })
	addRemovals(&e, c.Deployments, func(cmd *state.Collect) *[]fleet.DeploymentID { return &cmd.Deployments })
	addRemovals(&e, c.Jobs, func(cmd *state.Collect) *[]state.CollectedJob { return &cmd.Jobs })
	addRemovals(&e, c.Nodes, func(cmd *state.Collect) *[]state.CollectedNode { return &cmd.Nodes })
	return e.list
}

// commandBuilder divides removals into commands of at most maxRemovals.
type commandBuilder struct {
	list        []state.Collect
	maxRemovals int
	capacity    int // how many more the last command takes
}

// addRemovals adds removals of one kind; list returns the field of a command that they go into.
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

// Choose returns the objects of the state v that may be removed. It is pure.
//
//   - An allocation: its edge has finished it, and nothing depends on its record. An unknown allocation
//     stays, as does a lost one that may still run on a known node, and one that holds a name of a job
//     that is not stopped (a batch job's success must not run again).
//   - An evaluation: none of its allocations stays.
//   - A job: it is dead, does not start again by itself or on demand, and all of its objects may go.
//   - A deployment: it has ended and none of its allocations stays, unless it is the last one of a job
//     that is not stopped.
//   - A node: it has been down for long, and no allocation of it stays.
//   - A prefetch: its job is stopped or gone, its version is not kept, its node is gone or revoked, or it was requested
//     long ago.
//   - A token of access control: it has ended.
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
	for p := range v.Prefetches() {
		if c.isPrefetchOver(p) {
			c.out.Prefetches = append(c.out.Prefetches, state.EndedPrefetch{ID: p.ID, RequestIndex: p.RequestIndex})
		}
	}
	c.out.ACLTokens, c.out.OneTime = v.ExpiredACLTokens(now)
	c.out.SiteCodes = v.ExpiredSiteCodes(now)
	return c.out
}

// chooser is one call of Choose.
type chooser struct {
	view       *state.View
	now        time.Time
	thresholds Thresholds
	out        Choice
	evalsInUse map[fleet.EvalID]bool // an allocation of it stays
	nodesInUse map[fleet.NodeID]bool // an allocation on it stays
}

// isOldEnough reports whether an object that changed last at at (UnixNano) has been kept for keep.
func (c *chooser) isOldEnough(at int64, keep time.Duration) bool {
	return c.now.UnixNano()-at >= int64(keep)
}

func (c *chooser) evalThreshold(jobType string) time.Duration {
	if fleet.RunsToCompletion(jobType) {
		return c.thresholds.BatchEvals
	}
	return c.thresholds.Evals
}

// isExpiredEval reports whether an evaluation is terminal and older than its threshold.
func (c *chooser) isExpiredEval(e *fleet.Evaluation) bool {
	return e.Terminal() && c.isOldEnough(e.ModifyTime, c.evalThreshold(e.Type))
}

// chooseJob chooses among a job and its allocations and evaluations. A job that is removed takes all
// of them along, also those that are younger than their own threshold.
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

// isDeadJob reports whether a job is dead, all of its evaluations and allocations have ended, and the
// last change of them is older than the threshold of jobs.
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

// isDeploymentInUse reports whether an allocation of a deployment may still run, or the deployment is
// that of a job's newest version.
func (c *chooser) isDeploymentInUse(d *fleet.Deployment) bool {
	for a := range c.view.AllocsByDeployment(d.ID) {
		if !a.Terminal() || !c.isFinishedAlloc(a) {
			return true
		}
	}
	job, ok := c.view.Job(d.Namespace, d.JobID)
	return ok && !job.Stop && d.Of(job)
}

// isFinishedAlloc reports whether an allocation has ended and cannot run any more on a known node.
func (c *chooser) isFinishedAlloc(a *fleet.Alloc) bool {
	if !a.ClientTerminal() {
		return false
	}
	n, known := c.view.Node(a.NodeID)
	return !known || n.Revoked != nil || !a.OccupiesNode()
}

// isRecordUnneeded reports whether the scheduler needs the record of an allocation no more: its job is
// stopped or was purged, or the allocation is not wanted and needs neither a reconnect nor a replacement.
func isRecordUnneeded(a *fleet.Alloc, job *fleet.Job) bool {
	another := a.Job != nil && job != nil && a.Job.CreateIndex < job.CreateIndex // of the same name, that was purged
	return job.Stopped() || another || a.NoLongerWanted() && !a.NeedsToReconnect() && !a.AwaitsPlacement() && !a.DoneAfterAll()
}

// isPrefetchOver reports whether nobody waits for a prefetch, and its edge has not been told so yet.
func (c *chooser) isPrefetchOver(p *fleet.Prefetch) bool {
	if n, known := c.view.Node(p.NodeID); !known || n.Revoked != nil {
		return true
	}
	if p.Ending {
		return false
	}
	job, known := c.view.Job(p.Namespace, p.JobID)
	kept := known && slices.ContainsFunc(c.view.JobVersions(p.Namespace, p.JobID), func(j *fleet.Job) bool {
		return j.Version == p.JobVersion && j.SpecHash == p.JobHash
	})
	return !kept || job.Stop || c.isOldEnough(p.CreateTime, prefetchesKept)
}

// chooseAlloc chooses an allocation if it may go (free), has ended, and is older than keep. Else its
// evaluation and node stay too.
func (c *chooser) chooseAlloc(a *fleet.Alloc, free bool, keep time.Duration) {
	if free && c.isFinishedAlloc(a) && c.isOldEnough(a.ModifyTime, keep) {
		c.out.Allocs = append(c.out.Allocs, a.ID)
		return
	}
	c.evalsInUse[a.EvalID], c.nodesInUse[a.NodeID] = true, true
}
