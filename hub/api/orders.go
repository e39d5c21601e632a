package api

import (
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

func (a *API) allocClientEndpoints() []endpoint {
	return []endpoint{
		{writes, "/v1/client/allocation/{id}/restart", inObjectNamespace("alloc-lifecycle"), writeOptionalBody(a, a.restartAlloc)},
		{writes, "/v1/client/allocation/{id}/signal", inObjectNamespace("alloc-lifecycle"), writeBody(a, a.signalAlloc)},
		{"GET", "/v1/client/allocation/{id}/exec", inObjectNamespace("alloc-exec"), a.execInTask},
		{"GET", "/v1/client/allocation/{id}/checks", inObjectNamespace("read-job"), a.writeHandler(a.allocChecks)},
		{"GET", "/v1/client/allocation/{id}/stats", inObjectNamespace("read-job"), a.writeHandler(a.allocUsage)},
		{"GET", "/v1/client/stats", onNode("read"), a.writeHandler(a.nodeUsage)},
		{"GET", "/v1/client/gc", onNode("write"), a.writeHandler(a.collectNode)}, // by GET, as Nomad's clients ask for it
		{writes, "/v1/client/gc", onNode("write"), a.writeHandler(a.collectNode)},
		{"GET", "/v1/client/allocation/{id}/gc", inObjectNamespace("submit-job"), a.writeHandler(a.collectAlloc)},
		{writes, "/v1/client/allocation/{id}/gc", inObjectNamespace("submit-job"), a.writeHandler(a.collectAlloc)},
	}
}

// killSignal is the signal that is sent if the request names none.
const killSignal = "SIGKILL"

// restartAlloc has the edge restart tasks of an allocation in place: the named one, or all that have not ended. With
// AllTasks the edge refuses the request if a task has ended.
func (a *API) restartAlloc(r *http.Request, req api.AllocRestartRequest) (any, fleet.Index, error) {
	if req.AllTasks && req.TaskName != "" {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "restart an allocation: both TaskName and AllTasks are given").
			WithHint("give one of them")
	}
	return a.requestAllocAction(r, "restart", syncproto.Request{
		Kind: syncproto.RequestRestart, Task: req.TaskName, Everything: req.AllTasks,
	})
}

// signalAlloc has the edge send a signal to all tasks of an allocation, or to the named one.
func (a *API) signalAlloc(r *http.Request, req api.AllocSignalRequest) (any, fleet.Index, error) {
	if req.Signal == "" {
		req.Signal = killSignal
	}
	return a.requestAllocAction(r, "signal", syncproto.Request{Kind: syncproto.RequestSignal, Task: req.Task, Signal: req.Signal})
}

// requestAllocAction sends a request about the allocation in the request's path to its edge, and answers when the
// edge has carried it out. It fails at once if the node is unreachable; verb begins the error's text.
func (a *API) requestAllocAction(r *http.Request, verb string, req syncproto.Request) (any, fleet.Index, error) {
	v, al, err := a.freshAlloc(r)
	if err != nil {
		return nil, 0, err
	}
	if err := checkAllocReachable(v, al, verb, req.Task); err != nil {
		return nil, v.Index(), err
	}
	req.Alloc = al.ID
	return struct{}{}, v.Index(), a.tellEdge(r, al.NodeID, req)
}

// tellEdge sends a request to an edge and returns when the edge has carried it out.
func (a *API) tellEdge(r *http.Request, node fleet.NodeID, req syncproto.Request) error {
	out, err := a.cfg.Edges.Logs(r.Context(), node, req)
	if err != nil {
		return err
	}
	return out.Close()
}

// allocChecks asks the edge of an allocation for the newest results of its service checks.
func (a *API) allocChecks(r *http.Request) (any, fleet.Index, error) {
	v, al, err := a.freshAlloc(r)
	if err != nil {
		return nil, 0, err
	}
	if err := reachable(v, al, "read checks"); err != nil {
		return nil, v.Index(), err
	}
	answer, err := a.askEdgeForJSON(r, al.NodeID, syncproto.Request{Kind: syncproto.RequestChecks, Alloc: al.ID})
	return answer, v.Index(), err
}

// noAnswer has writeAnswer send no body.
type noAnswer struct{}

// collectAlloc has the edge of an allocation that has ended remove its folder. One that has not ended is refused.
func (a *API) collectAlloc(r *http.Request) (any, fleet.Index, error) {
	v, al, err := a.freshAlloc(r)
	if err != nil {
		return nil, 0, err
	}
	if !al.ClientTerminal() {
		return nil, v.Index(), fleet.Errorf(fleet.CodeConflict, "garbage-collect allocation %s: it has not ended, its status is %s", fleet.Short(al.ID), al.ClientStatus).
			WithHint("stop it first: skerry alloc stop %s", fleet.Short(al.ID))
	}
	if err := nodeReachable(v, al.NodeID, "collect allocations of"); err != nil {
		return nil, v.Index(), err
	}
	return noAnswer{}, v.Index(), a.tellEdge(r, al.NodeID, syncproto.Request{Kind: syncproto.RequestCollect, Alloc: al.ID})
}

// collectNode has a node's edge remove the folders of all its allocations that have ended.
func (a *API) collectNode(r *http.Request) (any, fleet.Index, error) {
	id := fleet.NodeID(r.URL.Query().Get("node_id"))
	if id == "" {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "garbage-collect allocations of a node: the parameter node_id is missing").
			WithHint("a hub runs nothing itself; /v1/system/gc removes ended jobs and allocations from the hubs' state")
	}
	v, err := a.freshReachableNode(r, id, "collect allocations of")
	if err != nil {
		return nil, v.Index(), err
	}
	return noAnswer{}, v.Index(), a.tellEdge(r, id, syncproto.Request{Kind: syncproto.RequestCollect})
}

// checkAllocReachable returns an error if the allocation has ended, lacks the task ("": none is checked), or is on
// an unreachable node. verb begins its text.
func checkAllocReachable(v *state.View, al *fleet.Alloc, verb, task string) error {
	if al.ClientTerminal() {
		return fleet.Errorf(fleet.CodeConflict, "%s allocation %s: it has ended, its status is %s", verb, fleet.Short(al.ID), al.ClientStatus)
	}
	if g := al.Group(); g != nil && task != "" && g.Task(task) == nil {
		_, err := taskOf(al, task)
		return err
	}
	err := reachable(v, al, verb+" tasks")
	if fleet.CodeOf(err) == fleet.CodeUnavailable {
		return fleet.AsError(err).WithHint("its tasks keep running and were not changed; try again when the node is back")
	}
	return err
}
