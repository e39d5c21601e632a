package scheduler_test

import (
	"errors"
	"fmt"

	"skerry/fleet"
	"skerry/hub/state"
)

// judge looks at what an event led to, from outside: at the state before and after.
func (l *life) judge(v *state.View, line []string) error {
	if err := errors.Join(l.judgeNodes(v), l.judgeEvals(v), l.judgeDeployments(v), l.judgeForGood(v)); err != nil {
		return err
	}
	for j := range v.Jobs("*", "") {
		s := l.scene(v, j, line)
		if err := errors.Join(s.counts(), s.canaries(), s.turns(), s.waitedForAll()); err != nil {
			return fmt.Errorf("job %s: %w", j.ID, err)
		}
		s.remember()
	}
	return nil
}

// judgeNodes: no node is over-committed in any dimension.
func (l *life) judgeNodes(v *state.View) error {
	for n := range v.Nodes("") {
		claims := fleet.NewClaims(n)
		var used fleet.Resources
		for a := range v.AllocsByNode(n.ID) {
			if !takesRoom(a) {
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

// takesRoom: it is to run, or did by what its edge said last. (The state has an opinion of
// its own, by which it plans.)
func takesRoom(a *fleet.Alloc) bool {
	return !a.Terminal() || a.ReportedStatus == fleet.ClientPending || a.ReportedStatus == fleet.ClientRunning
}

// judgeEvals: nothing that is due is left, a job waits for capacity once, none failed.
func (l *life) judgeEvals(v *state.View) error {
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

// judgeDeployments: what is over stays so; a job has one at most that is not, and that
// is of its newest version.
func (l *life) judgeDeployments(v *state.View) error {
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

// judgeForGood checks that a stopped, retired or ended allocation stays so. An allocation that
// ended by itself is stopped only if it failed and its policy has it replaced.
func (l *life) judgeForGood(v *state.View) error {
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

// scene is one job after an event.
type scene struct {
	l      *life
	v      *state.View
	job    *fleet.Job
	group  *fleet.TaskGroup
	line   []string
	allocs []*fleet.Alloc
	dep    *fleet.Deployment // of this version, or nil
	was    *fleet.Deployment // the same before
}

func (l *life) scene(v *state.View, j *fleet.Job, line []string) *scene {
	s := &scene{l: l, v: v, job: j, group: &j.TaskGroups[0], line: line, allocs: allocsOf(v, j.ID)}
	if d := v.LatestDeployment(j.Namespace, j.ID); d.Of(j) {
		s.dep = d
		s.was, _ = l.before.Deployment(d.ID)
	}
	return s
}

func (s *scene) everywhere() bool { return fleet.RunsEverywhere(s.job.Type) }

// key is what a group has one of: a name, or a node.
func (s *scene) key(a *fleet.Alloc) string {
	if s.everywhere() {
		return string(a.NodeID)
	}
	return a.Name
}

func (s *scene) inSight(v *state.View, a *fleet.Alloc) bool {
	n, ok := v.Node(a.NodeID)
	return ok && n.Status == fleet.NodeReady
}

// counts: a name, or a node, has one allocation in sight that is to run, and there are
// no more names than are wanted.
func (s *scene) counts() error {
	keys, seen := map[string]bool{}, map[string]int{}
	for _, a := range s.allocs {
		if a.Terminal() || a.DeploymentStatus.IsCanary() && !s.everywhere() {
			continue
		}
		keys[s.key(a)] = true
		if s.inSight(s.v, a) {
			if seen[s.key(a)]++; seen[s.key(a)] > 1 {
				return fmt.Errorf("%d of %s are to run", seen[s.key(a)], s.key(a))
			}
		}
	}
	want := s.group.Count
	if s.job.Stopped() {
		want = 0
	}
	if !s.everywhere() && len(keys) > want {
		return fmt.Errorf("%d names live, %d are wanted", len(keys), want)
	}
	if s.job.Stopped() && len(keys) > 0 {
		return fmt.Errorf("it is stopped, and %d are to run", len(keys))
	}
	return nil
}

// canaries: no more than the deployment asks for, that no more than the job does; and
// none without a deployment that waits for its promotion.
func (s *scene) canaries() error {
	n := 0
	for _, a := range s.allocs {
		if !a.DeploymentStatus.IsCanary() || a.Terminal() || !s.inSight(s.v, a) {
			continue
		}
		switch of := s.dep.Active() && a.DeploymentID == s.dep.ID; {
		case of:
			n++
		case !s.everywhere(): // there it is all that its node has
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
		if s.everywhere() && u.Canary > 0 {
			most = u.MaxParallel
		}
	}
	if d.DesiredCanaries > most {
		return fmt.Errorf("%d canaries are wanted, and the job says %d", d.DesiredCanaries, most)
	}
	return nil
}

// outdated: it runs other tasks than the job's newest version does.
func (s *scene) outdated(a *fleet.Alloc) bool {
	return a.Job != nil && fleet.GroupUpdate(a.Job, s.job, a.TaskGroup) == fleet.GroupDestructive
}

// held: the newest version is kept back by its deployment.
func (s *scene) held() bool {
	return s.dep != nil && (s.dep.Status == fleet.DeploymentFailed || s.dep.Status == fleet.DeploymentPaused || s.dep.RequiresPromotion())
}

// remember notes how many names live under a deployment: no fewer may there be in the
// end, whatever becomes of the deployment.
func (s *scene) remember() {
	if s.dep == nil {
		return
	}
	names := map[string]bool{}
	for _, a := range s.allocs {
		if !a.Terminal() && !a.DeploymentStatus.IsCanary() {
			names[a.Name] = true
		}
	}
	s.l.most[s.dep.ID] = max(s.l.most[s.dep.ID], len(names))
}
