package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
	"skerry/syncproto"
)

// maxAnswer is the largest JSON answer of an edge, in bytes.
const maxAnswer = 4 << 20

// askEdgeForJSON sends a request to an edge and returns its JSON answer. An answer that is no JSON is an error.
func (a *API) askEdgeForJSON(r *http.Request, node fleet.NodeID, req syncproto.Request) (json.RawMessage, error) {
	out, err := a.cfg.Edges.Logs(r.Context(), node, req)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	b, err := io.ReadAll(io.LimitReader(out, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read %s of node %s: %w", req.Kind, fleet.Short(node), err)
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("read %s of node %s: its answer is not JSON", req.Kind, fleet.Short(node))
	}
	return b, nil
}

// allocUsage asks the edge of an allocation for the resources that its tasks, or one task, use now.
func (a *API) allocUsage(r *http.Request) (any, fleet.Index, error) {
	v, al, err := a.freshAlloc(r)
	if err != nil {
		return nil, 0, err
	}
	task := r.URL.Query().Get("task")
	if err := checkAllocReachable(v, al, "measure", task); err != nil {
		return nil, v.Index(), err
	}
	answer, err := a.askEdgeForJSON(r, al.NodeID, syncproto.Request{Kind: syncproto.RequestUsage, Alloc: al.ID, Task: task})
	return answer, v.Index(), err
}

// nodeUsage asks a node's edge for the resources that its machine uses now.
func (a *API) nodeUsage(r *http.Request) (any, fleet.Index, error) {
	id := fleet.NodeID(r.URL.Query().Get("node_id"))
	if id == "" {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "measure a node: the parameter node_id is missing").
			WithHint("a hub runs nothing itself; its own figures are at /v1/metrics")
	}
	v, err := a.freshReachableNode(r, id, "measure")
	if err != nil {
		return nil, v.Index(), err
	}
	answer, err := a.askEdgeForJSON(r, id, syncproto.Request{Kind: syncproto.RequestUsage})
	return answer, v.Index(), err
}

// freshReachableNode waits until this hub has caught up with the leader, and returns a view. It fails if the node is
// unreachable; verb begins the error's text.
func (a *API) freshReachableNode(r *http.Request, id fleet.NodeID, verb string) (*state.View, error) {
	err := a.cfg.Cluster.CatchUp(r.Context())
	v := a.cfg.State.View()
	if err != nil {
		return v, err
	}
	if n, ok := v.Node(id); ok && grantOf(r).requires.kind == acl.KindNode {
		if err := grantOf(r).checkObject(n, missingNode(id, verb)); err != nil {
			return v, err
		}
	}
	return v, nodeReachable(v, id, verb)
}

// missingNode returns the error for a node that does not exist; verb begins its text.
func missingNode(id fleet.NodeID, verb string) *fleet.Error {
	return fleet.Errorf(fleet.CodeNotFound, "%s node %q: it is not found", verb, id).
		WithHint("skerry node status --verbose lists the nodes with their complete ids")
}

// nodeReachable returns an error if the node does not exist, is disconnected or is down; verb begins its text.
func nodeReachable(v *state.View, id fleet.NodeID, verb string) error {
	n, ok := v.Node(id)
	switch {
	case !ok:
		return missingNode(id, verb)
	case n.Status == fleet.NodeDisconnected || n.Status == fleet.NodeDown:
		return fleet.Errorf(fleet.CodeUnavailable, "%s node %s: it is %s", verb, n.Name, n.Status).
			WithHint("try again when it is back")
	}
	return nil
}
