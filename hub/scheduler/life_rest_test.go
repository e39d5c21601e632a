package scheduler_test

import (
	"errors"
	"fmt"
	"strings"

	"skerry/fleet"
)

// settleWhileDisconnected lets all that is within reach come to rest while the edges that are away stay
// so: there is room, edges do what they were told, time passes. No deployment goes on then
// but what waits for people, or for those edges.
func (l *modelTest) settleWhileDisconnected() error {
	lines := []string{"wait 25h"}
	for _, site := range []string{"a", "b", "c", "a"} {
		lines = append(lines, fmt.Sprintf("node %d %s default", largeNodeCPU, site))
	}
	for range 40 {
		before := l.hub.index
		for _, line := range append(lines, "respond", "wait 2h") {
			if err := l.playLine(line); err != nil {
				return fmt.Errorf("while edges stay away, %s: %w", line, err)
			}
		}
		if lines = nil; before != l.hub.index {
			continue
		}
		l.tally["rests while edges are away"]++
		v := l.hub.store.View()
		for j := range v.Jobs("*", "") {
			if s := l.newJobCheck(v, j, []string{"rest"}); s.isDeploymentStuck() {
				return fmt.Errorf("while edges stay away, job %s: its deployment is %s: %s", j.ID, s.dep.Status, s.dep.StatusDescription)
			}
		}
		return nil
	}
	return errors.New("while edges stay away it does not come to rest")
}

// isDeploymentStuck reports whether the job's deployment goes on, though all that it asks for is done.
func (s *jobCheck) isDeploymentStuck() bool {
	if !s.dep.Active() || s.dep.Status == fleet.DeploymentPaused || s.hasBlockedEval() && s.group.Update.ProgressDeadline == 0 {
		return false
	}
	away, serves := len(s.stoppedOnUnreadyNodes()) > 0, false
	for _, a := range s.allocs {
		seen := s.isOnReadyNode(s.v, a)
		away = away || !seen && !a.NoLongerWanted()
		serves = serves || seen && a.DesiredStatus == fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning && a.DeploymentStatus.IsHealthy()
	}
	if s.dep.RequiresPromotion() {
		return s.dep.AutoPromotes() && !away
	}
	if w := s.group.Update.WaitFor; away && (w == fleet.WaitForAll || strings.HasSuffix(w, "%")) {
		return false
	}
	return serves || !away // what nobody has seen healthy is no success
}
