package state

import (
	"iter"
	"slices"
	"time"

	"skerry/fleet"
)

// deploymentRow is a deployment with its allocations. The row is written with
// every change of one of them that a rollout has to know of.
type deploymentRow struct {
	fleet.Deployment
	allocs []fleet.AllocID // sorted; shared with older rows

	// Of the entry that works on it.
	added   []fleet.AllocID
	removed map[fleet.AllocID]bool

	// changed are the newest changes of its allocations that concern its watcher, those
	// after entry forgotten; shared with older rows. They are in no snapshot.
	changed   []changedAlloc `digest:"-"`
	forgotten fleet.Index    `digest:"-"`
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

func createdKey(index fleet.Index, id fleet.DeploymentID) []byte {
	return append(indexKey(index), idKey(id)...)
}

// ownDeployment returns the entry's own copy of a deployment, or nil. Its groups
// may be changed; their lists are only appended to, where they are clipped.
func (t *tx) ownDeployment(id fleet.DeploymentID) *deploymentRow {
	if id == "" {
		return nil
	}
	return deploymentTable.ownRow(t, idKey(id), func(r *deploymentRow) *deploymentRow {
		c := *r
		c.Deployment = *r.Deployment.Copy()
		for name, g := range c.TaskGroups {
			g.PlacedCanaries = slices.Clip(g.PlacedCanaries) // joins appends to it
			c.TaskGroups[name] = g
		}
		return &c
	})
}

// deploymentChanged notes that something changed that people see of a deployment.
func (t *tx) deploymentChanged(d *deploymentRow, now int64) {
	d.ModifyIndex, d.ModifyTime = t.index, now
	deploymentTable.markChanged(t)
}

// planDeployments takes what a plan says of deployments.
func (t *tx) planDeployments(c Plan) {
	for _, u := range c.DeploymentUpdates {
		if d := t.ownDeployment(u.DeploymentID); d != nil && d.Active() {
			t.setDeployment(d, u, c.Now)
		}
	}
	d := c.NewDeployment
	if d == nil || d.ID == "" || deploymentTable.currentRow(t, idKey(d.ID)) != nil {
		return
	}
	for _, other := range t.activeDeployments(d.Namespace, d.JobID) {
		t.setDeployment(t.ownDeployment(other), fleet.DeploymentUpdate{
			DeploymentID: other, Status: fleet.DeploymentCancelled, StatusDescription: fleet.DescNewerJob,
		}, c.Now)
	}
	row := &deploymentRow{Deployment: *d.Copy()}
	row.CreateIndex, row.CreateTime = t.index, c.Now
	deploymentTable.putRow(t, row)
	t.deploymentChanged(row, c.Now)
	t.markMeta(metaRollouts)
}

// activeDeployments lists a job's deployments that are not over. Invariant: there
// is one at most.
func (t *tx) activeDeployments(ns string, id fleet.JobID) []fleet.DeploymentID {
	var out []fleet.DeploymentID
	for r := range deploymentTable.scanPrefix(t.base, indexJob, jobKeyOf(ns, id)) {
		if now := deploymentTable.currentRow(t, idKey(r.ID)); now != nil && now.Active() {
			out = append(out, r.ID)
		}
	}
	return out
}

// setDeployment gives a deployment that is not over another status. What is
// resumed gets its time anew: it stood still meanwhile.
func (t *tx) setDeployment(d *deploymentRow, u fleet.DeploymentUpdate, now int64) {
	if d.Status == fleet.DeploymentPaused && u.Status == fleet.DeploymentRunning {
		for name, s := range d.TaskGroups {
			if !s.RequireProgressBy.IsZero() {
				s.RequireProgressBy = time.Unix(0, now).UTC().Add(s.ProgressDeadline)
				d.TaskGroups[name] = s
			}
		}
	}
	d.Status, d.StatusDescription = u.Status, u.StatusDescription
	t.deploymentChanged(d, now)
	if d.Status == fleet.DeploymentSuccessful {
		t.markVersionStable(&d.Deployment)
	}
}

// markVersionStable notes that a version of a job is one to go back to.
func (t *tx) markVersionStable(d *fleet.Deployment) {
	if row := jobTable.currentRow(t, jobKeyOf(d.Namespace, d.JobID)); row != nil && row.job.CreateIndex == d.JobCreateIndex {
		t.setStable(row, d.JobVersion, true)
	}
}

// keptStable are a job's stable versions that are still kept, newest first.
func keptStable(row *jobRow) []uint64 {
	var kept []uint64
	for _, v := range row.versions {
		if slices.Contains(row.stable, v.Version) {
			kept = append(kept, v.Version)
		}
	}
	return kept
}

// countInDeployment books what the change of an allocation from old to new means for its
// deployment; either may be nil. Every change of an allocation passes here.
func (t *tx) countInDeployment(old, new *fleet.Alloc) {
	if old != nil && (new == nil || new.DeploymentID != old.DeploymentID) {
		if d := t.ownDeployment(old.DeploymentID); d != nil {
			if d.removed == nil {
				d.removed = map[fleet.AllocID]bool{}
			}
			d.removed[old.ID] = true
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
	}
	was := old != nil && old.DeploymentStatus.IsHealthy()
	wasNot := old != nil && old.DeploymentStatus.IsUnhealthy()
	s.HealthyAllocs += boolToInt(new.DeploymentStatus.IsHealthy()) - boolToInt(was)
	s.UnhealthyAllocs += boolToInt(new.DeploymentStatus.IsUnhealthy()) - boolToInt(wasNot)
	progress := new.DeploymentStatus.IsHealthy() && !was ||
		old != nil && old.ClientStatus == fleet.ClientUnknown && new.ClientStatus != fleet.ClientUnknown && !new.Terminal() && !was
	// What was healthy and ended by itself has to come again: that takes as long as the first time.
	setback := was && !old.Terminal() && new.ClientTerminal()
	if (progress || setback) && s.ProgressDeadline > 0 {
		s.RequireProgressBy = time.Unix(0, new.ModifyTime).UTC().Add(s.ProgressDeadline)
	}
	before := d.TaskGroups[new.TaskGroup]
	d.TaskGroups[new.TaskGroup] = s
	if d.RequiresPromotion() {
		d.StatusDescription = d.RunningDescription() // as its canaries are
	}
	if old == nil || was != new.DeploymentStatus.IsHealthy() || wasNot != new.DeploymentStatus.IsUnhealthy() ||
		!before.RequireProgressBy.Equal(s.RequireProgressBy) {
		t.deploymentChanged(d, new.ModifyTime)
	}
}

// concernsRollout reports whether a change of an allocation is one that its
// deployment's watcher has to know of.
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

// countJoinedAlloc counts an allocation that is new in a deployment. One that takes the place
// of another of the same deployment, which failed, is no progress.
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

// reportHealth takes over what a row says of an allocation's health in its
// deployment. What was said of another deployment is history only.
func (t *tx) reportHealth(a *fleet.Alloc, tr *fleet.Transition, now int64) {
	if tr.Kind != fleet.TransitionHealth || tr.Healthy == nil || a.DeploymentID == "" || tr.Deployment != a.DeploymentID {
		return
	}
	setHealth(a, *tr.Healthy, t.index, now)
}

// setHealth notes an allocation's health in its deployment.
func setHealth(a *fleet.Alloc, healthy bool, index fleet.Index, now int64) {
	next := fleet.AllocDeployment{Healthy: &healthy, Timestamp: time.Unix(0, now).UTC(), ModifyIndex: index}
	if a.DeploymentStatus != nil {
		next.Canary = a.DeploymentStatus.Canary
	}
	a.DeploymentStatus = &next
}

// Deployment returns a deployment. A view of Watch wakes also when one of its
// allocations changes in a way that concerns the rollout.
func (v *View) Deployment(id fleet.DeploymentID) (*fleet.Deployment, bool) {
	row, ok := deploymentTable.watchRow(v, idKey(id))
	if !ok {
		return nil, false
	}
	return &row.Deployment, true
}

// Rollout returns a deployment with its allocations, which is one row to watch:
// what changes elsewhere wakes nobody.
func (v *View) Rollout(id fleet.DeploymentID) (*fleet.Deployment, iter.Seq[*fleet.Alloc], bool) {
	row, ok := deploymentTable.watchRow(v, idKey(id))
	if !ok {
		return nil, nil, false
	}
	return &row.Deployment, v.allocList(row.allocs), true
}

// AllocsByDeployment lists a deployment's allocations.
func (v *View) AllocsByDeployment(id fleet.DeploymentID) iter.Seq[*fleet.Alloc] {
	_, allocs, ok := v.Rollout(id)
	if !ok {
		return v.allocList(nil)
	}
	return allocs
}

// Deployments lists a namespace's deployments ("*": all) whose id starts with
// prefix, the oldest first.
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

// DeploymentsByJob lists a job's deployments, also of one that was purged, the
// oldest first.
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

// LatestDeployment returns a job's newest deployment, or nil.
func (v *View) LatestDeployment(ns string, id fleet.JobID) *fleet.Deployment {
	var newest *fleet.Deployment
	for d := range v.DeploymentsByJob(ns, id) {
		newest = d
	}
	return newest
}

// DeploymentsSince lists deployments that began after an entry, the oldest first.
// A view of Watch wakes when another begins, and for nothing else of them.
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
