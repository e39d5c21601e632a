package state

import (
	"iter"

	"skerry/fleet"
	"skerry/fleet/taskenv"
)

// metaServices is the row of metaTable that every change of the service catalogue marks. The catalogue has
// no table: it is computed from allocations and nodes.
const metaServices = "services"

// noteServiceChange marks the service catalogue changed if the change of an allocation from old to new may
// affect it. Either may be nil.
func (t *tx) noteServiceChange(old, new *fleet.Alloc) {
	was, is := old != nil && old.Offers(), new != nil && new.Offers()
	if was != is || was && is && servicesDiffer(old, new) {
		t.markMeta(metaServices)
		a := new
		if a == nil {
			a = old
		}
		if n := nodeTable.currentRow(t, idKey(a.NodeID)); n != nil {
			t.noteSiteChange(&n.Node)
		}
	}
}

// siteRow marks a change of the services of a site's nodes. Each hub makes it for itself: it only wakes views.
type siteRow struct {
	site  string
	index fleet.Index // of the newest change since the hub started
}

var siteTable = table[siteRow]{name: "site services", key: func(r *siteRow) []byte { return key(r.site) }, undigested: true}

// noteSiteChange wakes the views that watch the services of a node's site.
func (t *tx) noteSiteChange(n *fleet.Node) {
	if site := n.OwnSite(); site != "" {
		siteTable.putRow(t, &siteRow{site, t.index})
	}
}

// servicesDiffer reports whether the services of an allocation, or their availability, may have changed.
func servicesDiffer(old, new *fleet.Alloc) bool {
	if old.JobHash != new.JobHash || old.ClientStatus != new.ClientStatus || isCanary(old) != isCanary(new) || old.Ending() != new.Ending() {
		return true
	}
	for name, s := range new.TaskStates {
		if old.TaskStates[name].Offers() != s.Offers() {
			return true
		}
	}
	return false
}

// isCanary reports whether the allocation is a canary that is not promoted.
func isCanary(a *fleet.Alloc) bool { return a.DeploymentStatus != nil && a.DeploymentStatus.Canary }

// isAway reports whether a node of this status is disconnected or down.
func isAway(s fleet.NodeStatus) bool { return s == fleet.NodeDisconnected || s == fleet.NodeDown }

// Services iterates over the services of a job's running allocations, or of all allocations of the
// namespace if job is "". A Watch view wakes only when the catalogue changes; TableIndex("services") is
// its newest change.
func (v *View) Services(ns string, job fleet.JobID, region string) iter.Seq[fleet.ServiceRegistration] {
	v.watchMeta(metaServices)
	plain := &View{txn: v.txn}
	list := plain.Allocs(ns, "")
	if job != "" {
		list = plain.AllocsByJob(ns, job)
	}
	return func(yield func(fleet.ServiceRegistration) bool) {
		for a := range list {
			if !a.Offers() {
				continue
			}
			n, ok := plain.Node(a.NodeID)
			if !ok {
				continue
			}
			for _, r := range taskenv.Registrations(a, n, region) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// NodesOfSite iterates over the nodes that have a site of this name, which is not only their datacenter. A Watch view wakes
// when services of these nodes may have changed, or the nodes themselves, and for no other site.
func (v *View) NodesOfSite(site string) iter.Seq[*fleet.Node] {
	siteTable.watchRow(v, key(site))
	rows := nodeTable.scanPrefix(v.txn, indexSite, key(site))
	return func(yield func(*fleet.Node) bool) {
		for r := range rows {
			if !yield(&r.Node) {
				return
			}
		}
	}
}

// SiteIndex returns the newest change of the services of a site that this hub has applied since it started, or 0.
func (v *View) SiteIndex(site string) fleet.Index {
	r, ok := siteTable.watchRow(v, key(site))
	if !ok {
		return 0
	}
	return r.index
}
