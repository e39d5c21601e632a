package api

import (
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

// maxReason is the longest reason of a revocation, in bytes.
const maxReason = 512

// revokeNode expels an edge for good: hubs refuse its certificate. The id must be complete, since a node that the
// state does not have (any more) can be revoked, too.
func (a *API) revokeNode(r *http.Request, req api.RevokeRequest) (any, fleet.Index, error) {
	id := r.PathValue("id")
	switch {
	case !identity.ValidName(fleet.RoleEdge, id):
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "revoke node %q: it is not a complete node id", id)
	case len(req.Reason) > maxReason:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "revoke node %s: the reason has %d bytes, at most %d are allowed", fleet.Short(fleet.NodeID(id)), len(req.Reason), maxReason)
	}
	return commitAnswer(a, r, state.NodeRevoke{
		NodeID: fleet.NodeID(id), Reason: req.Reason, KeepExposure: true, EvalSeed: a.cfg.NewID(), Now: a.cfg.Now().UnixNano(),
	}, nodeAnswer)
}

// readmitNode lets an edge continue whose data directory was replaced by an older copy, which hubs refuse otherwise.
func (a *API) readmitNode(r *http.Request) (any, fleet.Index, error) {
	return commitAnswer(a, r, state.NodeReadmit{NodeID: fleet.NodeID(r.PathValue("id")), Now: a.cfg.Now().UnixNano()}, nodeAnswer)
}

// listRevocations lists the revoked nodes by id.
func (a *API) listRevocations(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	id := func(r *fleet.Revocation) string { return string(r.NodeID) }
	answer, err := page(r, filterByPrefix(q, v.Revocations(), id), id, unchangedItem[*fleet.Revocation])
	return answer, v.TableIndex("revocations"), err
}
