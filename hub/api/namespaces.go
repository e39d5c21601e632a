package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/admission"
	"skerry/hub/state"
)

func (a *API) namespaceEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/namespaces", filteredAnswer, a.readHandler(a.listNamespaces)},
		{"GET", "/v1/namespace/{name}", filteredAnswer, readObject(a, "namespaces", needNamespace, a.readNamespace)},
		{"DELETE", "/v1/namespace/{name}", managementOnly, a.writeHandler(a.deleteNamespace)},
		{writes, "/v1/namespaces", managementOnly, writeBody(a, a.storeNamespace)},
		{writes, "/v1/namespace", managementOnly, writeBody(a, a.storeNamespace)},
		{writes, "/v1/namespace/{name}", managementOnly, writeBody(a, a.storeNamespace)},
	}
}

// listNamespaces lists the namespaces by name.
func (a *API) listNamespaces(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	name := func(n *fleet.Namespace) string { return n.Name }
	answer, err := page(r, filterByPrefix(q, v.Namespaces(), name), name, unchangedItem[*fleet.Namespace])
	return answer, v.TableIndex("namespaces"), err
}

// needNamespace returns the namespace whose name is in the request's path. CodeNotFound: the state does not have it.
func needNamespace(v *state.View, r *http.Request) (*fleet.Namespace, error) {
	name := r.PathValue("name")
	n, ok := v.Namespace(name)
	if !ok || !grantOf(r).allowsItem(n) {
		return nil, fleet.Errorf(fleet.CodeNotFound, "namespace %q not found", name)
	}
	return n, nil
}

// readNamespace answers with a namespace.
func (a *API) readNamespace(_ *state.View, _ *http.Request, _ query, n *fleet.Namespace) (any, fleet.Index, error) {
	return n, max(n.ModifyIndex, 1), nil
}

// checkUnsupported returns an error if the request has a field of Nomad that Skerry does not support.
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

// storeNamespace creates a namespace, or replaces the one of that name.
func (a *API) storeNamespace(r *http.Request, req api.NamespaceRequest) (any, fleet.Index, error) {
	if name := r.PathValue("name"); name != "" {
		if req.Name != "" && req.Name != name {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store namespace %q: the path names %q", req.Name, name)
		}
		req.Name = name
	}
	if err := admission.CheckNamespace(&req.Namespace); err != nil {
		return nil, 0, err
	}
	if err := checkUnsupported(&req); err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, state.NamespaceStore{Namespace: req.Namespace}, indexAnswer)
}

// deleteNamespace removes a namespace. One with jobs that are not dead is refused.
func (a *API) deleteNamespace(r *http.Request) (any, fleet.Index, error) {
	return commitAnswer(a, r, state.NamespaceDelete{Name: r.PathValue("name")}, indexAnswer)
}

// intoNamespace sets the job's namespace to that of the request, if the request names one other than the default. So
// the namespace of a command line wins over the one in the job file.
func intoNamespace(r *http.Request, job *fleet.Job) {
	if ns := r.URL.Query().Get("namespace"); ns != "" && ns != fleet.DefaultNamespace {
		job.Namespace = ns
	}
}

// namespaceProblems returns why the job's namespace does not exist or does not admit the job; nil: it does. It
// reports no problem before this hub has caught up with the leader, since the namespace may be new.
func (a *API) namespaceProblems(r *http.Request, job *fleet.Job) fleet.Problems {
	if job.Namespace == "" { // it was not decoded, and its problem is reported
		return nil
	}
	ps := namespaceAdmission(a.cfg.State.View(), job)
	if len(ps) > 0 && a.cfg.Cluster.CatchUp(r.Context()) == nil {
		ps = namespaceAdmission(a.cfg.State.View(), job)
	}
	return ps
}

// namespaceAdmission returns why the job's namespace does not exist in v or does not admit the job; nil: it does.
func namespaceAdmission(v *state.View, job *fleet.Job) fleet.Problems {
	ns, ok := v.Namespace(job.Namespace)
	if !ok {
		return fleet.Problems{{
			Path: "Namespace", Message: fmt.Sprintf("there is no namespace %q", job.Namespace),
			Hint: "create it with skerry namespace apply NAME; skerry namespace list shows the existing ones",
		}}
	}
	return admission.NamespaceAdmits(ns, job)
}
