package reconcile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/planted"
)

// served: it is what the newest version wants, and was seen to serve; nor has it ended since.
func (r *rollout) served(m *member) bool {
	return m.kind != failed && m.kind != spent && !r.d.outdated(m.a) && (m.a.DeploymentStatus.IsHealthy() || m.a.DeploymentID == "" && m.status() == fleet.ClientRunning)
}

// progress counts how far a name, or a node, of the group is.
func (r *rollout) progress(m *member) {
	switch {
	case m == nil:
	case r.served(m):
		r.healthy++
	case r.past(m):
		r.over++
	case (m.absent || m.kind == frozen) && planted.On(planted.AbsentIsHealthy):
		r.healthy++
	case m.kind == failed && !r.d.system(): // the deployment decides what comes of it, wherever its edge is
	case m.absent || m.kind == frozen:
		r.away++
	}
}

// past reports whether something failed after an earlier deployment of this very version
// had brought it up: that is none of what this one, which was begun for an edge that came
// back, is to bring about. Its reschedule policy decides what comes of it.
func (r *rollout) past(m *member) bool {
	dep := r.d.deployment
	return dep != nil && m.kind == failed && m.a.DeploymentID != dep.ID && r.d.ofNewest(m.a)
}

// done reports whether the group is where the deployment wants it, as far as
// wait_for asks.
func (r *rollout) done() bool {
	if planted.On(planted.NeverComplete) {
		return false
	}
	total := r.wants()
	if r.waiting > 0 || r.healthy+r.away+r.blocked < total || r.healthy == 0 && total > 0 {
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

// wants is how many the deployment is to see healthy, or away. A node that never had any
// and came after it began may be too full for one for as long as it lives: what is placed
// there is judged with all others, but nobody waits for it to be placed.
func (r *rollout) wants() int {
	return max(r.total-r.vacant, min(r.total, r.state.DesiredTotal)) - r.over
}

// joins reports whether the deployment is to judge something that runs what the newest
// version wants, but that an earlier one, of which nothing more is heard, has not seen
// healthy: its edge speaks once for each deployment, and this one would wait in vain.
func (r *rollout) joins(m *member) bool {
	if r.u == nil || r.held != "" || m.kind != present || r.served(m) {
		return false
	}
	if dep := r.d.deployment; dep != nil {
		if _, part := dep.TaskGroups[r.g.Name]; !part || m.a.DeploymentID == dep.ID {
			return false
		}
	} else if !r.changes && r.stale == 0 && (r.d.proven || m.a.JobVersion == r.d.in.Job.Version) {
		return false // this group begins none
	}
	r.changes = true
	return true
}

// triesAnew reports whether something that failed under an earlier version, and that its
// policy leaves at that, is placed for the newest, though that does not change its tasks:
// the deployment would wait for it in vain.
func (r *rollout) triesAnew(m *member) bool {
	if r.u == nil || r.held != "" || m.a.JobVersion == r.d.in.Job.Version || nextAttempt(m.a, r.g.ReschedulePolicy, time.Unix(0, m.a.ModifyTime)).allowed {
		return false
	}
	if dep := r.d.deployment; r.d.proven || dep != nil && m.a.DeploymentID == dep.ID {
		return false
	}
	r.changes = true
	r.left = max(r.left-1, 0)
	return true
}

// inPlace makes an allocation one of the newest version.
func (d *decision) inPlace(m *member, change fleet.GroupChange) {
	reason := fmt.Sprintf("takes version %d of the job in place", d.in.Job.Version)
	if change == fleet.GroupSame {
		reason = fmt.Sprintf("is judged anew, for the deployment of version %d of the job", d.in.Job.Version)
	}
	d.out.InPlace = append(d.out.InPlace, Change{Alloc: m.a, Update: true, Reason: reason})
}
