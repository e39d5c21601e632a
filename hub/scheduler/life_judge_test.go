package scheduler_test

import (
	"errors"
	"fmt"

	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/fleet/placement"
	"skerry/hub/state"
)

// checkAfterEvent looks at what an event led to, from outside: at the state before and after.
func (l *modelTest) checkAfterEvent(v *state.View, line []string) error {
	if err := errors.Join(l.checkNodes(v), l.checkEvals(v), l.checkDeployments(v), l.checkFinalStates(v)); err != nil {
		return err
	}
	for j := range v.Jobs("*", "") {
		s := l.newJobCheck(v, j, line)
		if err := errors.Join(s.checkAllocCount(), s.checkCanaryCount(), s.checkMaxParallel(), s.checkWaitForAll()); err != nil {
			return fmt.Errorf("job %s: %w", j.ID, err)
		}
		s.recordNameCount()
	}
	return nil
}

// checkNodes: no node is over-committed in any dimension.
func (l *modelTest) checkNodes(v *state.View) error {
	for n := range v.Nodes("") {
		claims := placement.NewClaims(n)
		var used fleet.Resources
		for a := range v.AllocsByNode(n.ID) {
			if !mayOccupyNode(a) {
				continue
			}
			used = used.Add(a.AllocatedResources)
			if clash := claims.Hold(a.Allotment); clash != "" {
				return fmt.Errorf("node %s: %s", n.Name, clash)
			}
			if g := a.Group(); len(g.Ports()) > 0 && (a.Allotment == nil || len(a.Allotment.Ports) != len(g.Ports())) {
				return fmt.Errorf("%s has not got its ports", a.Name)
			}
		}
		if short := used.Exceeds(n.Free()); short != "" {
			return fmt.Errorf("node %s is over-committed: %s", n.Name, short)
		}
	}
	return nil
}

// mayOccupyNode: it is to run, or did by what its edge said last. (The state has an opinion of
// its own, by which it plans.)
func mayOccupyNode(a *fleet.Alloc) bool {
	return !a.Terminal() || a.ReportedStatus == fleet.ClientPending || a.ReportedStatus == fleet.ClientRunning
}

// checkEvals: nothing that is due is left, a job waits for capacity once, none failed.
func (l *modelTest) checkEvals(v *state.View) error {
	blocked := map[fleet.JobID]fleet.EvalID{}
	for e := range v.Evals("*", "") {
		switch {
		case e.Status == fleet.EvalBlocked && blocked[e.JobID] != "":
			return fmt.Errorf("job %s waits for capacity twice: %s %s", e.JobID, blocked[e.JobID], e.ID)
		case e.Status == fleet.EvalBlocked:
			blocked[e.JobID] = e.ID
		case e.Status == fleet.EvalFailed:
			return fmt.Errorf("an evaluation of job %s failed: %s", e.JobID, e.StatusDescription)
		case e.Status == fleet.EvalPending && !e.WaitUntil.After(l.hub.now):
			return fmt.Errorf("an evaluation of job %s is left: %s", e.JobID, e.TriggeredBy)
		}
	}
	return nil
}

// checkDeployments: what is over stays so; a job has one at most that is not, and that
// is of its newest version.
func (l *modelTest) checkDeployments(v *state.View) error {
	active := map[fleet.JobID]fleet.DeploymentID{}
	for d := range v.Deployments("*", "") {
		if old, ok := l.before.Deployment(d.ID); ok && !old.Active() && d.Status != old.Status {
			return fmt.Errorf("deployment %s was %s and is %s", d.ID, old.Status, d.Status)
		}
		if !d.Active() {
			continue
		}
		if active[d.JobID] != "" {
			return fmt.Errorf("job %s has two deployments", d.JobID)
		}
		active[d.JobID] = d.ID
		if j, _ := v.Job(d.Namespace, d.JobID); j.Stopped() || !d.Of(j) {
			return fmt.Errorf("deployment %s of version %d of job %s goes on", d.ID, d.JobVersion, d.JobID)
		}
	}
	return nil
}

// checkFinalStates checks that a stopped, retired or ended allocation stays so. An allocation that
// ended by itself is stopped only if it failed and its policy has it replaced.
func (l *modelTest) checkFinalStates(v *state.View) error {
	for old := range l.before.Allocs("*", "") {
		a, ok := v.Alloc(old.ID)
		if !ok {
			continue
		}
		rescheduled := a.ClientStatus == fleet.ClientFailed && !fleet.RunsEverywhere(a.Job.Type)
		if !old.ServerTerminal() && old.EndedOnEdge() && a.ServerTerminal() && !rescheduled {
			return fmt.Errorf("%s %s had ended by itself, it was %s, and is to %s: %s", a.Name, a.ID, old.ReportedStatus, a.DesiredStatus, a.DesiredDescription)
		}
		if old.Retired && !a.Retired || old.ServerTerminal() && !a.ServerTerminal() || old.EndedOnEdge() && a.ReportedStatus != old.ReportedStatus {
			return fmt.Errorf("%s %s was %s/%s and is %s/%s", a.Name, a.ID, old.DesiredStatus, old.ReportedStatus, a.DesiredStatus, a.ReportedStatus)
		}
	}
	return nil
}

// jobCheck is one job after an event.
type jobCheck struct {
	l      *modelTest
	v      *state.View
	job    *fleet.Job
	group  *fleet.TaskGroup
	line   []string
	allocs []*fleet.Alloc
	dep    *fleet.Deployment // of this version, or nil
	was    *fleet.Deployment // the same before
}

func (l *modelTest) newJobCheck(v *state.View, j *fleet.Job, line []string) *jobCheck {
	s := &jobCheck{l: l, v: v, job: j, group: &j.TaskGroups[0], line: line, allocs: allocsOf(v, j.ID)}
	if d := v.LatestDeployment(j.Namespace, j.ID); d.Of(j) {
		s.dep = d
		s.was, _ = l.before.Deployment(d.ID)
	}
	return s
}

func (s *jobCheck) isOnEveryNode() bool { return fleet.RunsEverywhere(s.job.Type) }

// nameOrNode is what a group has one of: a name, or a node.
func (s *jobCheck) nameOrNode(a *fleet.Alloc) string {
	if s.isOnEveryNode() {
		return string(a.NodeID)
	}
	return a.Name
}

func (s *jobCheck) isOnReadyNode(v *state.View, a *fleet.Alloc) bool {
	n, ok := v.Node(a.NodeID)
	return ok && n.Status == fleet.NodeReady
}

// checkAllocCount: a name, or a node, has one allocation in sight that is to run, and there are
// no more names than are wanted.
func (s *jobCheck) checkAllocCount() error {
	keys, seen := map[string]bool{}, map[string]int{}
	for _, a := range s.allocs {
		if a.Terminal() || a.DeploymentStatus.IsCanary() && !s.isOnEveryNode() {
			continue
		}
		keys[s.nameOrNode(a)] = true
		if s.isOnReadyNode(s.v, a) {
			if seen[s.nameOrNode(a)]++; seen[s.nameOrNode(a)] > 1 {
				return fmt.Errorf("%d of %s are to run", seen[s.nameOrNode(a)], s.nameOrNode(a))
			}
		}
	}
	want := s.group.Count
	if s.job.Stopped() {
		want = 0
	}
	if !s.isOnEveryNode() && len(keys) > want {
		return fmt.Errorf("%d names live, %d are wanted", len(keys), want)
	}
	if s.job.Stopped() && len(keys) > 0 {
		return fmt.Errorf("it is stopped, and %d are to run", len(keys))
	}
	return nil
}

// checkCanaryCount: no more than the deployment asks for, that no more than the job does; and
// none without a deployment that waits for its promotion.
func (s *jobCheck) checkCanaryCount() error {
	n := 0
	for _, a := range s.allocs {
		if !a.DeploymentStatus.IsCanary() || a.Terminal() || !s.isOnReadyNode(s.v, a) {
			continue
		}
		switch of := s.dep.Active() && a.DeploymentID == s.dep.ID; {
		case of:
			n++
		case !s.isOnEveryNode(): // there it is all that its node has
			return fmt.Errorf("%s is a canary of nothing", a.ID)
		}
	}
	if s.dep == nil {
		return nil
	}
	d := s.dep.TaskGroups[s.group.Name]
	if n > d.DesiredCanaries {
		return fmt.Errorf("%d canaries, %d are wanted", n, d.DesiredCanaries)
	}
	most := 0
	if u := s.group.Update; u != nil {
		most = u.Canary
		if s.isOnEveryNode() && u.Canary > 0 {
			most = u.MaxParallel
		}
	}
	if d.DesiredCanaries > most {
		return fmt.Errorf("%d canaries are wanted, and the job says %d", d.DesiredCanaries, most)
	}
	return nil
}

// needsDestructiveUpdate: it runs other tasks than the job's newest version does.
func (s *jobCheck) needsDestructiveUpdate(a *fleet.Alloc) bool {
	return a.Job != nil && diff.GroupUpdate(a.Job, s.job, a.TaskGroup) == diff.GroupDestructive
}

// isHeldByDeployment: the newest version is kept back by its deployment.
func (s *jobCheck) isHeldByDeployment() bool {
	return s.dep != nil && (s.dep.Status == fleet.DeploymentFailed || s.dep.Status == fleet.DeploymentPaused || s.dep.RequiresPromotion())
}

// recordNameCount notes how many names live under a deployment: no fewer may there be in the
// end, whatever becomes of the deployment.
func (s *jobCheck) recordNameCount() {
	if s.dep == nil {
		return
	}
	names := map[string]bool{}
	for _, a := range s.allocs {
		if !a.Terminal() && !a.DeploymentStatus.IsCanary() {
			names[a.Name] = true
		}
	}
	s.l.mostNames[s.dep.ID] = max(s.l.mostNames[s.dep.ID], len(names))
}
