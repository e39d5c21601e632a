package check

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
)

// rollouts checks updates: how many allocations of a group a plan takes down at once and at a site, the number of
// canaries, deferred allocations, and that each deployment ends. It ignores a node whose status changed just before an
// entry: the plan may be based on the older status.
type rollouts struct {
	sight    map[fleet.NodeID]time.Duration  // when its status last changed between ready and another one
	reopened map[fleet.NodeID]time.Duration  // when it may have begun to take work: its drain ended, or it described itself
	returned map[fleet.NodeID]time.Duration  // when the node became ready after its last absence
	flagged  map[fleet.AllocID]time.Duration // when an operator or a drain asked to stop it
	newest   map[fleet.JobID]registered
	asked    map[fleet.JobID]bool // a person asked for a promotion
	running  map[fleet.DeploymentID]*rolling
}

// registered is the newest version of a job.
type registered struct {
	version uint64
	at      time.Duration
	before  map[uint64]time.Duration // when each version was registered
}

// rolling is a deployment that has not ended.
type rolling struct {
	index   fleet.Index   // its modify index
	changed time.Duration // when that changed last
	bound   time.Duration // how long it may go without a change; 0: without a bound
	job     fleet.JobID
	seen    time.Duration // when a hub showed it last
	told    bool          // a violation was reported
}

// inFlight bounds the age of the nodes' statuses on which a plan is based, and superseded
// the age of the job's version. An entry that waits for a majority is committed late.
const (
	inFlight   = 30 * time.Second
	superseded = time.Minute
)

// newRollouts returns the checker of updates and deployments.
func newRollouts() checker {
	t := &rollouts{
		sight: map[fleet.NodeID]time.Duration{}, returned: map[fleet.NodeID]time.Duration{}, reopened: map[fleet.NodeID]time.Duration{}, flagged: map[fleet.AllocID]time.Duration{},
		newest: map[fleet.JobID]registered{}, asked: map[fleet.JobID]bool{}, running: map[fleet.DeploymentID]*rolling{},
	}
	return checker{state: t, entry: t.judgeRolloutEntry, hub: t.recordDeployments, request: t.recordPromotionRequest, rewind: t.forgetVersions, tick: t.judgeStuckDeployments}
}

// recordPromotionRequest records that a person asked for the promotion of a job's canaries.
func (t *rollouts) recordPromotionRequest(_ *runContext, r *Request) {
	if r.What == AskPromote {
		t.asked[r.Job] = true
	}
}

// forgetVersions drops versions and deployments after the hubs were restored from an older copy, and treats each
// node's status as changed now.
func (t *rollouts) forgetVersions(s *runContext) {
	clear(t.newest)
	clear(t.running)
	for id := range t.sight {
		t.sight[id] = s.now
	}
}

// judgeRolloutEntry judges an entry's rollouts, placements of newer versions, ended deployments and promotions,
// and records node statuses and job versions.
func (t *rollouts) judgeRolloutEntry(s *runContext, a *Applied) {
	e := a.Effects
	t.recordNodeMoves(s, e)
	for _, j := range e.Jobs {
		t.recordJobVersion(s, j)
	}
	for _, id := range e.Flagged {
		t.flagged[id] = s.now
	}
	for i := range e.Rollouts {
		t.judgeMaxParallel(s, &e.Rollouts[i])
		t.judgeSiteBudget(s, &e.Rollouts[i])
		t.judgeCanaryCount(s, &e.Rollouts[i])
	}
	for _, a := range e.Advances {
		t.judgeVersionChange(s, a)
	}
	for i := range e.Ended {
		t.judgeEndedDeployment(s, &e.Ended[i])
	}
	for _, p := range e.Promoted {
		s.countJudgement(Canaries)
		s.countBranch(BranchPromoted)
		if !p.Auto && !t.asked[p.Job] {
			s.reportViolation(Canaries, string(p.Job), "the canaries of deployment %s were promoted, and nobody asked for it", fleet.Short(p.Deployment))
		}
	}
}

// recordNodeMoves records nodes that become ready, miss their deadline, end a drain or describe themselves.
func (t *rollouts) recordNodeMoves(s *runContext, e *Effects) {
	e.nodeStatuses(func(id fleet.NodeID, status fleet.NodeStatus) { t.recordNodeReturn(s, id, status) })
	for _, m := range e.Moved {
		t.sight[m.Node] = s.now
		delete(t.returned, m.Node)
	}
	for _, d := range e.Drains {
		if d.Over {
			t.reopened[d.Node] = s.now
		}
	}
	if e.Described != "" {
		t.reopened[e.Described] = s.now
	}
}

// tookNoWork reports whether a turn may be no part of the rollout: an update stops allocations at once on a node that
// takes no work, and the node may have begun to take work after the plan was made.
func (t *rollouts) tookNoWork(s *runContext, turn Turn) bool {
	return turn.Alloc == "" && t.reopenedLately(s, turn.Node)
}

// reopenedLately reports whether a node may have begun to take work within the last inFlight.
func (t *rollouts) reopenedLately(s *runContext, id fleet.NodeID) bool {
	at, reopened := t.reopened[id]
	return reopened && s.now-at < inFlight
}

// recordNodeReturn records the status of a node with a session. It counts as a change unless the node stays ready.
func (t *rollouts) recordNodeReturn(s *runContext, id fleet.NodeID, status fleet.NodeStatus) {
	if _, back := t.returned[id]; back && status == fleet.NodeReady {
		return
	}
	t.sight[id] = s.now
	if status == fleet.NodeReady {
		t.returned[id] = s.now
	}
}

// hasChangedLately reports whether a node's status changed within the last inFlight.
func (t *rollouts) hasChangedLately(s *runContext, id fleet.NodeID) bool {
	at, moved := t.sight[id]
	return moved && s.now-at < inFlight
}

// recordJobVersion records the version of a registration. A stopped job, or one whose version went back because it was
// purged, starts over.
func (t *rollouts) recordJobVersion(s *runContext, j JobChange) {
	old := t.newest[j.Job]
	if j.Stop || old.version >= j.Version {
		old.before = nil // the job was purged and registered again
	}
	if j.Stop {
		delete(t.newest, j.Job)
		return
	}
	if old.before == nil {
		old.before = map[uint64]time.Duration{}
	}
	old.before[j.Version] = s.now
	t.newest[j.Job] = registered{j.Version, s.now, old.before}
}

// startingAllocCount counts the allocations of a rollout, or of one site ("": all), that earlier plans started
// and that are not known to be healthy. Canaries, and nodes that changed or began to take work lately, do not
// count. A lost one counts only for its site.
func (t *rollouts) startingAllocCount(s *runContext, r *Rollout, site string) (n int) {
	for _, p := range r.Starting {
		counts := site == "" && !p.Lost || site != "" && site == p.Site
		if counts && !p.Canary && !t.hasChangedLately(s, p.Node) && !t.reopenedLately(s, p.Node) {
			n++
		}
	}
	return n
}

// judgeMaxParallel reports a plan that takes down more allocations of a group than max_parallel allows, including
// starting ones, or any before the canaries are promoted. Flagged allocations and canaries do not count.
func (t *rollouts) judgeMaxParallel(s *runContext, r *Rollout) {
	taken := 0
	var evidence []string
	for _, turn := range r.Turns {
		if _, flagged := t.flagged[turn.Old]; !flagged && !turn.Canary && !t.tookNoWork(s, turn) {
			taken++
			evidence = append(evidence, fmt.Sprintf("%s at %s, for %s", fleet.Short(turn.Old), turn.Site, fleet.Short(turn.Alloc)))
		}
	}
	if taken == 0 || r.MaxParallel == 0 {
		return
	}
	s.countJudgement(MaxParallel)
	if already := t.startingAllocCount(s, r, ""); taken+already > r.MaxParallel {
		s.reportWithEvidence(MaxParallel, string(r.Job), evidence, "group %s: a plan takes %d down for version %d while %d are starting: max_parallel is %d",
			r.Group, taken, r.Version, already, r.MaxParallel)
	}
	s.countJudgement(Canaries)
	if r.Held {
		s.reportWithEvidence(Canaries, string(r.Job), evidence, "group %s: a plan takes %d down for version %d, and its canaries are not promoted",
			r.Group, taken, r.Version)
	}
}

// judgeSiteBudget reports a plan that takes more of a group out of service at a site than max_unavailable_per_site
// allows, including allocations that are starting there.
func (t *rollouts) judgeSiteBudget(s *runContext, r *Rollout) {
	if r.MaxPerSite == 0 {
		return
	}
	taken := map[string]int{}
	for _, turn := range r.Turns {
		if _, flagged := t.flagged[turn.Old]; !flagged && turn.Served && !t.tookNoWork(s, turn) {
			taken[turn.Site]++
		}
	}
	for _, site := range sorted(taken) {
		s.countJudgement(SiteBudget)
		if already := t.startingAllocCount(s, r, site); taken[site]+already > r.MaxPerSite {
			s.reportViolation(SiteBudget, string(r.Job), "group %s: a plan takes %d down at site %s while %d are starting there: max_unavailable_per_site is %d",
				r.Group, taken[site], site, already, r.MaxPerSite)
		}
	}
}

// judgeCanaryCount reports more canaries than the deployment wants, or a deployment that wants more than the
// job asks for.
func (t *rollouts) judgeCanaryCount(s *runContext, r *Rollout) {
	if r.Wanted == 0 && len(r.Canaries) == 0 {
		return
	}
	s.countJudgement(Canaries)
	n := 0
	for _, c := range r.Canaries {
		if !t.hasChangedLately(s, c.Node) {
			n++
		}
	}
	if n > r.Wanted {
		s.reportViolation(Canaries, string(r.Job), "group %s has %d canaries of version %d: %d are wanted", r.Group, n, r.Version, r.Wanted)
	}
	if !r.System && r.Wanted > r.Asked {
		s.reportViolation(Canaries, string(r.Job), "group %s: the deployment wants %d canaries of version %d, and the job asks for %d",
			r.Group, r.Wanted, r.Version, r.Asked)
	}
}

// judgeVersionChange reports a placement of a newer version that is not the newest, unless the newest was registered
// within superseded.
func (t *rollouts) judgeVersionChange(s *runContext, a Advance) {
	last, known := t.newest[a.Job]
	if !known {
		return
	}
	s.countJudgement(NoneBetween)
	if a.To < last.version && s.now-last.at > superseded {
		s.reportViolation(NoneBetween, s.registry.edgeNameOf(a.Node), "allocation %s goes from version %d of job %s to %d: version %d exists since %s",
			fleet.Short(a.Alloc), a.From, a.Job, a.To, last.version, last.at)
	}
	back, away := t.returned[a.Node]
	missed, was := last.before[a.From+1]
	if a.To == last.version && a.To > a.From+1 && away && was && back > missed {
		s.countBranch(BranchStraightToNewest)
	}
}

// judgeEndedDeployment reports a deployment that failed at its progress deadline although all unhealthy allocations
// were deferred. It judges each group of a successful one.
func (t *rollouts) judgeEndedDeployment(s *runContext, e *Ended) {
	delete(t.running, e.Deployment)
	s.countJudgement(DeploymentsEnd)
	deferred, stuck := false, len(e.Groups) == 0
	for _, g := range e.Groups {
		deferred = deferred || g.Deferred > 0
		stuck = stuck || g.Healthy+g.Deferred < g.Total || slices.ContainsFunc(g.Away, func(id fleet.NodeID) bool { return t.hasChangedLately(s, id) })
		if e.Status == fleet.DeploymentSuccessful {
			t.judgeGroupCompletion(s, e, g)
		}
	}
	s.countJudgement(Deferred)
	switch {
	case e.Status == fleet.DeploymentSuccessful && deferred:
		s.countBranch(BranchFinishedDeferred)
	case e.Status == fleet.DeploymentFailed && strings.HasPrefix(e.Why, fleet.DescProgressDeadline) && deferred && !stuck:
		s.reportViolation(Deferred, string(e.Job), "deployment %s failed (%s), although all unhealthy allocations are on absent nodes", fleet.Short(e.Deployment), e.Why)
	}
}

// judgeGroupCompletion reports a group of a successful deployment with more allocations of another version than
// wait_for allows: none on ready nodes by default, none at all with "all", or at most a percentage.
func (t *rollouts) judgeGroupCompletion(s *runContext, e *Ended, g GroupProgress) {
	s.countJudgement(Deferred)
	behind, inSight := 0, 0
	for _, p := range g.Behind {
		if t.hasChangedLately(s, p.Node) {
			continue
		}
		behind++
		if !p.Away && !t.isHeldBack(s, g, p.Site) {
			inSight++
		}
	}
	percent, isPercent := strings.CutSuffix(g.WaitFor, "%")
	share, err := strconv.ParseFloat(percent, 64)
	switch {
	case inSight > 0 && !isPercent:
		s.reportViolation(Deferred, string(e.Job), "deployment %s succeeded: %d of group %s are on ready nodes and of another version", fleet.Short(e.Deployment), inSight, g.Group)
	case g.WaitFor == fleet.WaitForAll && behind > 0,
		isPercent && err == nil && float64(behind)*100 > (100-share)*float64(max(g.Total, behind)):
		s.reportViolation(Deferred, string(e.Job), "deployment %s succeeded with %d of %d of group %s still of another version: wait_for is %s",
			fleet.Short(e.Deployment), behind, g.Total, g.Group, g.WaitFor)
	}
}

// isHeldBack reports whether at least max_unavailable_per_site allocations of a site are on nodes that are not ready,
// or were not ready when the plan was made. The other allocations of the site are then deferred.
func (t *rollouts) isHeldBack(s *runContext, g GroupProgress, site string) bool {
	n := 0
	for _, away := range g.AwaySites {
		if away == site {
			n++
		}
	}
	for _, p := range g.Behind {
		if p.Site == site && !p.Away && t.hasChangedLately(s, p.Node) {
			n++
		}
	}
	return g.PerSite > 0 && n >= g.PerSite
}

// recordDeployments records the deployments that a hub shows as active, with the time of their last change, and
// drops those that have ended.
func (t *rollouts) recordDeployments(s *runContext, h *Hub) {
	for i := range h.Deployments {
		d := &h.Deployments[i]
		r := ensure(t.running, d.ID)
		r.job, r.seen = d.JobID, s.now
		if d.ModifyIndex > r.index {
			r.index, r.changed, r.bound = d.ModifyIndex, s.now, progressBound(d)
		}
	}
	for id, r := range t.running {
		over := !slices.ContainsFunc(h.Deployments, func(d fleet.Deployment) bool { return d.ID == id })
		if over && (h.Index >= r.index && h.Index > 0 || s.now-r.seen > s.limits.Slack) {
			delete(t.running, id)
		}
	}
}

// progressBound returns the longest progress deadline of a deployment's groups, which bounds the time without a
// change. It returns 0 for a deployment without such a bound: it is paused, waits for a promotion, or has no deadline.
func progressBound(d *fleet.Deployment) time.Duration {
	if d.Status != fleet.DeploymentRunning || d.RequiresPromotion() && !d.AutoPromotes() {
		return 0
	}
	var longest time.Duration
	for _, g := range d.TaskGroups {
		if !g.RequireProgressBy.IsZero() {
			longest = max(longest, g.ProgressDeadline)
		}
	}
	return longest
}

// judgeStuckDeployments reports deployments without a change for longer than their progress deadline and Limits.Heal,
// without faults. It drops old flags.
func (t *rollouts) judgeStuckDeployments(s *runContext) {
	for id, r := range t.running {
		s.countJudgement(DeploymentsEnd)
		if r.bound > 0 && !r.told && s.overdueEverywhere(r.changed, r.bound+s.limits.Heal) {
			r.told = true
			s.reportViolation(DeploymentsEnd, string(r.job), "deployment %s is active, but has not changed since %s", fleet.Short(id), r.changed)
		}
	}
	maps.DeleteFunc(t.flagged, func(_ fleet.AllocID, at time.Duration) bool { return s.now-at > keptAllocs })
}
