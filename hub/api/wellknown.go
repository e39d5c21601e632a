package api

import (
	"net/http"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/workload"
)

// Paths of the documents with which others verify the identities of workloads.
const (
	keySetPath    = "/.well-known/jwks.json"
	discoveryPath = "/.well-known/openid-configuration"
)

// keySetMaxAge is how long verifiers may keep the documents. A key that they do not know has them ask again.
const keySetMaxAge = "max-age=300"

func (a *API) wellKnownEndpoints() []endpoint {
	return []endpoint{
		{"GET", keySetPath, public, a.serveKeySet},
		{"GET", discoveryPath, public, a.serveDiscovery},
	}
}

// serveKeySet answers with the public keys of the identities of workloads, from this hub's own state: verifiers need them
// also while there is no leader.
func (a *API) serveKeySet(w http.ResponseWriter, r *http.Request) {
	v := a.cfg.State.View()
	a.setAnswerHeaders(w, v.TableIndex("root_keys"))
	w.Header().Set("Cache-Control", keySetMaxAge)
	a.writeAnswer(w, r, workload.KeySet(v))
}

// serveDiscovery answers with what OIDC clients look for at an issuer.
func (a *API) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Issuer == "" {
		a.writeError(w, fleet.Errorf(fleet.CodeNotFound, "OIDC discovery is off: the hub has no issuer").
			WithHint("start all hubs with --oidc-issuer URL, at which clients reach them; %s has the keys without it", keySetPath))
		return
	}
	w.Header().Set("Cache-Control", keySetMaxAge)
	a.writeAnswer(w, r, api.OIDCDiscovery{
		Issuer: a.cfg.Issuer, JWKSURI: strings.TrimSuffix(a.cfg.Issuer, "/") + keySetPath,
		SigningAlgorithms: []string{workload.Algorithm}, ResponseTypes: []string{"code"}, SubjectTypes: []string{"public"},
	})
}
