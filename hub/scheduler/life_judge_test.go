package scheduler_test

import (
	"errors"
	"fmt"
	"time"

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
		if err := errors.Join(s.counts(), s.canaries(), s.turns()); err != nil {
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
			if !a.OccupiesNode() {
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

// judgeForGood: what was told to stop stays so, and what ended has ended.
func (l *life) judgeForGood(v *state.View) error {
	for old := range l.before.Allocs("*", "") {
		a, ok := v.Alloc(old.ID)
		if !ok {
			continue
		}
		if old.ServerTerminal() && !a.ServerTerminal() || old.EndedOnEdge() && a.ReportedStatus != old.ReportedStatus {
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

// taken lists what served and was stopped for the newest version in this event, with
// nothing that serves in its stead.
func (s *scene) taken() []*fleet.Alloc {
	serves, old := map[string]bool{}, map[fleet.AllocID]bool{}
	good := func(v *state.View, a *fleet.Alloc) bool {
		return a.DesiredStatus == fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning && s.inSight(v, a)
	}
	for _, a := range s.allocs {
		if good(s.v, a) {
			serves[s.key(a)] = true
		}
	}
	for _, a := range allocsOf(s.l.before, s.job.ID) {
		old[a.ID] = good(s.l.before, a) && !a.DesiredTransition.Migrate && !a.DeploymentStatus.IsCanary()
	}
	var taken []*fleet.Alloc
	for _, a := range s.allocs {
		i, _ := a.NameIndex()
		node, _ := s.v.Node(a.NodeID)
		if !old[a.ID] || a.DesiredStatus != fleet.DesiredStop || a.ClientStatus != fleet.ClientRunning || serves[s.key(a)] ||
			!s.everywhere() && i >= s.group.Count || s.line[0] == "halt" || node.DrainStrategy != nil || node.LastDrain != nil || !s.outdated(a) ||
			s.everywhere() && !node.Schedulable() { // it is not replaced: the node takes no new work
			continue
		}
		taken = append(taken, a)
	}
	return taken
}

// turns: no more is started anew at once than max_parallel says, nor at one site than
// max_unavailable_per_site does; and nothing while the deployment holds it back.
func (s *scene) turns() error {
	u := s.group.Update
	if u == nil || u.MaxParallel == 0 || s.job.Stopped() || s.job.Type != fleet.JobTypeService && s.job.Type != fleet.JobTypeSystem {
		return nil
	}
	taken := s.taken()
	if len(taken) == 0 {
		return nil
	}
	if s.was != nil && s.dep.Status == s.was.Status && (s.dep.Status == fleet.DeploymentPaused || s.dep.Status == fleet.DeploymentFailed) {
		return fmt.Errorf("%d are taken down, and the deployment is %s", len(taken), s.dep.Status)
	}
	if s.was.RequiresPromotion() && s.dep.RequiresPromotion() && !s.everywhere() {
		return fmt.Errorf("%d are taken down before the canaries are promoted", len(taken))
	}
	starting, sites := 0, map[string]int{}
	for _, a := range s.allocs {
		if _, known := s.l.before.Alloc(a.ID); !known || a.DeploymentID == "" || a.DeploymentStatus.IsHealthy() || a.Terminal() {
			continue
		}
		if s.dep != nil && a.DeploymentID == s.dep.ID && s.inSight(s.v, a) && !a.DeploymentStatus.IsCanary() {
			starting++
		}
		if prev, ok := s.v.Alloc(a.PreviousAllocation); ok {
			a = prev
		}
		sites[s.site(a)]++
	}
	if len(taken)+starting > u.MaxParallel {
		return fmt.Errorf("%d are taken down while %d start, max_parallel is %d", len(taken), starting, u.MaxParallel)
	}
	if u.MaxUnavailablePerSite == 0 {
		return nil
	}
	here := map[string]int{}
	for _, a := range taken {
		site := s.site(a)
		if here[site]++; here[site]+sites[site] > u.MaxUnavailablePerSite {
			return fmt.Errorf("%d are taken down at site %s, where %d are out of service; max_unavailable_per_site is %d",
				here[site], site, sites[site], u.MaxUnavailablePerSite)
		}
	}
	return nil
}

func (s *scene) site(a *fleet.Alloc) string {
	n, _ := s.v.Node(a.NodeID)
	return n.SiteName()
}

// held: the newest version is kept back by its deployment.
func (s *scene) held() bool {
	return s.dep != nil && (s.dep.Status == fleet.DeploymentFailed || s.dep.Status == fleet.DeploymentPaused || s.dep.RequiresPromotion())
}

// remember notes the names that live under a deployment: none of them may be missing
// in the end, whatever becomes of the deployment.
func (s *scene) remember() {
	if s.dep == nil {
		return
	}
	names := s.l.names[s.dep.ID]
	if names == nil {
		names = map[string]bool{}
		s.l.names[s.dep.ID] = names
	}
	for _, a := range s.allocs {
		if !a.Terminal() && !a.DeploymentStatus.IsCanary() {
			names[a.Name] = true
		}
	}
}

// lifeRoom is what the nodes have that come in the end: enough for all.
const lifeRoom = 40000

// end lets everything come to rest: the edges come back, drains are over, there is
// room, and time passes. Then every job has what it wants, and nothing waits.
func (l *life) end() error {
	for i := range l.hub.nodes {
		if err := l.play(fmt.Sprintf("back %d", i)); err != nil {
			return fmt.Errorf("at the end, back %d: %w", i, err)
		}
	}
	lines := []string{"wait 25h"}
	for _, site := range []string{"a", "b", "c", "a"} {
		lines = append(lines, fmt.Sprintf("node %d %s default", lifeRoom, site))
	}
	for _, line := range lines {
		if err := l.play(line); err != nil {
			return fmt.Errorf("at the end, %s: %w", line, err)
		}
	}
	for range 40 {
		for _, line := range []string{"respond", "wait 2h"} {
			before := l.hub.index
			if err := l.play(line); err != nil {
				return fmt.Errorf("at the end, %s: %w", line, err)
			}
			if line == "wait 2h" && before == l.hub.index && !l.busy() {
				return l.rest()
			}
		}
	}
	return errors.New("at the end it does not come to rest")
}

// busy reports whether an edge has something left to do, or an evaluation a time.
func (l *life) busy() bool {
	v := l.hub.store.View()
	for a := range v.Allocs("*", "") {
		if a.ServerTerminal() && a.OccupiesNode() || a.DesiredStatus == fleet.DesiredRun && a.ReportedStatus != fleet.ClientRunning && !a.EndedOnEdge() {
			return true
		}
	}
	for e := range v.Evals("*", "") {
		if e.Status == fleet.EvalPending && e.WaitUntil.After(l.hub.now) && e.WaitUntil.Before(l.hub.now.Add(48*time.Hour)) {
			return true
		}
	}
	return false
}

// rest: what must be true when nothing happens any more.
func (l *life) rest() error {
	v := l.hub.store.View()
	if err := v.Check(); err != nil {
		return err
	}
	for e := range v.Evals("*", "") {
		if !e.Terminal() && !(e.Status == fleet.EvalBlocked && fleet.RunsEverywhere(e.Type)) { // the first nodes may be full
			return fmt.Errorf("in the end an evaluation of job %s is %s: %s, %s, until %s", e.JobID, e.Status, e.TriggeredBy, e.StatusDescription, e.WaitUntil)
		}
	}
	for n := range v.DrainingNodes() {
		if n.DrainStrategy.ForceDeadline.IsZero() && l.stays(v, n) {
			continue
		}
		return fmt.Errorf("in the end node %s is being drained", n.Name)
	}
	for j := range v.Jobs("*", "") {
		if err := l.scene(v, j, []string{"end"}).rest(); err != nil {
			return fmt.Errorf("in the end job %s: %w", j.ID, err)
		}
	}
	return nil
}

// stays reports whether something on a node stays there for as long as no deadline
// says otherwise: what is to end by itself, or is of a group that is short already and
// that its deployment keeps short.
func (l *life) stays(v *state.View, n *fleet.Node) bool {
	for a := range v.AllocsByNode(n.ID) {
		if a.Job == nil || a.Terminal() {
			continue
		}
		j, ok := v.Job(a.Namespace, a.JobID)
		if fleet.RunsToCompletion(a.Job.Type) || ok && l.scene(v, j, nil).held() {
			return true
		}
	}
	return false
}

// waits reports whether the job waits for capacity: in the end there is room, but not
// on the first nodes, on each of which a system job wants to be.
func (s *scene) waits() bool {
	for e := range s.v.EvalsByJob(s.job.Namespace, s.job.ID) {
		if e.Status == fleet.EvalBlocked {
			return true
		}
	}
	return false
}

func (s *scene) rest() error {
	if !s.waits() && s.dep.Active() && s.dep.Status != fleet.DeploymentPaused && !s.dep.RequiresPromotion() {
		return fmt.Errorf("its deployment is %s: %s", s.dep.Status, s.dep.StatusDescription)
	}
	has := map[string]bool{}
	for _, a := range s.allocs {
		if a.ClientStatus == fleet.ClientUnknown {
			return fmt.Errorf("%s is unknown", a.Name)
		}
		if a.DesiredStatus == fleet.DesiredRun && a.ClientStatus != fleet.ClientLost && !(a.DeploymentStatus.IsCanary() && !s.everywhere()) {
			if !(fleet.RunsToCompletion(s.job.Type) && a.ClientTerminal() && s.outdated(a)) { // then all of it runs again
				has[s.key(a)] = true
			}
			if !s.held() && !s.waits() && s.outdated(a) && a.ClientStatus == fleet.ClientRunning && s.job.Type != fleet.JobTypeSysBatch {
				return fmt.Errorf("%s runs version %d", a.Name, a.JobVersion)
			}
		}
	}
	if s.job.Stopped() {
		return nil
	}
	switch {
	case s.everywhere():
		return s.manned(has)
	case s.held():
		for name := range s.l.names[s.dep.ID] {
			if !has[name] {
				return fmt.Errorf("%s ran under its deployment, which is %s, and nothing takes its place", name, s.dep.Status)
			}
		}
	case len(has) != s.group.Count:
		return fmt.Errorf("it has %d of %d", len(has), s.group.Count)
	}
	return nil
}

// manned: every node that takes new work has its allocation.
func (s *scene) manned(has map[string]bool) error {
	for n := range s.v.Nodes("") {
		if n.Schedulable() && !has[string(n.ID)] && !s.held() && n.Resources.CPU >= lifeRoom {
			return fmt.Errorf("it has nothing on node %s", n.Name)
		}
	}
	return nil
}
