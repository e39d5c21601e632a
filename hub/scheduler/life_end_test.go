package scheduler_test

import (
	"errors"
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// largeNodeCPU is what the nodes have that come in the end: enough for all.
const largeNodeCPU = 40000

// finishAndCheck lets everything come to rest: the edges come back, drains are over, there is
// room, and time passes. Then every job has what it wants, and nothing waits.
func (l *modelTest) finishAndCheck() error {
	for i := range l.hub.nodes {
		if err := l.playLine(fmt.Sprintf("back %d", i)); err != nil {
			return fmt.Errorf("at the end, back %d: %w", i, err)
		}
	}
	lines := []string{"wait 25h"}
	for _, site := range []string{"a", "b", "c", "a"} {
		lines = append(lines, fmt.Sprintf("node %d %s default", largeNodeCPU, site))
	}
	for _, line := range lines {
		if err := l.playLine(line); err != nil {
			return fmt.Errorf("at the end, %s: %w", line, err)
		}
	}
	for range 40 {
		for _, line := range []string{"respond", "wait 2h"} {
			before := l.hub.index
			if err := l.playLine(line); err != nil {
				return fmt.Errorf("at the end, %s: %w", line, err)
			}
			if line == "wait 2h" && before == l.hub.index && !l.hasPendingWork() {
				return l.checkAtRest()
			}
		}
	}
	return errors.New("at the end it does not come to rest")
}

// hasPendingWork reports whether an edge has something left to do, or an evaluation a time.
func (l *modelTest) hasPendingWork() bool {
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

// checkAtRest: what must be true when nothing happens any more.
func (l *modelTest) checkAtRest() error {
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
		if n.DrainStrategy.ForceDeadline.IsZero() && l.hasLastingAlloc(v, n) {
			continue
		}
		return fmt.Errorf("in the end node %s is being drained", n.Name)
	}
	for j := range v.Jobs("*", "") {
		if err := l.newJobCheck(v, j, []string{"end"}).checkJobAtRest(); err != nil {
			return fmt.Errorf("in the end job %s: %w", j.ID, err)
		}
	}
	return nil
}

// hasLastingAlloc reports whether something on a node stays there for as long as no deadline
// says otherwise: what is to end by itself, or is of a group that is short already and
// that its deployment keeps short.
func (l *modelTest) hasLastingAlloc(v *state.View, n *fleet.Node) bool {
	for a := range v.AllocsByNode(n.ID) {
		if a.Job == nil || a.Terminal() {
			continue
		}
		j, ok := v.Job(a.Namespace, a.JobID)
		if fleet.RunsToCompletion(a.Job.Type) || ok && l.newJobCheck(v, j, nil).isHeldByDeployment() {
			return true
		}
	}
	return false
}

// hasBlockedEval reports whether the job waits for capacity: in the end there is room, but not
// on the first nodes, on each of which a system job wants to be.
func (s *jobCheck) hasBlockedEval() bool {
	for e := range s.v.EvalsByJob(s.job.Namespace, s.job.ID) {
		if e.Status == fleet.EvalBlocked {
			return true
		}
	}
	return false
}

func (s *jobCheck) checkJobAtRest() error {
	if !s.hasBlockedEval() && s.dep.Active() && s.dep.Status != fleet.DeploymentPaused && !s.dep.RequiresPromotion() {
		return fmt.Errorf("its deployment is %s: %s", s.dep.Status, s.dep.StatusDescription)
	}
	has := map[string]bool{}
	for _, a := range s.allocs {
		if a.ClientStatus == fleet.ClientUnknown {
			return fmt.Errorf("%s is unknown", a.Name)
		}
		if !a.NoLongerWanted() && a.ClientStatus != fleet.ClientLost && !(a.DeploymentStatus.IsCanary() && !s.isOnEveryNode()) {
			if !(fleet.RunsToCompletion(s.job.Type) && a.ClientTerminal() && s.needsDestructiveUpdate(a)) { // then all of it runs again
				has[s.nameOrNode(a)] = true
			}
			if !s.isHeldByDeployment() && !s.hasBlockedEval() && s.needsDestructiveUpdate(a) && a.ClientStatus == fleet.ClientRunning && s.job.Type != fleet.JobTypeSysBatch {
				return fmt.Errorf("%s runs version %d", a.Name, a.JobVersion)
			}
		}
	}
	if s.job.Stopped() {
		return nil
	}
	switch {
	case s.isOnEveryNode():
		return s.checkNodeCoverage(has)
	case s.isHeldByDeployment():
		if most := s.l.mostNames[s.dep.ID]; len(has) < most {
			return fmt.Errorf("it has %d, and had %d under its deployment, which is %s", len(has), most, s.dep.Status)
		}
	case len(has) != s.group.Count:
		return fmt.Errorf("it has %d of %d", len(has), s.group.Count)
	}
	return nil
}

// checkNodeCoverage: every node that takes new work has its allocation.
func (s *jobCheck) checkNodeCoverage(has map[string]bool) error {
	for n := range s.v.Nodes("") {
		if n.Schedulable() && !has[string(n.ID)] && !s.isHeldByDeployment() && n.Resources.CPU >= largeNodeCPU {
			return fmt.Errorf("it has nothing on node %s", n.Name)
		}
	}
	return nil
}
