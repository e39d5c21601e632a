package api

import (
	"net/http"
	"net/url"
	"strings"

	"skerry/fleet"
)

// catchAllPattern is the pattern of what no endpoint is for.
const catchAllPattern = "/"

// serveUnrouted answers what no endpoint is for: a path that is served by other methods, one of
// a job whose id has slashes that are not escaped, and what there is not.
func (a *API) serveUnrouted(w http.ResponseWriter, r *http.Request) {
	if name, ok := storedPool(r); ok {
		r.SetPathValue("name", name)
		writeBody(a, a.storePool)(w, r)
		return
	}
	if methods := a.allowedMethods(r); len(methods) > 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		a.writeErrorAs(w, http.StatusMethodNotAllowed, fleet.Errorf(fleet.CodeUnsupported, "%s does not support the method %s", r.URL.Path, r.Method).
			WithHint("use %s", strings.Join(methods, ", ")))
		return
	}
	if of := a.withEscapedJobID(r); of != nil {
		a.mux.ServeHTTP(w, of)
		return
	}
	a.noSuchEndpoint(w, r)
}

// storedPool is the pool that a request stores by its path: for the router this path and
// /v1/node/{id}/drain are in each other's way.
func storedPool(r *http.Request) (name string, ok bool) {
	name, ok = strings.CutPrefix(r.URL.Path, "/v1/node/pool/")
	writes := r.Method == http.MethodPut || r.Method == http.MethodPost
	return name, ok && writes && name != "" && !strings.Contains(name, "/")
}

func (a *API) noSuchEndpoint(w http.ResponseWriter, r *http.Request) {
	a.writeError(w, fleet.Errorf(fleet.CodeNotFound, "no such endpoint: %s %s", r.Method, r.URL.Path))
}

// allowedMethods are those by which a request's path is served.
func (a *API) allowedMethods(r *http.Request) []string {
	var served []string
	for _, m := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		if m != r.Method && a.hasRoute(&http.Request{Method: m, Host: r.Host, URL: r.URL}) {
			served = append(served, m)
		}
	}
	return served
}

func (a *API) hasRoute(r *http.Request) bool {
	_, pattern := a.mux.Handler(r)
	return pattern != catchAllPattern
}

// withEscapedJobID is the request that is meant where the id of a job stands in the path as it is:
// those of dispatched and periodic jobs have slashes. What follows the id is as long as
// there is an endpoint for; nil where the path is not one of a job.
func (a *API) withEscapedJobID(r *http.Request) *http.Request {
	const jobs = "/v1/job/"
	rest, ok := strings.CutPrefix(r.URL.Path, jobs)
	if !ok || rest == "" {
		return nil
	}
	for at := strings.IndexByte(rest, '/') + 1; at > 0 && at <= len(rest); {
		end := len(rest)
		if next := strings.IndexByte(rest[at:], '/'); next >= 0 {
			end = at + next
		}
		of := *r
		of.URL = &url.URL{Path: r.URL.Path, RawPath: jobs + url.PathEscape(rest[:end]) + (&url.URL{Path: rest[end:]}).EscapedPath(), RawQuery: r.URL.RawQuery}
		if a.hasRoute(&of) {
			return &of
		}
		at = end + 1
	}
	return nil
}
