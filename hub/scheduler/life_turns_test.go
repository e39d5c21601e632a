package scheduler_test

import (
	"fmt"
	"slices"

	"skerry/fleet"
	"skerry/hub/state"
)

// allocsTakenDown lists what served and was stopped for the newest version in this event, with
// nothing that serves in its stead.
func (s *jobCheck) allocsTakenDown() []*fleet.Alloc {
	serves, old := map[string]bool{}, map[fleet.AllocID]bool{}
	good := func(v *state.View, a *fleet.Alloc) bool {
		return a.DesiredStatus == fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning && s.isOnReadyNode(v, a)
	}
	for _, a := range s.allocs {
		if good(s.v, a) {
			serves[s.nameOrNode(a)] = true
		}
	}
	for _, a := range allocsOf(s.l.before, s.job.ID) {
		old[a.ID] = good(s.l.before, a) && !a.DesiredTransition.Migrate && !a.DeploymentStatus.IsCanary()
	}
	var taken []*fleet.Alloc
	for _, a := range s.allocs {
		i, _ := a.NameIndex()
		node, _ := s.v.Node(a.NodeID)
		if !old[a.ID] || a.DesiredStatus != fleet.DesiredStop || a.ClientStatus != fleet.ClientRunning || serves[s.nameOrNode(a)] ||
			!s.isOnEveryNode() && i >= s.group.Count || s.line[0] == "halt" || node.DrainStrategy != nil || node.LastDrain != nil || !s.needsDestructiveUpdate(a) ||
			s.isOnEveryNode() && !node.Schedulable() { // it is not replaced: the node takes no new work
			continue
		}
		taken = append(taken, a)
	}
	return taken
}

// checkMaxParallel: no more is started anew at once than max_parallel says, nor at one site than
// max_unavailable_per_site does; and nothing while the deployment holds it back.
func (s *jobCheck) checkMaxParallel() error {
	u := s.group.Update
	if u == nil || u.MaxParallel == 0 || s.job.Stopped() || s.job.Type != fleet.JobTypeService && s.job.Type != fleet.JobTypeSystem {
		return nil
	}
	taken, emptied := s.allocsTakenDown(), s.countEmptiedNodes()
	if len(taken) == 0 {
		return nil
	}
	s.l.addToTally("taken down for a newer version", len(taken))
	if s.was != nil && s.dep.Status == s.was.Status && (s.dep.Status == fleet.DeploymentPaused || s.dep.Status == fleet.DeploymentFailed) {
		return fmt.Errorf("%d are taken down, and the deployment is %s", len(taken), s.dep.Status)
	}
	if s.was.RequiresPromotion() && s.dep.RequiresPromotion() && !s.isOnEveryNode() {
		return fmt.Errorf("%d are taken down before the canaries are promoted", len(taken))
	}
	starting := emptied
	for _, a := range s.allocsNotYetHealthy(taken) {
		old, _ := s.l.before.Alloc(a.ID)
		judgedAnew := old.DeploymentID != a.DeploymentID && a.ClientStatus == fleet.ClientRunning // in this event, and was not started for that
		if s.dep != nil && a.DeploymentID == s.dep.ID && s.isOnReadyNode(s.v, a) && !a.DeploymentStatus.IsCanary() && !judgedAnew {
			starting++
		}
	}
	if len(taken)+starting > u.MaxParallel {
		return fmt.Errorf("%d are taken down while %d start, max_parallel is %d", len(taken), starting, u.MaxParallel)
	}
	if u.MaxUnavailablePerSite == 0 {
		return nil
	}
	return s.checkSiteLimit(taken, u.MaxUnavailablePerSite)
}

// allocsNotYetHealthy lists what was there before this event, is of a deployment, and nobody has
// seen healthy; but not what takes the place of one that is taken down, which was there
// already: the two are one turn.
func (s *jobCheck) allocsNotYetHealthy(taken []*fleet.Alloc) (list []*fleet.Alloc) {
	for _, a := range s.allocs {
		if slices.ContainsFunc(taken, func(old *fleet.Alloc) bool { return s.nameOrNode(old) == s.nameOrNode(a) }) {
			continue
		}
		if _, known := s.l.before.Alloc(a.ID); known && a.DeploymentID != "" && !a.DeploymentStatus.IsHealthy() && !a.Terminal() {
			list = append(list, a)
		}
	}
	return list
}

// checkSiteLimit: where something that served is taken down, no more of its site is out of
// service than may be; and where something is that ran, though nobody had seen it healthy,
// never does so much not run. What is sick is no loss, whatever else its site goes without.
func (s *jobCheck) checkSiteLimit(taken []*fleet.Alloc, most int) error {
	served, ran, out, down := map[string]bool{}, map[string]bool{}, map[string]int{}, map[string]int{}
	for _, a := range s.allocsNotYetHealthy(taken) {
		if old, _ := s.l.before.Alloc(a.ID); old.ClientStatus == fleet.ClientRunning && a.ClientStatus == fleet.ClientRunning &&
			(old.DeploymentID == "" || old.DeploymentStatus.IsHealthy()) {
			continue // it serves, and was taken in place in this event
		}
		site := s.siteOfPrevious(a)
		out[site]++
		if a.ClientStatus != fleet.ClientRunning || !s.isOnReadyNode(s.v, a) || a.DeploymentStatus.IsUnhealthy() {
			down[site]++
		}
	}
	for _, a := range taken {
		site := s.siteOfAlloc(a)
		switch old, _ := s.l.before.Alloc(a.ID); {
		case old.DeploymentID == "" || old.DeploymentStatus.IsHealthy():
			served[site] = true
			down[site]++
		case old.DeploymentStatus.IsUnhealthy():
			site = s.siteOfPrevious(a)
		default:
			s.l.addToTally("taken down before it was seen healthy", 1)
			ran[site] = true
			down[site]++
			site = s.siteOfPrevious(a)
		}
		out[site]++
	}
	for _, a := range s.stoppedOnUnreadyNodes() {
		s.l.addToTally("emptied on an edge that is away", 1)
		out[s.siteOfAlloc(a)]++
		down[s.siteOfAlloc(a)]++
	}
	for site := range served {
		if out[site] == most {
			s.l.addToTally("taken down where a site has its limit", 1)
		}
	}
	for _, a := range taken {
		if site := s.siteOfAlloc(a); served[site] && out[site] > most || ran[site] && down[site] > most {
			return fmt.Errorf("of %d that are taken down some are at site %s, where %d are out of service and %d do not run; max_unavailable_per_site is %d",
				len(taken), site, out[site], down[site], most)
		}
	}
	return nil
}

// siteOfPrevious is the site of what an allocation replaced, or its own.
func (s *jobCheck) siteOfPrevious(a *fleet.Alloc) string {
	if prev, ok := s.v.Alloc(a.PreviousAllocation); ok {
		return s.siteOfAlloc(prev)
	}
	return s.siteOfAlloc(a)
}

// countEmptiedNodes counts the nodes on which a system job's deployment has stopped something in
// an earlier event, to make room, and has nothing in its stead yet.
func (s *jobCheck) countEmptiedNodes() int {
	if !s.isOnEveryNode() || s.dep == nil {
		return 0
	}
	has, empty := map[fleet.NodeID]bool{}, map[fleet.NodeID]bool{}
	for _, a := range s.allocs {
		has[a.NodeID] = has[a.NodeID] || !a.NoLongerWanted()
	}
	for _, a := range s.allocs {
		n, ok := s.v.Node(a.NodeID)
		old, known := s.l.before.Alloc(a.ID)
		if ok && n.Schedulable() && !has[a.NodeID] && known && old.NoLongerWanted() && a.Vacated() &&
			a.AllocModifyIndex >= s.dep.CreateIndex && s.needsDestructiveUpdate(a) {
			empty[a.NodeID] = true
		}
	}
	s.l.addToTally("emptied for a newer version", len(empty))
	return len(empty)
}

// stoppedOnUnreadyNodes lists what was stopped on nodes that are away, one of each, with nothing in
// its stead, where the newest version is to be when they are back.
func (s *jobCheck) stoppedOnUnreadyNodes() (list []*fleet.Alloc) {
	if !s.isOnEveryNode() || s.job.Stopped() {
		return nil
	}
	last := map[fleet.NodeID]*fleet.Alloc{}
	for _, a := range s.allocs {
		if b := last[a.NodeID]; b == nil || byCreation(b, a) < 0 {
			last[a.NodeID] = a
		}
	}
	for id, a := range last {
		n, ok := s.v.Node(id)
		old, known := s.l.before.Alloc(a.ID)
		if ok && n.Status != fleet.NodeReady && n.SchedulingEligibility == fleet.NodeEligible && (n.NodePool != "classic" || n.Status == fleet.NodeInitializing) &&
			known && old.NoLongerWanted() && a.NextAllocation == "" && a.Job.CreateIndex == s.job.CreateIndex {
			list = append(list, a)
		}
	}
	return list
}

// checkWaitForAll: a deployment that waits for all does not succeed while a node that is away
// has not got its version.
func (s *jobCheck) checkWaitForAll() error {
	if s.was == nil || s.was.Status != fleet.DeploymentRunning || s.dep.Status != fleet.DeploymentSuccessful || s.group.Update.WaitFor != fleet.WaitForAll {
		return nil
	}
	for _, a := range s.stoppedOnUnreadyNodes() {
		return fmt.Errorf("its deployment, which waits for all, has succeeded without node %s", a.NodeName)
	}
	return nil
}

func (s *jobCheck) siteOfAlloc(a *fleet.Alloc) string {
	n, _ := s.v.Node(a.NodeID)
	return n.SiteName()
}
