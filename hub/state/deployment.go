package state

import (
	"iter"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// deploymentRow is a deployment with its allocations. The row is written whenever one of them changes in a
// way that concerns the rollout, so that watching the row is enough.
type deploymentRow struct {
	fleet.Deployment
	allocs []fleet.AllocID // sorted; shared with older rows

	// added and removed are the changes of allocs by the entry that is being applied.
	added   []fleet.AllocID
	removed map[fleet.AllocID]bool

	// canaries counts the canaries that are not promoted, by group, without groups that have none to count.
	// It is not in snapshots.
	canaries map[string]canaryCount

	// changed are the changes of allocations after the entry forgotten, for RolloutChanges. The
	// list is shared with older rows. It is not in snapshots.
	changed   []changedAlloc `digest:"-"`
	forgotten fleet.Index    `digest:"-"`
}

// canaryCount counts canaries of one group.
type canaryCount struct {
	healthy int // those that are healthy and not terminal
	failed  int // those that failed or are unhealthy, with those that are replaced
}

const (
	indexJob     = "job"
	indexCreated = "created"
)

var deploymentTable = table[deploymentRow]{
	name: "deployments", key: func(r *deploymentRow) []byte { return idKey(r.ID) }, announced: true,
	indexes: []tableIndex[deploymentRow]{
		{name: indexJob, key: func(r *deploymentRow) []byte {
			return append(jobKeyOf(r.Namespace, r.JobID), createdKey(r.CreateIndex, r.ID)...)
		}},
		{name: indexCreated, key: func(r *deploymentRow) []byte { return createdKey(r.CreateIndex, r.ID) }},
	},
	records: []record[deploymentRow]{savedRecord(20,
		func(r *deploymentRow) *fleet.Deployment { return &r.Deployment },
		func(_ *loader, d *fleet.Deployment) (*deploymentRow, error) {
			return &deploymentRow{Deployment: *d}, nil
		})},
	describe: func(d *describer, table string, r *deploymentRow) { d.writeTableLine(table, r.Deployment, r.allocs) },
}

// createdKey orders deployments by their create index, then by id.
func createdKey(index fleet.Index, id fleet.DeploymentID) []byte {
	return append(indexKey(index), idKey(id)...)
}

// ownDeployment returns a copy of a deployment that this entry may change in place, or nil. The map of
// groups may be changed. Lists in groups are shared and clipped, so that only appending to them is
// allowed.
func (t *tx) ownDeployment(id fleet.DeploymentID) *deploymentRow {
	if id == "" {
		return nil
	}
	return deploymentTable.ownRow(t, idKey(id), func(r *deploymentRow) *deploymentRow {
		c := *r
		c.Deployment = *r.Deployment.Copy()
		c.canaries = maps.Clone(r.canaries)
		for name, g := range c.TaskGroups {
			g.PlacedCanaries = slices.Clip(g.PlacedCanaries) // countJoinedAlloc appends to it
			c.TaskGroups[name] = g
		}
		return &c
	})
}

// deploymentChanged sets the deployment's modify index and time. Call it after a change that users can
// see.
func (t *tx) deploymentChanged(d *deploymentRow, now int64) {
	d.ModifyIndex, d.ModifyTime = t.index, now
	deploymentTable.markChanged(t)
}

// planDeployments applies a plan's deployment updates, and stores its new deployment. It cancels the job's
// other active deployments.
func (t *tx) planDeployments(c Plan) {
	for _, u := range c.DeploymentUpdates {
		if d := t.ownDeployment(u.DeploymentID); d != nil && d.Active() {
			t.setDeploymentStatus(d, u, c.Now)
		}
	}
	d := c.NewDeployment
	if d == nil || d.ID == "" || deploymentTable.currentRow(t, idKey(d.ID)) != nil {
		return
	}
	for _, other := range t.activeDeployments(d.Namespace, d.JobID) {
		t.setDeploymentStatus(t.ownDeployment(other), fleet.DeploymentUpdate{
			DeploymentID: other, Status: fleet.DeploymentCancelled, StatusDescription: fleet.DescNewerJob,
		}, c.Now)
	}
	row := &deploymentRow{Deployment: *d.Copy()}
	row.CreateIndex, row.CreateTime = t.index, c.Now
	deploymentTable.putRow(t, row)
	t.deploymentChanged(row, c.Now)
	t.markMeta(metaRollouts)
}

// activeDeployments returns the job's deployments that are not over. Invariant: there is at most one.
func (t *tx) activeDeployments(ns string, id fleet.JobID) []fleet.DeploymentID {
	var out []fleet.DeploymentID
	for r := range deploymentTable.scanPrefix(t.base, indexJob, jobKeyOf(ns, id)) {
		if now := deploymentTable.currentRow(t, idKey(r.ID)); now != nil && now.Active() {
			out = append(out, r.ID)
		}
	}
	return out
}

// setDeploymentStatus changes the status of an active deployment. A resumed one gets its full progress
// deadline again. A successful one marks its job version stable.
func (t *tx) setDeploymentStatus(d *deploymentRow, u fleet.DeploymentUpdate, now int64) {
	if d.Status == fleet.DeploymentPaused && u.Status == fleet.DeploymentRunning {
		for name, s := range d.TaskGroups {
			if !s.RequireProgressBy.IsZero() {
				s.RequireProgressBy = time.Unix(0, now).UTC().Add(s.ProgressDeadline)
				d.TaskGroups[name] = s
			}
		}
	}
	d.Status, d.StatusDescription = u.Status, u.StatusDescription
	if d.Status == fleet.DeploymentRunning {
		d.StatusDescription = d.RunningDescription(d.hasFailedCanary())
	}
	t.deploymentChanged(d, now)
	if d.Status == fleet.DeploymentSuccessful {
		t.markVersionStable(&d.Deployment)
	}
}

// markVersionStable marks the job version of a deployment stable, unless the job was purged since.
func (t *tx) markVersionStable(d *fleet.Deployment) {
	if row := jobTable.currentRow(t, jobKeyOf(d.Namespace, d.JobID)); row != nil && row.job.CreateIndex == d.JobCreateIndex {
		t.setStable(row, d.JobVersion, true)
	}
}

// keptStableVersions returns the job's stable versions that are still kept, newest first.
func keptStableVersions(row *jobRow) []uint64 {
	var kept []uint64
	for _, v := range row.versions {
		if slices.Contains(row.stable, v.Version) {
			kept = append(kept, v.Version)
		}
	}
	return kept
}

// countInDeployment updates the deployment of an allocation that changes from old to new: its counts of
// placed and healthy allocations and its progress deadline. old is nil for a new allocation, new for a
// removed one. It must be called for every change of an allocation.
func (t *tx) countInDeployment(old, new *fleet.Alloc) {
	if old != nil && (new == nil || new.DeploymentID != old.DeploymentID) {
		if d := t.ownDeployment(old.DeploymentID); d != nil {
			if d.removed == nil {
				d.removed = map[fleet.AllocID]bool{}
			}
			d.removed[old.ID] = true
			d.countCanary(old, -1)
			d.noteChange(t.index, old.ID)
		}
		old = nil
	}
	if new == nil || new.DeploymentID == "" || old != nil && !concernsRollout(old, new) {
		return
	}
	d := t.ownDeployment(new.DeploymentID)
	if d == nil {
		return
	}
	s, known := d.TaskGroups[new.TaskGroup]
	if !known {
		return
	}
	d.noteChange(t.index, new.ID)
	if old == nil {
		d.added = append(d.added, new.ID)
		t.countJoinedAlloc(&s, new)
	} else {
		d.countCanary(old, -1)
	}
	d.countCanary(new, 1)
	was := old != nil && old.DeploymentStatus.IsHealthy()
	wasNot := old != nil && old.DeploymentStatus.IsUnhealthy()
	s.HealthyAllocs += boolToInt(new.DeploymentStatus.IsHealthy()) - boolToInt(was)
	s.UnhealthyAllocs += boolToInt(new.DeploymentStatus.IsUnhealthy()) - boolToInt(wasNot)
	progress := new.DeploymentStatus.IsHealthy() && !was ||
		old != nil && old.ClientStatus == fleet.ClientUnknown && new.ClientStatus != fleet.ClientUnknown && !new.Terminal() && !was
	// The replacement of a healthy allocation that ended by itself gets the full progress deadline.
	setback := was && !old.Terminal() && new.ClientTerminal()
	if (progress || setback) && s.ProgressDeadline > 0 {
		s.RequireProgressBy = time.Unix(0, new.ModifyTime).UTC().Add(s.ProgressDeadline)
	}
	before, description := d.TaskGroups[new.TaskGroup], d.StatusDescription
	d.TaskGroups[new.TaskGroup] = s
	if d.RequiresPromotion() {
		d.StatusDescription = d.RunningDescription(d.hasFailedCanary())
	}
	if old == nil || was != new.DeploymentStatus.IsHealthy() || wasNot != new.DeploymentStatus.IsUnhealthy() ||
		!before.RequireProgressBy.Equal(s.RequireProgressBy) || description != d.StatusDescription {
		t.deploymentChanged(d, new.ModifyTime)
	}
}

// countCanary adds n to the counts of an allocation, if it is a canary: 1 when it joins them, -1 when it
// leaves.
func (d *deploymentRow) countCanary(a *fleet.Alloc, n int) {
	if !a.DeploymentStatus.IsCanary() {
		return
	}
	c := d.canaries[a.TaskGroup]
	if a.DeploymentStatus.IsHealthy() && !a.Terminal() {
		c.healthy += n
	}
	if a.DeploymentStatus.IsUnhealthy() || a.ClientStatus == fleet.ClientFailed {
		c.failed += n
	}
	if c == (canaryCount{}) {
		delete(d.canaries, a.TaskGroup)
		return
	}
	if d.canaries == nil {
		d.canaries = map[string]canaryCount{}
	}
	d.canaries[a.TaskGroup] = c
}

// hasFailedCanary reports whether a group that waits for its promotion has a failed canary and too few
// healthy ones.
func (d *deploymentRow) hasFailedCanary() bool {
	for name, s := range d.TaskGroups {
		c := d.canaries[name]
		if !s.Promoted && c.failed > 0 && c.healthy < s.DesiredCanaries {
			return true
		}
	}
	return false
}

// concernsRollout reports whether a change of an allocation has to wake the watcher of its deployment.
func concernsRollout(old, new *fleet.Alloc) bool {
	return old.DeploymentStatus != new.DeploymentStatus || old.ClientStatus != new.ClientStatus ||
		old.DesiredStatus != new.DesiredStatus || old.Retired != new.Retired || old.DesiredTransition != new.DesiredTransition ||
		old.NextAllocation != new.NextAllocation
}

func boolToInt(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// countJoinedAlloc counts an allocation that is new in the deployment group s, and extends the progress
// deadline. The replacement of a failed allocation of the same deployment does not extend it.
func (t *tx) countJoinedAlloc(s *fleet.DeploymentState, a *fleet.Alloc) {
	s.PlacedAllocs++
	if a.DeploymentStatus.IsCanary() {
		s.PlacedCanaries = append(s.PlacedCanaries, a.ID) // ownDeployment has clipped it
	}
	prev := t.currentAlloc(a.PreviousAllocation)
	again := prev != nil && prev.DeploymentID == a.DeploymentID && prev.ID != a.ID &&
		(prev.ClientStatus == fleet.ClientFailed || prev.DeploymentStatus.IsUnhealthy())
	if s.ProgressDeadline > 0 && (!again || s.RequireProgressBy.IsZero()) {
		s.RequireProgressBy = time.Unix(0, a.ModifyTime).UTC().Add(s.ProgressDeadline)
	}
}

// applyHealthTransition sets the allocation's health in its deployment from a journal row. It ignores
// other kinds of rows, and the health in another deployment.
func (t *tx) applyHealthTransition(a *fleet.Alloc, tr *fleet.Transition, now int64) {
	if tr.Kind != fleet.TransitionHealth || tr.Healthy == nil || a.DeploymentID == "" || tr.Deployment != a.DeploymentID {
		return
	}
	setHealth(a, *tr.Healthy, t.index, now)
}

// setHealth sets an allocation's health in its deployment. It keeps the canary mark.
func setHealth(a *fleet.Alloc, healthy bool, index fleet.Index, now int64) {
	next := fleet.AllocDeployment{Healthy: &healthy, Timestamp: time.Unix(0, now).UTC(), ModifyIndex: index}
	if a.DeploymentStatus != nil {
		next.Canary = a.DeploymentStatus.Canary
	}
	a.DeploymentStatus = &next
}

// Deployment returns a deployment; ok is false if there is none. A Watch view also wakes when one of its
// allocations changes in a way that concerns the rollout.
func (v *View) Deployment(id fleet.DeploymentID) (*fleet.Deployment, bool) {
	row, ok := deploymentTable.watchRow(v, idKey(id))
	if !ok {
		return nil, false
	}
	return &row.Deployment, true
}

// Rollout returns a deployment with its allocations. A Watch view watches only the deployment's row, which
// changes with its allocations. ok is false if there is no such deployment.
func (v *View) Rollout(id fleet.DeploymentID) (*fleet.Deployment, iter.Seq[*fleet.Alloc], bool) {
	row, ok := deploymentTable.watchRow(v, idKey(id))
	if !ok {
		return nil, nil, false
	}
	return &row.Deployment, v.allocList(row.allocs), true
}

// AllocsByDeployment iterates over a deployment's allocations.
func (v *View) AllocsByDeployment(id fleet.DeploymentID) iter.Seq[*fleet.Alloc] {
	_, allocs, ok := v.Rollout(id)
	if !ok {
		return v.allocList(nil)
	}
	return allocs
}

// Deployments iterates over a namespace's deployments ("*": all namespaces) whose id starts with prefix,
// oldest first.
func (v *View) Deployments(ns, prefix string) iter.Seq[*fleet.Deployment] {
	rows := deploymentTable.watchTable(v, indexCreated, nil)
	return func(yield func(*fleet.Deployment) bool) {
		for r := range rows {
			if (ns == "*" || r.Namespace == ns) && len(r.ID) >= len(prefix) && string(r.ID[:len(prefix)]) == prefix && !yield(&r.Deployment) {
				return
			}
		}
	}
}

// DeploymentsByJob iterates over a job's deployments, oldest first. The job itself may be purged.
func (v *View) DeploymentsByJob(ns string, id fleet.JobID) iter.Seq[*fleet.Deployment] {
	rows := deploymentTable.watchPrefix(v, indexJob, jobKeyOf(ns, id))
	return func(yield func(*fleet.Deployment) bool) {
		for r := range rows {
			if !yield(&r.Deployment) {
				return
			}
		}
	}
}

// LatestDeployment returns the job's newest deployment, active or not, or nil.
func (v *View) LatestDeployment(ns string, id fleet.JobID) *fleet.Deployment {
	var newest *fleet.Deployment
	for d := range v.DeploymentsByJob(ns, id) {
		newest = d
	}
	return newest
}

// DeploymentsSince iterates over the deployments that began after an entry, oldest first. A Watch view
// wakes when another one begins, not when one of them changes.
func (v *View) DeploymentsSince(index fleet.Index) iter.Seq[*fleet.Deployment] {
	v.watchMeta(metaRollouts)
	quiet := &View{txn: v.txn}
	rows := deploymentTable.watchFrom(quiet, indexCreated, createdKey(index+1, "")[:8])
	return func(yield func(*fleet.Deployment) bool) {
		for r := range rows {
			if !yield(&r.Deployment) {
				return
			}
		}
	}
}
