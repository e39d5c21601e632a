package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/access"
	"skerry/hub/state"
)

// requestSecret returns the secret of the request's token, from its own header or from Authorization: Bearer; "": there
// is none.
func requestSecret(r *http.Request) string {
	if secret := r.Header.Get(api.TokenHeader); secret != "" {
		return strings.TrimSpace(secret)
	}
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// accessEnabled tells whether access control is on.
func (a *API) accessEnabled() bool {
	return a.cfg.Access != nil && a.cfg.Access.Enabled(a.cfg.State.View())
}

// grant is what one request may do: the rules of its token, and what its endpoint requires. A nil grant allows
// nothing. It belongs to the goroutine of its request.
type grant struct {
	actor    *access.Actor
	rules    *acl.ACL // of the actor
	requires requirement
	known    map[object]bool // answers of allowsObject
	used     []object        // objects that were looked up, and that the token must be good for until the request ends
}

// object is what rules of policies are about: a namespace, a variable, a node pool, or the site of a node.
type object struct {
	kind acl.Kind
	name string
	path string // of a variable in the namespace name
}

// grantKey is the key of the grant in a request's context.
type grantKey struct{}

// grantOf returns the grant of a request; nil, which allows nothing: its endpoint is public.
func grantOf(r *http.Request) *grant {
	g, _ := r.Context().Value(grantKey{}).(*grant)
	return g
}

// unrestricted is the actor of requests where access control is off, nobody that of public endpoints.
var (
	unrestricted = &access.Actor{ACL: acl.Management}
	nobody       = &access.Actor{ACL: acl.New()}
)

// actorOf returns who sent a request that guardEndpoint lets through.
func actorOf(r *http.Request) *access.Actor {
	if g := grantOf(r); g != nil {
		return g.actor
	}
	return nobody
}

// requireManagement returns an error unless the request has a management token. Handlers ask it where their endpoint does
// not require that of every request.
func requireManagement(r *http.Request) error {
	if rules := actorOf(r).ACL; !rules.IsManagement() {
		return refusal(rules, acl.Requirement{Kind: acl.KindManagement})
	}
	return nil
}

// guardEndpoint returns what serves an endpoint to those requests whose tokens give what it requires. Where that depends
// on an object, the handler asks checkObject.
func (a *API) guardEndpoint(e endpoint) http.HandlerFunc {
	if e.requires.of == ofNothing {
		return e.serve
	}
	return func(w http.ResponseWriter, r *http.Request) {
		actor, err := unrestricted, error(nil)
		if a.cfg.Access != nil {
			actor, err = a.cfg.Access.Resolve(r.Context(), requestSecret(r))
		}
		g := &grant{requires: e.requires}
		noteActor(r, actor)
		if err == nil {
			err = g.useActor(r, actor)
		}
		if err != nil {
			a.writeError(w, err)
			return
		}
		ctx := context.WithValue(r.Context(), grantKey{}, g)
		e.serve(w, r.WithContext(state.WithRecheck(ctx, func(ctx context.Context) error {
			if err := a.cfg.Cluster.CatchUp(ctx); err != nil {
				return err
			}
			return a.renewGrant(r, g, a.cfg.State.View())
		})))
	}
}

// renewGrant resolves the request's token again, and checks what was allowed before. A token may end, or lose a policy,
// while a request waits. What the token depends on is read from the view.
func (a *API) renewGrant(r *http.Request, g *grant, v *state.View) error {
	if g == nil || a.cfg.Access == nil {
		return nil
	}
	actor, err := a.cfg.Access.ResolveIn(v, requestSecret(r))
	if err != nil {
		return err
	}
	return g.useActor(r, actor)
}

// useActor makes the grant that of an actor. It fails if the actor lacks what the request needs or has used already.
func (g *grant) useActor(r *http.Request, actor *access.Actor) error {
	if g.rules != actor.ACL {
		g.rules, g.known = actor.ACL, nil
	}
	g.actor = actor
	if err := g.requires.checkRequest(g.rules, r); err != nil {
		return err
	}
	for _, o := range g.used {
		if !g.allowsObject(o) {
			return g.refuseObject(o)
		}
	}
	return nil
}

// checkRequest checks what can be checked before the handler looks anything up.
func (q requirement) checkRequest(rules *acl.ACL, r *http.Request) error {
	missing := acl.Requirement{Kind: q.kind}
	if q.kind == acl.KindNamespace && q.of != ofObject {
		missing.Name = requestNamespace(r)
	}
	allowed := rules.IsManagement()
	switch q.of {
	case ofToken:
		return nil // the request has none, or a valid one
	case ofObject:
		if !rules.AllowsNothing() {
			return nil
		}
	case ofAnswer:
		allowed = q.kind == "" && !rules.AllowsNothing()
		for _, c := range q.any {
			allowed = allowed || rules.AllowsAny(q.kind, c) || q.kind == acl.KindNode && rules.AllowsAny(acl.KindSite, c)
		}
	case ofRequest, ofServices, ofCluster:
		for _, c := range q.sufficientCapabilities() {
			missing.Capability = c
			allowed = allowed || rules.Allows(missing)
		}
	}
	if allowed {
		return nil
	}
	if len(q.any) > 0 {
		missing.Capability = q.any[0]
	}
	if q.of == ofAnswer && q.kind == acl.KindNodePool {
		missing.Name = "*"
	}
	return refusal(rules, missing)
}

// refusal returns the error for a request whose token lacks what it requires. It names that, and the rule that would
// give it, only where the token may know of the object.
func refusal(rules *acl.ACL, missing acl.Requirement) error {
	named := missing.Name != "" && missing.Name != "*"
	if missing.Kind == "" || rules.AllowsNothing() || named && !rules.AllowsSome(missing.Kind, missing.Name) {
		return fleet.Errorf(fleet.CodeForbidden, "Permission denied")
	}
	e := fleet.Errorf(fleet.CodeForbidden, "Permission denied: this needs %s", missing)
	if rule := missing.Rule(); rule != "" {
		e = e.WithHint("a policy of the token needs the rule: %s", rule)
	}
	return e
}

// capabilitiesOn returns the capabilities, one of which the grant needs on objects of a kind: those of the endpoint, or
// what reading such an object needs where the endpoint is about objects of another kind.
func (g *grant) capabilitiesOn(kind acl.Kind) []acl.Capability {
	switch {
	case len(g.requires.any) > 0 && (g.requires.kind == kind || g.requires.kind == acl.KindNode && kind == acl.KindSite):
		return g.requires.sufficientCapabilities()
	case kind == acl.KindNamespace:
		return readJob
	case kind == acl.KindVariables:
		return listAny
	}
	return readAny
}

var (
	readJob = []acl.Capability{acl.ReadJob}
	readAny = []acl.Capability{acl.Read}
	listAny = []acl.Capability{acl.List}
)

// allowsObject reports whether the token gives what the request needs on an object.
func (g *grant) allowsObject(o object) bool {
	switch {
	case g == nil:
		return false
	case g.rules.IsManagement():
		return true
	}
	allowed, known := g.known[o]
	if known {
		return allowed
	}
	for _, c := range g.capabilitiesOn(o.kind) {
		allowed = allowed || g.rules.Allows(acl.Requirement{Kind: o.kind, Name: o.name, Path: o.path, Capability: c})
	}
	if g.known == nil {
		g.known = map[object]bool{}
	}
	g.known[o] = allowed
	return allowed
}

// allowsItem reports whether an item may be part of the request's answer. Items of an unknown type may not.
func (g *grant) allowsItem(item any) bool {
	switch {
	case g == nil:
		return false
	case g.rules.IsManagement():
		return true
	}
	switch it := item.(type) {
	case *fleet.Namespace:
		return g.rules.AllowsSome(acl.KindNamespace, it.Name)
	case *fleet.Revocation, *state.JoinToken:
		return g.requires.of == ofCluster // it was checked
	case *fleet.ACLPolicy, *fleet.ACLRole:
		return g.requires.of == ofToken // the handler lists the token's own
	}
	o, known := objectOf(item)
	return known && g.allowsObject(o)
}

// objectOf returns the object of rules that an item belongs to.
func objectOf(item any) (o object, known bool) {
	namespace := func(name string) (object, bool) { return object{kind: acl.KindNamespace, name: name}, true }
	switch it := item.(type) {
	case *fleet.Job:
		return namespace(it.Namespace)
	case *fleet.Alloc:
		return namespace(it.Namespace)
	case *state.ExposedAlloc:
		return namespace(it.Namespace)
	case *fleet.Evaluation:
		return namespace(it.Namespace)
	case *fleet.Deployment:
		return namespace(it.Namespace)
	case *fleet.Prefetch:
		return namespace(it.Namespace)
	case *fleet.Volume:
		return namespace(it.Namespace)
	case *fleet.ServiceRegistration:
		return namespace(it.Namespace)
	case *api.ScalingPolicy:
		return namespace(it.Namespace)
	case *fleet.Node:
		return object{kind: acl.KindSite, name: it.AtSite()}, true
	case *state.Exposure:
		return object{kind: acl.KindSite, name: it.Site}, true
	case *fleet.Pool:
		return object{kind: acl.KindNodePool, name: it.Name}, true
	case fleet.VariableMeta:
		return object{acl.KindVariables, it.Namespace, it.Path}, true
	}
	return object{}, false
}

// checkObject checks an object that the request's handler has looked up. A token that may not know of it gets the error
// missing, as for one that does not exist.
func (g *grant) checkObject(item any, missing *fleet.Error) error {
	if g == nil {
		return missing
	}
	o, known := objectOf(item)
	switch {
	case known && g.allowsObject(o):
		if !slices.Contains(g.used, o) {
			g.used = append(g.used, o)
		}
		return nil
	case known && g.rules.AllowsSome(o.kind, o.name):
		return g.refuseObject(o)
	}
	return missing
}

// refuseKnown returns the refusal for an object of which the token may know, but which it may not use; else nil. Lists
// of an object's parts use it: they are empty for one that does not exist.
func (g *grant) refuseKnown(item any) error {
	o, known := objectOf(item)
	if g == nil || !known || g.allowsObject(o) || !g.rules.AllowsSome(o.kind, o.name) {
		return nil
	}
	return g.refuseObject(o)
}

// checkNamed checks an object that the request names, before it is looked up.
func (g *grant) checkNamed(kind acl.Kind, name string) error {
	return g.checkNamedObject(object{kind: kind, name: name})
}

func (g *grant) checkNamedObject(o object) error {
	if !g.allowsObject(o) {
		return g.refuseObject(o)
	}
	return nil
}

// refuseObject returns the error for an object on which the token lacks what the request needs.
func (g *grant) refuseObject(o object) error {
	if g == nil {
		return fleet.Errorf(fleet.CodeForbidden, "Permission denied")
	}
	return refusal(g.rules, acl.Requirement{Kind: o.kind, Name: o.name, Path: o.path, Capability: g.capabilitiesOn(o.kind)[0]})
}

// tokenCheckTime is how often a stream checks that its token has not expired.
const tokenCheckTime = 10 * time.Second

// whileGranted returns the request with a context that ends when the token no longer gives what the request has used,
// and a function that ends the check. Streams use it once their objects are checked.
func (a *API) whileGranted(r *http.Request) (*http.Request, func()) {
	g := grantOf(r)
	if a.cfg.Access == nil || g == nil {
		return r, func() {}
	}
	ctx, cancel := context.WithCancel(r.Context())
	own := &grant{requires: g.requires, used: g.used}
	var checking sync.WaitGroup
	checking.Go(func() {
		defer cancel()
		for ctx.Err() == nil {
			v := a.cfg.State.Watch()
			if err := a.renewGrant(r, own, v); err != nil {
				a.cfg.Log.Info("a stream ends: its token is no longer good for it", "path", r.URL.Path, "client", r.RemoteAddr, "error", err)
				return
			}
			wait, done := context.WithTimeout(ctx, tokenCheckTime)
			_ = v.Changed(wait) // an error: the time is over
			done()
		}
	})
	return r.WithContext(ctx), func() { cancel(); checking.Wait() }
}
