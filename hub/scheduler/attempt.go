package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/hub/state"
	"skerry/reconcile"
)

// attempt is one try to make a plan for a job from a snapshot of the state.
type attempt struct {
	view  *state.View
	eval  *fleet.Evaluation
	job   *fleet.Job // nil: purged
	now   time.Time
	newID func() string

	decisions        reconcile.Output
	rankings         map[string]*ranking
	plannedUsage     *plannedUsage
	placements       []fleet.Alloc
	preempts         bool                          // the job may evict allocations of other jobs
	evicted          []*fleet.Alloc                // allocations of other jobs that the plan evicts
	preemptionsNamed map[fleet.NodeID]bool         // nodes whose evictions are listed in a placement
	replaced         map[fleet.AllocID]bool        // allocations whose replacement found a node
	stopFirst        map[fleet.AllocID]bool        // allocations that must stop before one placement fits
	failed           map[string]*fleet.AllocMetric // by group: why placements failed
	queued           map[string]int                // by group: placements that failed
	awaitingStops    map[string]int                // by group: how many of queued wait for other allocations to stop

	stopping      map[fleet.NodeID][]*fleet.Alloc // the job's allocations that are to stop and have not ended
	stoppingNodes []fleet.NodeID                  // the nodes of these
}

// newAttempt computes the decisions for a job and finds nodes for the placements. It fails if a constraint
// of the job cannot be compiled.
func newAttempt(v *state.View, eval *fleet.Evaluation, job *fleet.Job, now time.Time, newID func() string) (*attempt, error) {
	a := &attempt{
		view: v, eval: eval, job: job, now: now, newID: newID, rankings: map[string]*ranking{},
		replaced: map[fleet.AllocID]bool{}, stopFirst: map[fleet.AllocID]bool{},
		failed: map[string]*fleet.AllocMetric{}, queued: map[string]int{}, awaitingStops: map[string]int{},
	}
	in, err := a.reconcileInput()
	if err != nil {
		return nil, err
	}
	if a.isOnEveryNode() {
		in.Targets = a.nodesOf(job)
		a.decisions = reconcile.DecideSystem(in)
	} else {
		a.decisions = reconcile.Decide(in)
	}
	if job.Stopped() {
		return a, nil
	}
	for _, g := range job.TaskGroups {
		a.queued[g.Name] = 0
	}
	if err := a.computePlacements(in.Allocs); err != nil {
		return nil, err
	}
	if a.isOnEveryNode() {
		return a, a.explainSystemFailures(in.Targets)
	}
	return a, nil
}

// reconcileInput reads the input of package reconcile from the snapshot.
func (a *attempt) reconcileInput() (reconcile.Input, error) {
	in := reconcile.Input{
		Job: a.job, Namespace: a.eval.Namespace, JobID: a.eval.JobID, EvalID: a.eval.ID, Priority: a.eval.Priority,
		Nodes: map[fleet.NodeID]*fleet.Node{}, DefaultDisconnect: map[string]string{},
		Waiting: map[fleet.EvalID]time.Time{}, Now: a.now, NewID: a.newID,
	}
	for al := range a.view.AllocsByJob(a.eval.Namespace, a.eval.JobID) {
		in.Allocs = append(in.Allocs, al)
		if _, known := in.Nodes[al.NodeID]; !known {
			if n, ok := a.view.Node(al.NodeID); ok {
				in.Nodes[al.NodeID] = n
			}
		}
	}
	in.Deployment = a.view.LatestDeployment(a.eval.Namespace, a.eval.JobID)
	for p := range a.view.Pools() {
		in.DefaultDisconnect[p.Name] = p.DefaultDisconnect
	}
	for e := range a.view.EvalsByJob(a.eval.Namespace, a.eval.JobID) {
		if e.Status == fleet.EvalPending && e.WaitUntil.After(a.now) && isFollowUp(e.TriggeredBy) {
			in.Waiting[e.ID] = e.WaitUntil
		}
	}
	in.Window = a.updateWindowFunc()
	in.Room = a.replacementFitFunc()
	suits, err := SuitsFunc(a.view, a.job)
	in.Suits = suits
	return in, err
}

// replacementFitFunc returns a function that reports whether the newest version of a group fits on the
// node of an allocation if it replaces that.
func (a *attempt) replacementFitFunc() func(prev *fleet.Alloc) bool {
	rankings := map[string]*ranking{}
	return func(prev *fleet.Alloc) bool {
		n, ok := a.view.Node(prev.NodeID)
		r := rankings[prev.TaskGroup]
		if ok && r == nil {
			var err error
			if r, err = newRanking(a.view, a.job, a.job.Group(prev.TaskGroup), &plannedUsage{}, nil); err != nil {
				return true // the placement itself will fail with this error
			}
			rankings[prev.TaskGroup] = r
		}
		return !ok || r.canFitInsteadOf(prev, n)
	}
}

// isFollowUp reports whether delayed evaluations with this trigger are follow-ups that package reconcile
// asked for.
func isFollowUp(trigger string) bool {
	switch trigger {
	case fleet.TriggerRetryFailedAlloc, fleet.TriggerAllocReschedule, fleet.TriggerDisconnectTimeout, fleet.TriggerUpdateWindow:
		return true
	}
	return false
}

// updateWindowFunc returns a function that reports the state of a group's update windows on a node. It
// computes the state once for each time zone.
func (a *attempt) updateWindowFunc() func(*fleet.Node, string) reconcile.Window {
	type key struct{ zone, group string }
	known := map[key]reconcile.Window{}
	return func(n *fleet.Node, group string) reconcile.Window {
		k := key{n.TimeZone, group}
		w, ok := known[k]
		if !ok {
			s := cron.NodeWindowState(n, a.job.Group(group), a.now)
			w = reconcile.Window{Closed: !s.Open, Opens: s.Next}
			known[k] = w
		}
		return w
	}
}

// SuitsFunc returns a function that says why a node does not suit a group of a job; "": it does. For a stopped job it is
// nil. passing is set if an unhealthy driver is the reason. The error is that of an invalid constraint.
func SuitsFunc(view *state.View, job *fleet.Job) (suits func(n *fleet.Node, group string) (reason string, passing bool), err error) {
	if job.Stopped() {
		return nil, nil
	}
	groups := map[string]*feasibility{}
	for i := range job.TaskGroups {
		g := &job.TaskGroups[i]
		if groups[g.Name], err = newFeasibility(view, job, g); err != nil {
			return nil, err
		}
	}
	return func(n *fleet.Node, group string) (reason string, passing bool) {
		v := groups[group].checkNode(n)
		return v.reason, v.passing
	}, nil
}

// computePlacements finds nodes for all placements that reconcile decided on.
func (a *attempt) computePlacements(allocs []*fleet.Alloc) error {
	counts := map[string]int{}
	for _, p := range a.decisions.Place {
		counts[p.Group]++
	}
	a.plannedUsage = a.countRemainingAllocs(allocs)
	a.preempts = a.view.Scheduling().Preempts(a.job.Type)
	if len(counts) == 0 {
		return nil
	}
	a.findStopping(allocs)
	stops := map[fleet.AllocID]reconcile.Change{}
	for _, c := range a.decisions.Stops {
		stops[c.Alloc.ID] = c
	}
	for _, p := range a.decisions.Place {
		r, err := a.findOrNewRanking(rankingName(p.Group, a.job, &p), a.job, &p, counts)
		if err == nil && p.Job != nil {
			r, err = a.findOrNewRanking(rankingName(fmt.Sprintf("%s@%d", p.Group, p.Job.Version), p.Job, &p), p.Job, &p, counts)
		}
		if err != nil {
			return err
		}
		a.tryPlacement(r, p, stops)
	}
	return nil
}

// rankingName is name, with the placement's own name where the group has volumes that are per_alloc: such
// placements suit different nodes.
func rankingName(name string, job *fleet.Job, p *reconcile.Placement) string {
	for _, v := range job.Group(p.Group).Volumes {
		if v.PerAlloc {
			return name + "/" + p.Name
		}
	}
	return name
}

// groupOfIndex returns a group with the volumes of one of its allocations: those that are per_alloc have its index.
func groupOfIndex(g *fleet.TaskGroup, name string) *fleet.TaskGroup {
	index, ok := (&fleet.Alloc{Name: name}).NameIndex()
	if !ok || len(g.Volumes) == 0 {
		return g
	}
	c := *g
	c.Volumes = maps.Clone(g.Volumes)
	for k, v := range c.Volumes {
		v.Source, v.PerAlloc = v.VolumeSource(index), false
		c.Volumes[k] = v
	}
	return &c
}

// findOrNewRanking returns the ranking under a name, or makes it. The name stands for a group, or for a
// group of an older job version. counts has the number of placements by group.
func (a *attempt) findOrNewRanking(name string, job *fleet.Job, p *reconcile.Placement, counts map[string]int) (*ranking, error) {
	if r := a.rankings[name]; r != nil {
		return r, nil
	}
	var draw *nodeSampler
	if p.Node == "" {
		draw = newNodeSampler(a.view, string(a.eval.ID)+name)
	}
	r, err := newRanking(a.view, job, groupOfIndex(job.Group(p.Group), p.Name), a.plannedUsage, draw)
	if err != nil {
		return nil, err
	}
	r.candidateTarget = max(r.candidateTarget, counts[p.Group])
	a.rankings[name] = r
	return r, nil
}

// findStopping fills in a.stopping and a.stoppingNodes.
func (a *attempt) findStopping(allocs []*fleet.Alloc) {
	a.stopping = map[fleet.NodeID][]*fleet.Alloc{}
	for _, al := range allocs {
		if !al.ServerTerminal() || al.ClientTerminal() || al.ClientStatus == fleet.ClientUnknown {
			continue
		}
		if a.stopping[al.NodeID] == nil {
			a.stoppingNodes = append(a.stoppingNodes, al.NodeID)
		}
		a.stopping[al.NodeID] = append(a.stopping[al.NodeID], al)
	}
}

// countRemainingAllocs counts the job's allocations, by node and group, that are not stopped or lost by
// this decision.
func (a *attempt) countRemainingAllocs(allocs []*fleet.Alloc) *plannedUsage {
	t := &plannedUsage{
		byNode: map[fleet.NodeID]map[string]int{}, planned: map[fleet.NodeID]fleet.Resources{}, afterStops: map[fleet.NodeID]fleet.Resources{},
	}
	leaves := map[fleet.AllocID]bool{}
	for _, c := range a.decisions.Stops {
		leaves[c.Alloc.ID] = !c.WithPlacement
	}
	for _, c := range a.decisions.Lost {
		leaves[c.Alloc.ID] = true
	}
	for _, al := range allocs {
		if al.Terminal() || leaves[al.ID] {
			continue
		}
		if t.byNode[al.NodeID] == nil {
			t.byNode[al.NodeID] = map[string]int{}
		}
		t.byNode[al.NodeID][al.TaskGroup]++
	}
	return t
}

// tryPlacement finds a node for one placement. The allocation that it replaces does not count for spreads
// and distinct rules, but its resources are free only when it has ended. So if there is no other capacity,
// that allocation, a stopping one, or a preempted one is stopped first, and the placement stays queued.
func (a *attempt) tryPlacement(r *ranking, p reconcile.Placement, stops map[fleet.AllocID]reconcile.Change) {
	var prev *fleet.Alloc
	if p.Previous != nil && stops[p.Previous.ID].WithPlacement && !p.Previous.Terminal() {
		prev = p.Previous
		r.adjustReplacedAlloc(prev, -1)
	}
	if made, ok := r.placeOnBestNode(p); ok {
		a.placements = append(a.placements, a.newAllocForPlacement(r, p, made))
		if p.Previous != nil {
			a.replaced[p.Previous.ID] = true
		}
		return
	}
	a.queued[p.Group]++
	if m := a.failed[p.Group]; m != nil {
		m.CoalescedFailures++
	} else {
		a.failed[p.Group] = r.failureMetric()
	}
	if prev != nil && r.reserveAfterStop(prev) {
		a.stopFirst[prev.ID] = true
		a.awaitingStops[p.Group]++
		return
	}
	if a.awaitStopping(r, p) {
		a.awaitingStops[p.Group]++
	} else if a.preempts {
		victims, fits := r.planPreemption(p)
		a.evicted = append(a.evicted, victims...)
		if fits {
			a.awaitingStops[p.Group]++
		}
	}
	if prev != nil {
		r.adjustReplacedAlloc(prev, 1)
	}
}

// awaitStopping reports whether a placement will fit when a stopping allocation of the job has ended, and
// if so reserves that capacity.
func (a *attempt) awaitStopping(r *ranking, p reconcile.Placement) bool {
	if p.Node != "" {
		return a.awaitStoppingOn(p.Node, r)
	}
	if p.Previous != nil && a.awaitStoppingOn(p.Previous.NodeID, r) {
		return true
	}
	for ; r.stoppingTried < len(a.stoppingNodes); r.stoppingTried++ {
		if a.awaitStoppingOn(a.stoppingNodes[r.stoppingTried], r) {
			return true
		}
	}
	return false
}

// awaitStoppingOn is awaitStopping for one node.
func (a *attempt) awaitStoppingOn(id fleet.NodeID, r *ranking) bool {
	for _, al := range a.stopping[id] {
		if !a.stopFirst[al.ID] && r.reserveAfterStop(al) {
			a.stopFirst[al.ID] = true
			return true
		}
	}
	return false
}

// newAllocForPlacement returns the new allocation of a placement on the chosen node.
func (a *attempt) newAllocForPlacement(r *ranking, p reconcile.Placement, made placementChoice) fleet.Alloc {
	al := fleet.Alloc{
		ID: fleet.AllocID(a.newID()), Namespace: a.eval.Namespace, EvalID: a.eval.ID, Name: p.Name,
		NodeID: made.node.ID, NodeName: made.node.Name,
		JobID: a.job.ID, Job: a.job, JobVersion: a.job.Version, JobHash: a.job.SpecHash, TaskGroup: p.Group,
		AllocatedResources: made.takes, Allotment: made.assignedResources, Score: made.score, Metrics: made.metric,
		DesiredStatus: fleet.DesiredRun, DesiredDescription: p.Reason, ClientStatus: fleet.ClientPending,
		RescheduleTracker: p.Tracker, CreateTime: a.now.UnixNano(), ModifyTime: a.now.UnixNano(),
	}
	if p.Job != nil {
		al.Job, al.JobVersion, al.JobHash = p.Job, p.Job.Version, p.Job.SpecHash
	}
	if p.Deployment != "" {
		al.DeploymentID, al.DeploymentStatus = p.Deployment, &fleet.AllocDeployment{Canary: p.Canary}
	}
	if p.Previous != nil {
		al.PreviousAllocation = p.Previous.ID
	}
	if a.preempts {
		al.PreemptedAllocations = a.claimPreemptedAllocs(made.node.ID)
	}
	return al
}

// preemptingJob returns the name of the job for the field PreemptedFor of evicted allocations.
func (a *attempt) preemptingJob() string { return a.job.Namespace + "/" + string(a.job.ID) }

// claimPreemptedAllocs returns the allocations that were evicted from a node for this job and that no
// placement lists yet. Only the first call for a node returns them.
func (a *attempt) claimPreemptedAllocs(id fleet.NodeID) []fleet.AllocID {
	if a.preemptionsNamed == nil {
		a.preemptionsNamed = map[fleet.NodeID]bool{}
	}
	if a.preemptionsNamed[id] {
		return nil
	}
	a.preemptionsNamed[id] = true
	var gone []fleet.AllocID
	for al := range a.view.AllocsByNode(id) {
		if al.PreemptedFor == a.preemptingJob() && al.PreemptedByAllocation == "" {
			gone = append(gone, al.ID)
		}
	}
	slices.Sort(gone)
	return gone
}

// failedPlacements returns, by group, why placements found no node. Placements that wait for other
// allocations to stop are not counted.
func (a *attempt) failedPlacements() map[string]*fleet.AllocMetric {
	failures := map[string]*fleet.AllocMetric{}
	for group, m := range a.failed {
		// A system job that no node suits has failed without a queued placement.
		if n := a.queued[group] - a.awaitingStops[group]; n > 0 || a.queued[group] == 0 {
			less := *m
			less.CoalescedFailures = max(n-1, 0)
			failures[group] = &less
		}
	}
	return failures
}

// decisionReasons returns one line for each decision, and for placements that failed.
func (a *attempt) decisionReasons() []string {
	lines := a.decisions.Reasons()
	if a.job.Stopped() {
		return lines
	}
	for _, al := range a.evicted {
		lines = append(lines, fmt.Sprintf("evict %s %s: %s", al.Name, fleet.Short(al.ID), a.evictionReason()))
	}
	for _, g := range a.job.TaskGroups {
		if n := a.awaitingStops[g.Name]; n > 0 {
			lines = append(lines, fmt.Sprintf("wait %s: %d of them, until the allocations that make room have stopped", g.Name, n))
		}
		switch m, n := a.failed[g.Name], a.queued[g.Name]-a.awaitingStops[g.Name]; {
		case m == nil:
		case n > 0:
			lines = append(lines, fmt.Sprintf("wait %s: no node for %d of them: %s", g.Name, n, placementFailureText(m)))
		case a.queued[g.Name] == 0: // of a system job
			lines = append(lines, fmt.Sprintf("place nothing of %s: no node suits it: %s", g.Name, placementFailureText(m)))
		}
	}
	return lines
}

// evictionReason returns the description of evicted allocations.
func (a *attempt) evictionReason() string {
	return fmt.Sprintf("preempted by job %s, of priority %d", a.job.ID, a.job.Priority)
}
