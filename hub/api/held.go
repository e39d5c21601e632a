package api

import (
	"iter"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// listHeld lists the allocations that are held on site, by id.
func (a *API) listHeld(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	sites := func(id fleet.NodeID) string {
		if n, ok := v.Node(id); ok {
			return n.SiteName()
		}
		return ""
	}
	answer, err := page(r, heldAllocs(v.Allocs(q.namespace, q.prefix)), allocKey, func(al *fleet.Alloc) api.HeldAlloc {
		return api.HeldAlloc{
			ID: al.ID, Name: al.Name, Namespace: al.Namespace, JobID: al.JobID, JobVersion: al.JobVersion, TaskGroup: al.TaskGroup,
			NodeID: al.NodeID, NodeName: al.NodeName, Site: sites(al.NodeID), ClientStatus: al.ClientStatus, Held: *al.Held,
		}
	})
	return answer, v.TableIndex("allocs"), err
}

// heldAllocs yields those allocations that are held and have not ended.
func heldAllocs(all iter.Seq[*fleet.Alloc]) iter.Seq[*fleet.Alloc] {
	return func(yield func(*fleet.Alloc) bool) {
		for al := range all {
			if al.Held != nil && !al.ClientTerminal() && !yield(al) {
				return
			}
		}
	}
}
