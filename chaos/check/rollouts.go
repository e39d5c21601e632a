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

// rollouts judges new versions: how many allocations of a group a plan takes down at once and at
// a site, canaries, who is away, and that each deployment ends. A node that came or went just
// before an entry counts for neither: the plan was made on an older state.
type rollouts struct {
	sight    map[fleet.NodeID]time.Duration // when it last came or went
	drained  map[fleet.NodeID]time.Duration // when its last drain ended
	returned map[fleet.NodeID]time.Duration
	flagged  map[fleet.AllocID]time.Duration // to be stopped, rollout or not
	newest   map[fleet.JobID]registered
	asked    map[fleet.JobID]bool // somebody asked for a promotion
	running  map[fleet.DeploymentID]*rolling
}

// registered is the newest version of a job.
type registered struct {
	version uint64
	at      time.Duration
	before  map[uint64]time.Duration // when the kept ones came
}

// rolling is a deployment that goes on.
type rolling struct {
	index   fleet.Index
	changed time.Duration
	bound   time.Duration // without a change; 0: it may wait for ever
	job     fleet.JobID
	seen    time.Duration
	told    bool
}

// How old the snapshot may be that a decision was made on: of who is in sight, and of a
// job. An entry that waits for a majority is committed late.
const (
	inFlight   = 30 * time.Second
	superseded = time.Minute
)

func newRollouts() checker {
	t := &rollouts{
		sight: map[fleet.NodeID]time.Duration{}, returned: map[fleet.NodeID]time.Duration{}, drained: map[fleet.NodeID]time.Duration{}, flagged: map[fleet.AllocID]time.Duration{},
		newest: map[fleet.JobID]registered{}, asked: map[fleet.JobID]bool{}, running: map[fleet.DeploymentID]*rolling{},
	}
	return checker{state: t, entry: t.judgeRolloutEntry, hub: t.recordDeployments, request: t.recordPromotionRequest, rewind: t.forgetVersions, tick: t.judgeStuckDeployments}
}

func (t *rollouts) recordPromotionRequest(_ *runContext, r *Request) {
	if r.What == AskPromote {
		t.asked[r.Job] = true
	}
}

func (t *rollouts) forgetVersions(s *runContext) {
	clear(t.newest)
	clear(t.running)
	for id := range t.sight {
		t.sight[id] = s.now
	}
}

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

// recordNodeMoves notes who came into sight, and who went.
func (t *rollouts) recordNodeMoves(s *runContext, e *Effects) {
	e.nodeStatuses(func(id fleet.NodeID, status fleet.NodeStatus) { t.recordNodeReturn(s, id, status) })
	for _, m := range e.Moved {
		t.sight[m.Node] = s.now
		delete(t.returned, m.Node)
	}
	for _, d := range e.Drains {
		if d.Over {
			t.drained[d.Node] = s.now
		}
	}
}

// tookNoWork reports whether a turn may be none: an update stops what is on a node that takes
// no new work without waiting for a turn, and the drain of this one had ended when the plan was
// applied, and not when it was made.
func (t *rollouts) tookNoWork(s *runContext, turn Turn) bool {
	over, drained := t.drained[turn.Node]
	return turn.Alloc == "" && drained && s.now-over < inFlight
}

func (t *rollouts) recordNodeReturn(s *runContext, id fleet.NodeID, status fleet.NodeStatus) {
	if _, back := t.returned[id]; back && status == fleet.NodeReady {
		return
	}
	t.sight[id] = s.now
	if status == fleet.NodeReady {
		t.returned[id] = s.now
	}
}

// hasChangedLately reports whether a node came into sight or went just now.
func (t *rollouts) hasChangedLately(s *runContext, id fleet.NodeID) bool {
	at, moved := t.sight[id]
	return moved && s.now-at < inFlight
}

// recordJobVersion notes a version that a user made.
func (t *rollouts) recordJobVersion(s *runContext, j JobChange) {
	old := t.newest[j.Job]
	if j.Stop || old.version >= j.Version {
		old.before = nil // purged, and begun anew
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

// startingAllocCount counts the allocations that were started earlier, have been in sight for a
// while, and are not known to be healthy. One that was lost is missing at its site, but no update
// took it down.
func (t *rollouts) startingAllocCount(s *runContext, r *Rollout, site string) (n int) {
	for _, p := range r.Starting {
		counts := site == "" && !p.Lost || site != "" && site == p.Site
		if counts && !p.Canary && !t.hasChangedLately(s, p.Node) {
			n++
		}
	}
	return n
}

// judgeMaxParallel judges how much of a group is taken down at once.
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

// judgeSiteBudget judges how much of a group is taken down at each site.
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

// judgeCanaryCount judges how many there are.
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

// judgeVersionChange judges what is given a newer version: that it is the newest.
func (t *rollouts) judgeVersionChange(s *runContext, a Advance) {
	last, known := t.newest[a.Job]
	if !known {
		return
	}
	s.countJudgement(NoneBetween)
	if a.To < last.version && s.now-last.at > superseded {
		s.reportViolation(NoneBetween, s.registry.edgeNameOf(a.Node), "allocation %s goes from version %d of job %s to %d: version %d is there since %s",
			fleet.Short(a.Alloc), a.From, a.Job, a.To, last.version, last.at)
	}
	back, away := t.returned[a.Node]
	missed, was := last.before[a.From+1]
	if a.To == last.version && a.To > a.From+1 && away && was && back > missed {
		s.countBranch(BranchStraightToNewest)
	}
}

// judgeEndedDeployment judges why a deployment is over.
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
		s.reportViolation(Deferred, string(e.Job), "deployment %s failed (%s): all that was not healthy is away", fleet.Short(e.Deployment), e.Why)
	}
}

// judgeGroupCompletion judges that a group of a deployment that succeeded is as far as wait_for
// asks.
func (t *rollouts) judgeGroupCompletion(s *runContext, e *Ended, g GroupProgress) {
	s.countJudgement(Deferred)
	behind, inSight := 0, 0
	for _, p := range g.Behind {
		if t.hasChangedLately(s, p.Node) {
			continue
		}
		behind++
		if !p.Away && !g.heldBack(p.Site) {
			inSight++
		}
	}
	percent, isPercent := strings.CutSuffix(g.WaitFor, "%")
	share, err := strconv.ParseFloat(percent, 64)
	switch {
	case inSight > 0 && !isPercent:
		s.reportViolation(Deferred, string(e.Job), "deployment %s succeeded: %d of group %s are in sight and of another version", fleet.Short(e.Deployment), inSight, g.Group)
	case g.WaitFor == fleet.WaitForAll && behind > 0,
		isPercent && err == nil && float64(behind)*100 > (100-share)*float64(max(g.Total, behind)):
		s.reportViolation(Deferred, string(e.Job), "deployment %s succeeded with %d of %d of group %s still of another version: wait_for is %s",
			fleet.Short(e.Deployment), behind, g.Total, g.Group, g.WaitFor)
	}
}

// heldBack reports whether as many are away at a site as may be out of service there.
func (g GroupProgress) heldBack(site string) bool {
	n := 0
	for _, s := range g.AwaySites {
		if s == site {
			n++
		}
	}
	return g.PerSite > 0 && n >= g.PerSite
}

// recordDeployments notes which go on, and since when nothing comes of them.
func (t *rollouts) recordDeployments(s *runContext, h *Hub) {
	for i := range h.Deployments {
		d := &h.Deployments[i]
		r := ensure(t.running, d.ID)
		r.job, r.seen = d.JobID, s.now
		if d.ModifyIndex > r.index {
			r.index, r.changed, r.bound = d.ModifyIndex, s.now, patience(d)
		}
	}
	for id, r := range t.running {
		over := !slices.ContainsFunc(h.Deployments, func(d fleet.Deployment) bool { return d.ID == id })
		if over && (h.Index >= r.index && h.Index > 0 || s.now-r.seen > s.limits.Slack) {
			delete(t.running, id)
		}
	}
}

// patience is for how long nothing may come of a deployment; 0: for ever.
func patience(d *fleet.Deployment) time.Duration {
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

func (t *rollouts) judgeStuckDeployments(s *runContext) {
	for id, r := range t.running {
		s.countJudgement(DeploymentsEnd)
		if r.bound > 0 && !r.told && s.overdueEverywhere(r.changed, r.bound+s.limits.Heal) {
			r.told = true
			s.reportViolation(DeploymentsEnd, string(r.job), "deployment %s goes on, and nothing has come of it since %s", fleet.Short(id), r.changed)
		}
	}
	maps.DeleteFunc(t.flagged, func(_ fleet.AllocID, at time.Duration) bool { return s.now-at > keptAllocs })
}
