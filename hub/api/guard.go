package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/access"
)

type actorKey struct{}

// unrestricted is the actor of requests where access control is off.
var unrestricted = &access.Actor{ACL: acl.Management}

// actorOf returns who sent a request that guardEndpoint lets through.
func actorOf(r *http.Request) *access.Actor {
	if actor, ok := r.Context().Value(actorKey{}).(*access.Actor); ok {
		return actor
	}
	return unrestricted
}

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

// guardEndpoint serves an endpoint to those who may have it.
func (a *API) guardEndpoint(e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if a.cfg.Access == nil || e.requires.of == ofNothing {
			e.serve(w, r)
			return
		}
		actor, err := a.cfg.Access.Resolve(r.Context(), requestSecret(r))
		if err == nil {
			noteActor(r, actor)
			err = checkEndpoint(actor.ACL, e, r)
		}
		if err != nil {
			a.writeError(w, err)
			return
		}
		e.serve(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, actor)))
	}
}

// checkEndpoint returns why an ACL does not allow a request. Where the declaration of an endpoint alone does not say
// which object it is about, a management token is needed, except that the ACL's own endpoints check it themselves.
func checkEndpoint(allowed *acl.ACL, e endpoint, r *http.Request) error {
	if allowed.IsManagement() {
		return nil
	}
	name := ""
	switch {
	case e.requires.of == ofAnswer && strings.HasPrefix(e.path, "/v1/acl/"):
		return nil
	case e.requires.of == ofCluster && len(e.requires.any) > 0:
	case e.requires.of == ofRequest && r.Method == http.MethodGet:
		if name = r.URL.Query().Get("namespace"); name == "" {
			name = fleet.DefaultNamespace
		}
	default:
		return refuseRequirement(allowed, acl.Requirement{Kind: acl.KindManagement})
	}
	if name == "*" {
		return refuseRequirement(allowed, acl.Requirement{Kind: acl.KindManagement})
	}
	needs := acl.Requirement{Kind: acl.Kind(e.requires.kind), Name: name}
	if slices.ContainsFunc(e.requires.any, func(c string) bool {
		needs.Capability = acl.Capability(c)
		return allowed.Allows(needs)
	}) {
		return nil
	}
	needs.Capability = acl.Capability(e.requires.any[0])
	return refuseRequirement(allowed, needs)
}

// refuseRequirement returns the error for a requirement that an ACL does not allow. It names what is missing if the ACL
// allows anything on the object, and else not even that the object exists.
func refuseRequirement(allowed *acl.ACL, needs acl.Requirement) error {
	switch {
	case needs.Kind == acl.KindManagement:
		return fleet.Errorf(fleet.CodeForbidden, "Permission denied").WithHint("this needs a management token")
	case !allowed.AllowsSome(needs.Kind, needs.Name):
		return fleet.Errorf(fleet.CodeForbidden, "Permission denied")
	}
	return fleet.Errorf(fleet.CodeForbidden, "Permission denied: it needs %s", needs).WithHint("this rule in a policy of the token gives it: %s", needs.Rule())
}

// requireManagement returns an error unless the request has a management token.
func requireManagement(r *http.Request) error {
	if actorOf(r).ACL.IsManagement() {
		return nil
	}
	return refuseRequirement(actorOf(r).ACL, acl.Requirement{Kind: acl.KindManagement})
}
