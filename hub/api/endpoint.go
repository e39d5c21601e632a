package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"skerry/fleet/acl"
)

// endpoint declares one endpoint: how clients ask for it, what it requires, and what serves it. A literal
// without field names does not compile if one of them is missing.
type endpoint struct {
	methods  string // separated by blanks; "": all
	path     string // as http.ServeMux has it
	requires requirement
	serve    http.HandlerFunc
}

// writes are the methods of changes. PUT and POST mean the same here.
const writes = "PUT POST"

// requirement says what the token of a request must give: one of some capabilities on objects of a kind.
type requirement struct {
	kind acl.Kind         // kind of the objects
	any  []acl.Capability // one of these is enough
	of   subject
}

// subject says which object a requirement is about.
type subject uint8

const (
	undeclared subject = iota
	ofNothing          // everybody is served
	ofCluster          // the whole cluster: rules of the kind have no names
	ofRequest          // the namespace of the request ("*": of each object in the answer)
	ofServices         // as ofRequest; the identity of a workload may read the services of its namespace
	ofObject           // the object that the handler looks up
	ofToken            // the request's token itself
	ofAnswer           // each object of the answer, by its own kind: others are left out
)

// Requirements that name no capability: public endpoints serve everybody, managementOnly needs a management token, ownToken
// is about what the request's token is and has, and filteredAnswer leaves out of the answer what the token may not know.
var (
	public         = requirement{of: ofNothing}
	managementOnly = requirement{kind: acl.KindManagement, of: ofCluster}
	ownToken       = requirement{of: ofToken}
	filteredAnswer = requirement{of: ofAnswer}
)

// onAgents, onOperator and onNodes require a capability on all agents, on the cluster, and on all nodes.
func onAgents(capability acl.Capability) requirement {
	return requirement{acl.KindAgent, []acl.Capability{capability}, ofCluster}
}

func onOperator(capability acl.Capability) requirement {
	return requirement{acl.KindOperator, []acl.Capability{capability}, ofCluster}
}

func onNodes(capability acl.Capability) requirement {
	return requirement{acl.KindNode, []acl.Capability{capability}, ofCluster}
}

// onNode and onPool require a capability on the node or node pool that the handler looks up.
func onNode(capability acl.Capability) requirement {
	return requirement{acl.KindNode, []acl.Capability{capability}, ofObject}
}

func onPool(capability acl.Capability) requirement {
	return requirement{acl.KindNodePool, []acl.Capability{capability}, ofObject}
}

// inRequestNamespace requires one of the capabilities in the request's namespace, inObjectNamespace in that of the object
// which the handler looks up.
func inRequestNamespace(any ...acl.Capability) requirement {
	return requirement{acl.KindNamespace, any, ofRequest}
}

func inObjectNamespace(any ...acl.Capability) requirement {
	return requirement{acl.KindNamespace, any, ofObject}
}

// onServices requires read-job in the request's namespace of a token, and nothing of a workload of that namespace.
var onServices = requirement{acl.KindNamespace, []acl.Capability{acl.ReadJob}, ofServices}

// onListed requires a capability on some object of a kind. Other objects are left out of the answer.
func onListed(kind acl.Kind, capability acl.Capability) requirement {
	return requirement{kind, []acl.Capability{capability}, ofAnswer}
}

// onVariable requires a capability on the path of a variable, which the request names.
func onVariable(capability acl.Capability) requirement {
	return requirement{acl.KindVariables, []acl.Capability{capability}, ofObject}
}

// sufficientCapabilities are those of which one is enough, with those that no policy can grant.
func (q requirement) sufficientCapabilities() []acl.Capability {
	if q.of == ofServices {
		return append(slices.Clone(q.any), acl.ListServices)
	}
	return q.any
}

// String returns the requirement as the documentation shows it; "": it is not declared.
func (q requirement) String() string {
	switch {
	case q.of == undeclared:
		return ""
	case q.of == ofNothing:
		return "none"
	case q.of == ofToken:
		return "the token itself, or management"
	case q.kind == "":
		return "any; the answer has what the token may know of"
	case len(q.any) == 0:
		return string(q.kind)
	}
	var names []string
	for _, c := range q.any {
		names = append(names, string(c))
	}
	if q.of == ofServices {
		names = append(names, "a workload of the namespace")
	}
	return string(q.kind) + ":" + strings.Join(names, " or ")
}

// serveEndpoints makes the router of endpoints. It fails for an endpoint that does not declare what it requires.
func (a *API) serveEndpoints(endpoints []endpoint) error {
	a.endpoints, a.byRoute = endpoints, map[string]http.HandlerFunc{}
	for _, e := range endpoints {
		if e.requires.of == undeclared {
			return fmt.Errorf("make the HTTP API: the endpoint %s %s does not declare what it requires", e.methods, e.path)
		}
		for _, route := range e.routerPatterns() {
			a.byRoute[route] = applyAuditRule(route, a.guardEndpoint(e))
			if !ambiguous[route] {
				a.mux.HandleFunc(route, a.byRoute[route])
			}
		}
	}
	a.mux.HandleFunc("GET /v1/node/{id}/{what}", a.ofNode)
	a.mux.HandleFunc(catchAllPattern, a.serveUnrouted)
	return nil
}

// routerPatterns returns the router's patterns of an endpoint, one for each method.
func (e endpoint) routerPatterns() []string {
	if e.methods == "" {
		return []string{e.path}
	}
	var all []string
	for _, method := range strings.Fields(e.methods) {
		all = append(all, method+" "+e.path)
	}
	return all
}

// ambiguous are the routes that the router refuses beside others: /v1/node/pool/history fits two. ofNode and
// serveUnrouted call what serves them.
var ambiguous = map[string]bool{
	"GET /v1/node/{id}/allocations": true, "GET /v1/node/{id}/history": true, "GET /v1/node/{id}/exposure": true,
	"GET /v1/node/pool/{name}": true, "PUT /v1/node/pool/{name}": true, "POST /v1/node/pool/{name}": true,
}

// ofNode serves the ambiguous routes of GET.
func (a *API) ofNode(w http.ResponseWriter, r *http.Request) {
	what := r.PathValue("what")
	if r.PathValue("id") == "pool" {
		r.SetPathValue("name", what)
		a.byRoute["GET /v1/node/pool/{name}"](w, r)
		return
	}
	if part, ok := a.byRoute["GET /v1/node/{id}/"+what]; ok {
		part(w, r)
		return
	}
	a.serveUnrouted(w, r)
}
