package reconcile_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/reconcile"
)

// start is when every scenario begins.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// simCluster is a cluster of one job, as far as reconcile sees it, in which what is
// decided happens: a stand-in for the state, the scheduler and the edges, in
// scenarios and in property tests. An allocation's ReportedStatus is what is true
// on its edge.
type simCluster struct {
	now      time.Time
	job      *fleet.Job // newest version; nil: purged
	nodes    map[fleet.NodeID]*fleet.Node
	pools    map[string]string
	allocs   map[fleet.AllocID]*fleet.Alloc
	evals    map[fleet.EvalID]time.Time
	unsuited map[fleet.NodeID]string
	passing  map[fleet.NodeID]bool             // the reason in unsuited may end by itself
	windows  map[fleet.NodeID]reconcile.Window // of the newest version; closed until Opens
	full     bool                              // nothing can be placed
	crowded  map[fleet.NodeID]bool             // the newest version does not fit there
	behind   map[fleet.NodeID]bool             // what is decided does not reach its edge until it is ready again

	deployment *fleet.Deployment // the newest

	allocSeq, evalSeq, turn int
	index                   fleet.Index // of the last plan
}

func newSimCluster() *simCluster {
	return &simCluster{
		now: start, nodes: map[fleet.NodeID]*fleet.Node{}, pools: map[string]string{},
		allocs: map[fleet.AllocID]*fleet.Alloc{}, evals: map[fleet.EvalID]time.Time{}, unsuited: map[fleet.NodeID]string{}, passing: map[fleet.NodeID]bool{},
		windows: map[fleet.NodeID]reconcile.Window{}, crowded: map[fleet.NodeID]bool{}, behind: map[fleet.NodeID]bool{},
	}
}

// nodeWindow is how the windows of a node stand now.
func (w *simCluster) nodeWindow(id fleet.NodeID) reconcile.Window {
	s := w.windows[id]
	if s.Closed && !s.Opens.IsZero() && !w.now.Before(s.Opens) {
		return reconcile.Window{}
	}
	return s
}

// decisionInput is what a decision for an evaluation sees.
func (w *simCluster) decisionInput(eval fleet.EvalID) reconcile.Input {
	in := reconcile.Input{
		Job: w.job, Deployment: w.deployment, Namespace: fleet.DefaultNamespace, JobID: "job", EvalID: eval, Priority: 50,
		Nodes: maps.Clone(w.nodes), DefaultDisconnect: w.pools, Waiting: map[fleet.EvalID]time.Time{}, Now: w.now,
		Suits: func(n *fleet.Node, _ string) (reason string, passing bool) {
			return w.unsuited[n.ID], w.passing[n.ID]
		},
		Window: func(n *fleet.Node, _ string) reconcile.Window { return w.nodeWindow(n.ID) },
		Room:   func(a *fleet.Alloc) bool { return (!w.full || !a.Terminal()) && !w.crowded[a.NodeID] },
		NewID:  func() string { w.evalSeq++; return fmt.Sprintf("f%d", w.evalSeq) },
	}
	for id, at := range w.evals {
		if at.After(w.now) {
			in.Waiting[id] = at
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.allocs)) {
		in.Allocs = append(in.Allocs, w.allocs[id])
	}
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		if n := w.nodes[id]; n.Schedulable() && w.job != nil && w.job.InPool(n.NodePool) && w.job.InDatacenter(n.Datacenter) {
			in.Targets = append(in.Targets, n)
		}
	}
	return in
}

// isSystemJob: the job's type has its allocations on every node.
func (w *simCluster) isSystemJob() bool {
	return w.job != nil && (w.job.Type == fleet.JobTypeSystem || w.job.Type == fleet.JobTypeSysBatch)
}

// decideForJobType is what the decision for the job's type says.
func (w *simCluster) decideForJobType(in reconcile.Input) reconcile.Output {
	if w.isSystemJob() {
		return reconcile.DecideSystem(in)
	}
	return reconcile.Decide(in)
}

// decideAndApply decides and lets it happen.
func (w *simCluster) decideAndApply(eval fleet.EvalID) reconcile.Output {
	out := w.decideForJobType(w.decisionInput(eval))
	w.applyOutput(eval, out)
	return out
}

// applyOutput makes an output true, as the scheduler and the state would.
func (w *simCluster) applyOutput(eval fleet.EvalID, out reconcile.Output) {
	w.index++
	delete(w.evals, eval)
	for _, u := range out.DeploymentUpdates {
		d := w.deployment.Copy()
		d.Status, d.StatusDescription = u.Status, u.StatusDescription
		w.deployment = d
	}
	if out.Deployment != nil {
		w.deployment = out.Deployment.Copy()
		w.deployment.CreateIndex = w.index
	}
	placed := map[fleet.AllocID]bool{}
	for _, p := range out.Place {
		if w.placeAlloc(p) && p.Previous != nil {
			placed[p.Previous.ID] = true
		}
	}
	for _, changes := range [][]reconcile.Change{out.Stops, out.Retired, out.Lost, out.Unknown, out.Reconnects, out.InPlace} {
		for _, c := range changes {
			switch unplaced := c.Reschedules && !placed[c.Alloc.ID]; {
			case unplaced && !c.Alloc.AwaitsPlacement():
				w.storeAlloc(c.Unplaced(w.job))
			case unplaced:
			case !c.WithPlacement || placed[c.Alloc.ID]:
				w.storeChange(c)
			}
		}
	}
	for _, c := range out.Kept {
		if c.Waits() {
			w.storeChange(c)
		}
	}
	for _, e := range out.FollowUps {
		w.evals[e.ID] = e.WaitUntil
	}
	for _, id := range out.Cancel {
		delete(w.evals, id)
	}
	for id, n := range w.nodes {
		if n.Status == fleet.NodeReady && !w.behind[id] {
			w.receiveDesired(id)
		}
	}
}

// receiveDesired tells a node's edge all that was decided.
func (w *simCluster) receiveDesired(id fleet.NodeID) {
	n := *w.nodes[id]
	n.Received = w.index
	w.nodes[id] = &n
	delete(w.behind, id)
}

func (w *simCluster) storeChange(c reconcile.Change) { w.storeAlloc(c.Apply(w.job)) }

func (w *simCluster) storeAlloc(a fleet.Alloc) {
	a.NextAllocation = w.allocs[a.ID].NextAllocation // the state's
	a.ModifyTime, a.AllocModifyIndex = w.now.UnixNano(), w.index
	if n := w.nodes[a.NodeID]; n != nil {
		a.SetFormerRunsAlone(w.allocs[a.ID].RunsAloneFor(n.Received))
	}
	w.allocs[a.ID] = &a
}

// placeAlloc makes an allocation on the next ready node, rather not on the one to be
// avoided.
func (w *simCluster) placeAlloc(p reconcile.Placement) bool {
	var ready, others []fleet.NodeID
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		if w.nodes[id].Schedulable() && w.unsuited[id] == "" && (p.Node == "" || p.Node == id) {
			ready = append(ready, id)
			if id != p.AvoidNode {
				others = append(others, id)
			}
		}
	}
	if len(others) > 0 {
		ready = others
	}
	if w.full || len(ready) == 0 {
		return false
	}
	w.allocSeq++
	w.turn++
	a := &fleet.Alloc{
		ID: fleet.AllocID(fmt.Sprintf("p%02d", w.allocSeq)), Name: p.Name, TaskGroup: p.Group, JobID: "job",
		Namespace: fleet.DefaultNamespace, NodeID: ready[w.turn%len(ready)],
		Job: w.job, JobVersion: w.job.Version, JobHash: w.job.SpecHash, RescheduleTracker: p.Tracker,
		DesiredStatus: fleet.DesiredRun, DesiredDescription: p.Reason,
		ClientStatus: fleet.ClientPending, ReportedStatus: fleet.ClientPending,
		CreateIndex: fleet.Index(1000 + w.allocSeq), CreateTime: w.now.UnixNano(), ModifyTime: w.now.UnixNano(),
	}
	if p.Job != nil {
		a.Job, a.JobVersion, a.JobHash = p.Job, p.Job.Version, p.Job.SpecHash
	}
	if p.Deployment != "" {
		a.DeploymentID, a.DeploymentStatus = p.Deployment, &fleet.AllocDeployment{Canary: p.Canary}
	}
	if p.Previous != nil {
		a.PreviousAllocation = p.Previous.ID
		prev := *w.allocs[p.Previous.ID]
		prev.NextAllocation = a.ID
		w.allocs[prev.ID] = &prev
	}
	w.allocs[a.ID] = a
	return true
}

// startAfresh retires a job's ended allocations when the job is registered again, as the state does.
func (w *simCluster) startAfresh() {
	for id, a := range w.allocs {
		if a.EndedOnEdge() && !a.NoLongerWanted() {
			w.updateAlloc(id, func(a *fleet.Alloc) { a.Retired = true })
		}
	}
}

// promoteCanaries makes the canaries of the deployment what they stand for.
func (w *simCluster) promoteCanaries() {
	d := w.deployment.Copy()
	for name, s := range d.TaskGroups {
		s.Promoted = true
		d.TaskGroups[name] = s
	}
	w.deployment = d
	for _, a := range w.allocs {
		if a.DeploymentStatus.IsCanary() && a.DeploymentID == d.ID {
			w.updateAlloc(a.ID, func(a *fleet.Alloc) {
				s := *a.DeploymentStatus
				s.Canary = false
				a.DeploymentStatus = &s
			})
		}
	}
}

// updateAlloc changes a copy of an allocation.
func (w *simCluster) updateAlloc(id fleet.AllocID, change func(a *fleet.Alloc)) {
	a := *w.allocs[id]
	change(&a)
	a.ModifyTime = w.now.UnixNano()
	w.allocs[id] = &a
}

// setNode moves a node to a status. One that becomes ready has told everything.
func (w *simCluster) setNode(id fleet.NodeID, status fleet.NodeStatus) {
	n := *w.nodes[id]
	switch away := status == fleet.NodeDisconnected || status == fleet.NodeDown; {
	case !away:
		n.DisconnectedAt = 0
	case n.Status == fleet.NodeReady || n.Status == fleet.NodeInitializing:
		n.DisconnectedAt = w.now.UnixNano()
	}
	n.Status = status
	w.nodes[id] = &n
	if status == fleet.NodeReady {
		w.receiveDesired(id)
		w.syncNodeAllocs(id)
	}
}

// syncNodeAllocs makes what is true on a ready node known, and lets its edge stop what
// it was told to stop.
func (w *simCluster) syncNodeAllocs(id fleet.NodeID) {
	for _, a := range w.onNode(id) {
		w.updateAlloc(a.ID, func(a *fleet.Alloc) {
			held := len(a.StopWindows) > 0 && w.nodeWindow(id).Closed
			if a.DesiredStatus != fleet.DesiredRun && !reportsEnd(a) && !held {
				a.ReportedStatus = fleet.ClientComplete
			}
			a.ClientStatus = a.ReportedStatus
		})
	}
}

func (w *simCluster) onNode(id fleet.NodeID) []*fleet.Alloc {
	var out []*fleet.Alloc
	for _, aid := range slices.Sorted(maps.Keys(w.allocs)) {
		if w.allocs[aid].NodeID == id {
			out = append(out, w.allocs[aid])
		}
	}
	return out
}

// reportsEnd: the edge has finished with the allocation.
func reportsEnd(a *fleet.Alloc) bool {
	return a.ReportedStatus == fleet.ClientComplete || a.ReportedStatus == fleet.ClientFailed
}
