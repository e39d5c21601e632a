package api

import (
	"net/http"
	"net/url"
	"strings"

	"skerry/fleet"
)

// catchAllPattern is the router's pattern of requests that no other pattern fits.
const catchAllPattern = "/"

// serveUnrouted serves requests that fit no route: it stores a node pool, answers 405 if the path has other methods,
// tries again with slashes in a job's id escaped, and else answers 404.
func (a *API) serveUnrouted(w http.ResponseWriter, r *http.Request) {
	if name, ok := storedPool(r); ok {
		r.SetPathValue("name", name)
		a.byRoute[r.Method+" /v1/node/pool/{name}"](w, r)
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

// storedPool returns the node pool that a PUT or POST of /v1/node/pool/{name} stores. This path cannot be a route:
// it conflicts with /v1/node/{id}/drain.
func storedPool(r *http.Request) (name string, ok bool) {
	name, ok = strings.CutPrefix(r.URL.Path, "/v1/node/pool/")
	writes := r.Method == http.MethodPut || r.Method == http.MethodPost
	return name, ok && writes && name != "" && !strings.Contains(name, "/")
}

// noSuchEndpoint answers 404.
func (a *API) noSuchEndpoint(w http.ResponseWriter, r *http.Request) {
	a.writeError(w, fleet.Errorf(fleet.CodeNotFound, "no such endpoint: %s %s", r.Method, r.URL.Path))
}

// allowedMethods returns the other methods that have a route for the request's path.
func (a *API) allowedMethods(r *http.Request) []string {
	var served []string
	for _, m := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		if m != r.Method && a.hasRoute(&http.Request{Method: m, Host: r.Host, URL: r.URL}) {
			served = append(served, m)
		}
	}
	return served
}

// hasRoute reports whether a request fits a route.
func (a *API) hasRoute(r *http.Request) bool {
	_, pattern := a.mux.Handler(r)
	return pattern != catchAllPattern
}

// withEscapedJobID returns the request with the slashes in a job's id escaped (ids of dispatched and periodic jobs
// have some), for the shortest id that gives a path with a route. nil: the path is not one of a job, or none has a
// route.
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
