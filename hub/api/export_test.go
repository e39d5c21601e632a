package api

import (
	"strings"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
	"skerry/hub/workload"
)

// Endpoint is the declaration of an endpoint.
type Endpoint struct {
	Methods  []string // none: all
	Path     string
	Routes   []string // as the router has them
	Requires string
	Kind     acl.Kind
	Any      []acl.Capability
}

// Endpoints lists the declarations of all endpoints.
func (a *API) Endpoints() []Endpoint {
	var all []Endpoint
	for _, e := range a.endpoints {
		all = append(all, Endpoint{strings.Fields(e.methods), e.path, e.routerPatterns(), e.requires.String(), e.requires.kind, e.requires.any})
	}
	return all
}

// ServeUndeclared adds an endpoint that does not declare what it requires.
func (a *API) ServeUndeclared() error {
	return a.serveEndpoints([]endpoint{{"GET", "/v1/undeclared", requirement{}, a.serveMetrics}})
}

// KeyCache has the public keys of all tokens that may be valid.
type KeyCache = keyCache

// AllKeys returns the keys of the hubs, and of the edges that may sign, and the index of their tables.
func (k *keyCache) AllKeys(v *state.View) ([]workload.PublicKey, fleet.Index) { return k.allKeys(v) }

// These functions are tested by themselves.
var (
	HubKeys      = hubKeys
	NodeKeys     = nodeKeys
	ExecFrames   = execFrames
	CloseText    = closeText
	IsIgnoredKey = func(key string) bool { return isIgnored("", key) }
	WhyFixed     = whyFixed
)

// AuditRules says which routes are in the audit, of those that have a rule.
var AuditRules = func() map[string]bool {
	audited := map[string]bool{}
	for route, rule := range auditRules {
		audited[route] = rule != auditRefusals
	}
	return audited
}()

// PageOfKeys cuts a page of a list of keys, in any order, which begins at a key ("": at the first). kept is for how many
// entries there was room.
func PageOfKeys(keys []string, perPage int, from string, reverse bool) (page []string, next string, kept int) {
	c := pageCutter[string]{pages: pages{perPage: perPage, from: from, resumed: from != "", reverse: reverse}}
	for _, key := range keys {
		_ = c.addItem(key, key) // it fails for filters alone
	}
	page, next = c.cutEntries()
	if next != "" {
		next, _ = decodeToken(next, 0)
	}
	return page, next, cap(c.entries)
}

// RefuseUnknownKeys refuses keys for which a type has no field, as the endpoints do.
func RefuseUnknownKeys(b []byte, v any) error {
	keys, err := readBodyKeys("", b, v)
	if err != nil {
		return err
	}
	return keys.refuseUnknown()
}
