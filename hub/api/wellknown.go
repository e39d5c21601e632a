package api

import (
	"net/http"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/workload"
	"skerry/syncproto/nodekey"
)

// Paths of the documents with which others verify the identities of workloads.
const (
	keySetPath     = "/.well-known/jwks.json"
	hubKeySetPath  = "/.well-known/hub-jwks.json"
	discoveryPath  = "/.well-known/openid-configuration"
	nodeIssuerPath = "/v1/node/{id}"
)

// keySetMaxAge is how long verifiers may keep the documents. A key that they do not know has them ask again.
const keySetMaxAge = "max-age=300"

func (a *API) wellKnownEndpoints() []endpoint {
	return []endpoint{
		{"GET", keySetPath, public, a.serveKeySet},
		{"GET", hubKeySetPath, public, a.serveHubKeySet},
		{"GET", discoveryPath, public, a.serveDiscovery},
		{"GET", nodeIssuerPath + keySetPath, public, a.serveNodeKeySet},
		{"GET", nodeIssuerPath + discoveryPath, public, a.serveNodeDiscovery},
	}
}

// serveKeySet answers with the public keys of the identities of workloads, from this hub's own state: verifiers need them
// also while there is no leader.
func (a *API) serveKeySet(w http.ResponseWriter, r *http.Request) {
	v := a.cfg.State.View()
	keys, index := a.keys.allKeys(v)
	a.writeKeySet(w, r, index, keys)
}

// serveHubKeySet answers with the keys of the hubs alone, which the issuer of the hubs names: who trusts the hubs does not
// have to trust each edge.
func (a *API) serveHubKeySet(w http.ResponseWriter, r *http.Request) {
	v := a.cfg.State.View()
	a.writeKeySet(w, r, v.TableIndex("root_keys"), hubKeys(v))
}

// serveNodeKeySet answers with the key of one node's edge, if it may sign.
func (a *API) serveNodeKeySet(w http.ResponseWriter, r *http.Request) {
	v := a.cfg.State.View()
	a.writeKeySet(w, r, nodeKeysIndex(v), nodeKeys(v, fleet.NodeID(r.PathValue("id"))))
}

// writeKeySet answers with a set of keys.
func (a *API) writeKeySet(w http.ResponseWriter, r *http.Request, index fleet.Index, keys []workload.PublicKey) {
	a.setAnswerHeaders(w, index)
	w.Header().Set("Cache-Control", keySetMaxAge)
	a.writeAnswer(w, r, workload.KeySet(keys))
}

// serveDiscovery answers with what OIDC clients look for at the issuer of the hubs.
func (a *API) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	a.writeDiscovery(w, r, a.cfg.Issuer, strings.TrimSuffix(a.cfg.Issuer, "/")+hubKeySetPath, workload.Algorithm)
}

// serveNodeDiscovery answers with what OIDC clients look for at the issuer of a node's edge.
func (a *API) serveNodeDiscovery(w http.ResponseWriter, r *http.Request) {
	node := fleet.NodeID(r.PathValue("id"))
	if id, _ := a.cfg.State.View().PublishedIdentityKey(node); id == "" {
		a.writeError(w, fleet.Errorf(fleet.CodeNotFound, "node %s signs no identities", node))
		return
	}
	issuer := nodekey.Issuer(a.cfg.Issuer, node)
	a.writeDiscovery(w, r, issuer, issuer+keySetPath, nodekey.Algorithm)
}

// writeDiscovery answers with the description of an issuer.
func (a *API) writeDiscovery(w http.ResponseWriter, r *http.Request, issuer, keys, algorithm string) {
	if a.cfg.Issuer == "" {
		a.writeError(w, fleet.Errorf(fleet.CodeNotFound, "OIDC discovery is off: the hub has no issuer").
			WithHint("start all hubs with --oidc-issuer URL, at which clients reach them; %s has the keys without it", keySetPath))
		return
	}
	w.Header().Set("Cache-Control", keySetMaxAge)
	a.writeAnswer(w, r, api.OIDCDiscovery{
		Issuer: issuer, JWKSURI: keys, SigningAlgorithms: []string{algorithm}, ResponseTypes: []string{"code"}, SubjectTypes: []string{"public"},
	})
}
