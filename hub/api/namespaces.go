package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

func (a *API) namespaceRoutes() {
	a.mux.HandleFunc("GET /v1/namespaces", a.readHandler(a.listNamespaces))
	a.mux.HandleFunc("GET /v1/namespace/{name}", readObject(a, "namespaces", needNamespace, a.readNamespace))
	a.mux.HandleFunc("DELETE /v1/namespace/{name}", a.writeHandler(a.deleteNamespace))
	a.handlePutAndPost("/v1/namespaces", writeBody(a, a.storeNamespace))
	a.handlePutAndPost("/v1/namespace", writeBody(a, a.storeNamespace))
	a.handlePutAndPost("/v1/namespace/{name}", writeBody(a, a.storeNamespace))
}

func (a *API) listNamespaces(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	name := func(n *fleet.Namespace) string { return n.Name }
	answer, err := page(r, filterByPrefix(q, v.Namespaces(), name), name, unchangedItem[*fleet.Namespace])
	return answer, v.TableIndex("namespaces"), err
}

func needNamespace(v *state.View, r *http.Request) (*fleet.Namespace, error) {
	name := r.PathValue("name")
	n, ok := v.Namespace(name)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotFound, "namespace %q not found", name)
	}
	return n, nil
}

func (a *API) readNamespace(_ *state.View, _ *http.Request, _ query, n *fleet.Namespace) (any, fleet.Index, error) {
	return n, max(n.ModifyIndex, 1), nil
}

// checkUnsupported refuses the fields of a request that Skerry does not support.
func checkUnsupported(req *api.NamespaceRequest) error {
	name := ""
	given := func(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
	switch {
	case req.Quota != "":
		name = "Quota"
	case given(req.NodePoolConfiguration):
		name = "NodePoolConfiguration"
	case given(req.VaultConfiguration):
		name = "VaultConfiguration"
	case given(req.ConsulConfiguration):
		name = "ConsulConfiguration"
	default:
		return nil
	}
	return fleet.Errorf(fleet.CodeUnsupported, "store namespace %q: %s is not supported", req.Name, name).WithHint("leave it out")
}

// storeNamespace makes a namespace, or replaces what is said of it.
func (a *API) storeNamespace(r *http.Request, req api.NamespaceRequest) (any, fleet.Index, error) {
	if name := r.PathValue("name"); name != "" {
		if req.Name != "" && req.Name != name {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store namespace %q: the path names %q", req.Name, name)
		}
		req.Name = name
	}
	if err := validate.Namespace(&req.Namespace); err != nil {
		return nil, 0, err
	}
	if err := checkUnsupported(&req); err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.NamespaceStore{Namespace: req.Namespace}, indexAnswer)
}

func (a *API) deleteNamespace(r *http.Request) (any, fleet.Index, error) {
	return commitAnswer(a, r, state.NamespaceDelete{Name: r.PathValue("name")}, indexAnswer)
}

// intoNamespace gives a job the namespace of the request that brings it, where that
// names one beside the default: what a client is told on its command line wins over
// what is in the file.
func intoNamespace(r *http.Request, job *fleet.Job) {
	if ns := r.URL.Query().Get("namespace"); ns != "" && ns != fleet.DefaultNamespace {
		job.Namespace = ns
	}
}

// namespaceProblems says why a job cannot be in its namespace. Where this hub thinks
// so, it looks again when it has caught up: the namespace may be a moment old.
func (a *API) namespaceProblems(r *http.Request, job *fleet.Job) fleet.Problems {
	if job.Namespace == "" { // it could not be read
		return nil
	}
	ps := namespaceAdmission(a.cfg.State.View(), job)
	if len(ps) > 0 && a.cfg.Cluster.CatchUp(r.Context()) == nil {
		ps = namespaceAdmission(a.cfg.State.View(), job)
	}
	return ps
}

func namespaceAdmission(v *state.View, job *fleet.Job) fleet.Problems {
	ns, ok := v.Namespace(job.Namespace)
	if !ok {
		return fleet.Problems{{
			Path: "Namespace", Message: fmt.Sprintf("there is no namespace %q", job.Namespace),
			Hint: "skerry namespace apply makes one; skerry namespace list shows those that there are",
		}}
	}
	return validate.NamespaceAdmits(ns, job)
}
