package state

import (
	"skerry/fleet"
	"skerry/syncproto/nodekey"
)

// Exposure says what the edge of a node knows, so that it can be replaced after a theft: names and paths, no values. The
// table has a row for each revoked node, which stays with its revocation: the collector removes the node and its allocations.
type Exposure struct {
	NodeID      fleet.NodeID
	Name        string
	Site        string // where the node stands
	NodePool    string
	Since       int64  // UnixNano: when the node was revoked or lost; 0: it is connected
	IdentityKey string // the id of the edge's own key for offline identities; "": it has none
	ModifyIndex fleet.Index
	Allocs      []ExposedAlloc
}

// ExposedAlloc is an allocation that was placed on the node of an exposure.
type ExposedAlloc struct {
	ID           fleet.AllocID
	Namespace    string
	JobID        fleet.JobID
	TaskGroup    string
	ClientStatus string
	Variables    []string              // paths of variables that it may have read, also of deleted ones
	Identities   []fleet.OwnedIdentity // those of which the edge has tokens
}

// savedExposedAlloc is an allocation of an exposure in a snapshot. It has a record of its own, because a record is bounded.
type savedExposedAlloc struct {
	NodeID fleet.NodeID
	Alloc  ExposedAlloc
}

var exposureTable = table[Exposure]{
	name: "exposures", key: func(r *Exposure) []byte { return idKey(r.NodeID) },
	records: []record[Exposure]{
		savedRecord(112, toSavedExposure, func(_ *loader, r *Exposure) (*Exposure, error) { return r, nil }),
		partsRecord(113, toSavedExposedAllocs, loadExposedAlloc),
	},
}

// toSavedExposure converts an exposure to its snapshot record, without its allocations.
func toSavedExposure(r *Exposure) *Exposure {
	saved := *r
	saved.Allocs = nil
	return &saved
}

// toSavedExposedAllocs converts the allocations of an exposure to snapshot records.
func toSavedExposedAllocs(r *Exposure) (saved []savedExposedAlloc) {
	for _, a := range r.Allocs {
		saved = append(saved, savedExposedAlloc{r.NodeID, a})
	}
	return saved
}

// loadExposedAlloc adds an allocation from a snapshot to its exposure.
func loadExposedAlloc(in *loader, tb *table[Exposure], s *savedExposedAlloc) error {
	row := tb.currentRow(in.t, idKey(s.NodeID))
	if row == nil {
		return fleet.Errorf(fleet.CodeInvalid, "the exposure of node %s with allocation %s is missing", s.NodeID, s.Alloc.ID)
	}
	row.Allocs = append(row.Allocs, s.Alloc)
	return nil
}

// keepExposure stores what the edge of a node knows before this entry. The node is gone if it was purged.
func (t *tx) keepExposure(id fleet.NodeID, now int64) {
	before := &View{txn: t.base}
	n, known := before.Node(id)
	if !known {
		n = &fleet.Node{ID: id}
	}
	e := before.exposureOf(n)
	e.Since, e.ModifyIndex = now, t.index
	exposureTable.putRow(t, e)
}

// Exposure returns what the edge of a node knows, or knew when the node was revoked. ok is false if the state has no such node
// and no exposure of it.
func (v *View) Exposure(id fleet.NodeID) (e *Exposure, ok bool) {
	if kept, ok := exposureTable.watchRow(v, idKey(id)); ok {
		return kept, true
	}
	n, ok := v.Node(id)
	if !ok {
		return nil, false
	}
	return v.exposureOf(n), true
}

// exposureOf returns what the edge of a node knows by the allocations that the state has.
func (v *View) exposureOf(n *fleet.Node) *Exposure {
	e := &Exposure{NodeID: n.ID, Name: n.Name, Site: n.AtSite(), NodePool: n.NodePool, Since: n.DisconnectedAt, ModifyIndex: n.ModifyIndex}
	if n.Revoked != nil { // by an older release, which kept no exposure
		e.Since = n.Revoked.Time
	}
	if key := n.Attributes[nodekey.Attribute]; key != "" {
		e.IdentityKey = nodekey.ID(n.ID, key)
	}
	for a := range v.AllocsByNode(n.ID) {
		exposed := ExposedAlloc{ID: a.ID, Namespace: a.Namespace, JobID: a.JobID, TaskGroup: a.TaskGroup, ClientStatus: a.ClientStatus}
		for _, path := range a.VariablePaths("") {
			if v.wasReadable(a, path) {
				exposed.Variables = append(exposed.Variables, path)
			}
		}
		if g := a.Group(); g != nil && !a.EndedOnEdge() {
			exposed.Identities = g.DeliveredIdentities()
		}
		e.Allocs = append(e.Allocs, exposed)
	}
	return e
}

// wasReadable reports whether there is a variable of the path, or one was deleted after the allocation was placed.
func (v *View) wasReadable(a *fleet.Alloc, path string) bool {
	if _, stored := v.Variable(a.Namespace, path); stored {
		return true
	}
	deleted, known := v.DeletedVariable(a.Namespace, path)
	return known && deleted.Index > a.CreateIndex
}
