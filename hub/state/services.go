package state

import (
	"iter"

	"skerry/fleet"
	"skerry/fleet/taskenv"
)

// metaServices is the row of metaTable that a change of the catalogue of services
// writes. The catalogue itself is kept nowhere: it follows from allocations and nodes.
const metaServices = "services"

// noteServiceChange notes that what an allocation offers may have changed; old or new may be
// nil.
func (t *tx) noteServiceChange(old, new *fleet.Alloc) {
	was, is := old != nil && old.Offers(), new != nil && new.Offers()
	if was != is || was && is && servicesDiffer(old, new) {
		t.markMeta(metaServices)
	}
}

// servicesDiffer reports whether an allocation's services may be others than before,
// or be there when they were not.
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

func isCanary(a *fleet.Alloc) bool { return a.DeploymentStatus != nil && a.DeploymentStatus.Canary }

func isAway(s fleet.NodeStatus) bool { return s == fleet.NodeDisconnected || s == fleet.NodeDown }

// Services lists what running allocations offer, in the order of allocations: those of
// a job, or all for "". A Watch view wakes when the catalogue has changed, and for
// nothing else; its newest change is TableIndex("services").
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
