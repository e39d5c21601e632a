package reconcile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// isHealthyNewest reports whether an allocation needs no destructive update, has not ended, and is
// healthy, or runs without a deployment.
func (r *rollout) isHealthyNewest(m *member) bool {
	return m.kind != kindFailed && m.kind != kindCompleted && !r.d.needsDestructiveUpdate(m.a) && (m.a.DeploymentStatus.IsHealthy() || m.a.DeploymentID == "" && m.statusOnEdge() == fleet.ClientRunning)
}

// recordProgress counts one name index, or one node of a system job, for the deployment. m is its
// allocation, or nil.
func (r *rollout) recordProgress(m *member) {
	switch {
	case m == nil:
	case m.held:
		r.deferred++
	case r.isHealthyNewest(m):
		r.healthy++
	case r.isUnrelatedFailure(m):
		r.unrelatedFailures++
	case m.kind == kindFailed && !r.d.isSystemJob(): // the deployment decides, even if its node is away
	case m.absent || m.kind == kindReplaying:
		r.deferred++
	}
}

// isUnrelatedFailure reports whether an allocation of this version failed that belongs to an earlier
// deployment of the same version. Then its reschedule policy decides: the newer deployment was begun for
// an edge that came back.
func (r *rollout) isUnrelatedFailure(m *member) bool {
	dep := r.d.deployment
	return dep != nil && m.kind == kindFailed && m.a.DeploymentID != dep.ID && r.d.isOfNewestVersion(m.a)
}

// isGroupComplete reports whether all expected allocations of the group are healthy or deferred, and
// enough are healthy for wait_for.
func (r *rollout) isGroupComplete() bool {
	total := r.expectedHealthy()
	if r.waiting > 0 || r.healthy+r.deferred+r.blockedByAbsence < total || r.healthy == 0 && total > 0 {
		return false // without any healthy allocation it is no success
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

// expectedHealthy returns how many allocations the deployment waits for, healthy or deferred. It does not
// wait for a vacant node of a system job that was added after it began: that node may be full forever.
func (r *rollout) expectedHealthy() int {
	return max(r.total-r.vacant, min(r.total, r.state.DesiredTotal)) - r.unrelatedFailures
}

// needsToJoinDeployment reports whether an unchanged running allocation that is not known to be healthy
// joins the deployment. Its edge reports health once for each deployment, so this one would otherwise wait
// in vain. While nothing has begun a deployment, the allocation is noted in mayJoin.
func (r *rollout) needsToJoinDeployment(m *member) bool {
	if r.update == nil || r.holdReason != "" || m.kind != kindRunning || m.held || r.isHealthyNewest(m) {
		return false
	}
	if dep := r.d.deployment; dep != nil {
		if _, part := dep.TaskGroups[r.g.Name]; !part || m.a.DeploymentID == dep.ID {
			return false
		}
	} else if r.outdated == 0 && (r.d.versionSucceeded || m.a.JobVersion == r.d.in.Job.Version) {
		r.mayJoin = append(r.mayJoin, m)
		return false
	}
	r.changes = true
	return true
}

// joinNewDeployment adds to a new deployment the unchanged allocations that join it.
func (d *decision) joinNewDeployment(dep *fleet.Deployment) {
	joins := map[fleet.AllocID]bool{}
	for _, r := range d.rollouts {
		if _, part := dep.TaskGroups[r.g.Name]; !part {
			continue
		}
		for _, m := range r.mayJoin {
			joins[m.a.ID] = true
			if !m.reconnecting {
				d.updateInPlace(m, diff.GroupSame)
			}
		}
	}
	d.out.Kept = slices.DeleteFunc(d.out.Kept, func(c Change) bool { return joins[c.Alloc.ID] })
	for i := range d.out.Reconnects {
		c := &d.out.Reconnects[i]
		c.Update = c.Update || joins[c.Alloc.ID]
	}
}

// needsAnotherAttempt reports whether a failed allocation of an earlier version, which its reschedule
// policy does not replace, is replaced because of the new version. Otherwise the deployment would wait for
// it in vain. It takes a turn.
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

// updateInPlace gives an allocation the newest version without a restart of its tasks.
func (d *decision) updateInPlace(m *member, change diff.GroupChange) {
	reason := fmt.Sprintf("takes version %d of the job in place", d.in.Job.Version)
	if change == diff.GroupSame {
		reason = fmt.Sprintf("is judged anew, for the deployment of version %d of the job", d.in.Job.Version)
	}
	d.out.InPlace = append(d.out.InPlace, Change{Alloc: m.a, Update: true, Reason: reason})
}
