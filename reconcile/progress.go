package reconcile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// isHealthyNewest: it is what the newest version wants, and was seen to serve; nor has it ended since.
func (r *rollout) isHealthyNewest(m *member) bool {
	return m.kind != kindFailed && m.kind != kindCompleted && !r.d.needsDestructiveUpdate(m.a) && (m.a.DeploymentStatus.IsHealthy() || m.a.DeploymentID == "" && m.statusOnEdge() == fleet.ClientRunning)
}

// recordProgress counts how far a name, or a node, of the group is.
func (r *rollout) recordProgress(m *member) {
	switch {
	case m == nil:
	case r.isHealthyNewest(m):
		r.healthy++
	case r.isUnrelatedFailure(m):
		r.unrelatedFailures++
	case m.kind == kindFailed && !r.d.isSystemJob(): // the deployment decides what comes of it, wherever its edge is
	case m.absent || m.kind == kindReplaying:
		r.deferred++
	}
}

// isUnrelatedFailure reports whether something failed after an earlier deployment of this very version
// had brought it up: that is none of what this one, which was begun for an edge that came
// back, is to bring about. Its reschedule policy decides what comes of it.
func (r *rollout) isUnrelatedFailure(m *member) bool {
	dep := r.d.deployment
	return dep != nil && m.kind == kindFailed && m.a.DeploymentID != dep.ID && r.d.isOfNewestVersion(m.a)
}

// isGroupComplete reports whether the group is where the deployment wants it, as far as
// wait_for asks.
func (r *rollout) isGroupComplete() bool {
	total := r.expectedHealthy()
	if r.waiting > 0 || r.healthy+r.deferred+r.blockedByAbsence < total || r.healthy == 0 && total > 0 {
		return false // what nobody has seen healthy is no success
	}
	percent, ok := strings.CutSuffix(r.state.WaitFor, "%")
	switch {
	case r.state.WaitFor == fleet.WaitForAll:
		return r.healthy >= total
	case ok:
		n, err := strconv.ParseFloat(percent, 64)
		return err == nil && float64(r.healthy)*100 >= n*float64(total)
	}
	return true
}

// expectedHealthy is how many the deployment is to see healthy, or away. A node that never had any
// and came after it began may be too full for one for as long as it lives: what is placed
// there is judged with all others, but nobody waits for it to be placed.
func (r *rollout) expectedHealthy() int {
	return max(r.total-r.vacant, min(r.total, r.state.DesiredTotal)) - r.unrelatedFailures
}

// needsToJoinDeployment reports whether the deployment is to judge something that runs what the newest
// version wants, but that an earlier one, of which nothing more is heard, has not seen
// healthy: its edge speaks once for each deployment, and this one would wait in vain.
func (r *rollout) needsToJoinDeployment(m *member) bool {
	if r.update == nil || r.holdReason != "" || m.kind != kindRunning || r.isHealthyNewest(m) {
		return false
	}
	if dep := r.d.deployment; dep != nil {
		if _, part := dep.TaskGroups[r.g.Name]; !part || m.a.DeploymentID == dep.ID {
			return false
		}
	} else if !r.changes && r.outdated == 0 && (r.d.versionSucceeded || m.a.JobVersion == r.d.in.Job.Version) {
		return false // this group begins none
	}
	r.changes = true
	return true
}

// needsAnotherAttempt reports whether something that failed under an earlier version, and that its
// policy leaves at that, is placed for the newest, though that does not change its tasks:
// the deployment would wait for it in vain.
func (r *rollout) needsAnotherAttempt(m *member) bool {
	if r.update == nil || r.holdReason != "" || m.a.JobVersion == r.d.in.Job.Version || nextAttempt(m.a, r.g.ReschedulePolicy, time.Unix(0, m.a.ModifyTime)).allowed {
		return false
	}
	if dep := r.d.deployment; r.d.versionSucceeded || dep != nil && m.a.DeploymentID == dep.ID {
		return false
	}
	r.changes = true
	r.turnsLeft = max(r.turnsLeft-1, 0)
	return true
}

// inPlace makes an allocation one of the newest version.
func (d *decision) inPlace(m *member, change diff.GroupChange) {
	reason := fmt.Sprintf("takes version %d of the job in place", d.in.Job.Version)
	if change == diff.GroupSame {
		reason = fmt.Sprintf("is judged anew, for the deployment of version %d of the job", d.in.Job.Version)
	}
	d.out.InPlace = append(d.out.InPlace, Change{Alloc: m.a, Update: true, Reason: reason})
}
