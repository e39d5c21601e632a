package consultest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"skerry/edge/logins/loginstest"
)

// Method is an auth method of type jwt, with the rule that binds its tokens.
type Method struct {
	Keys     func() ([]byte, error) // JSON Web Key Set of the JWTs' issuer
	Audience string
	Claims   map[string]string // that a JWT must have
	TTL      time.Duration     // MaxTokenTTL; 0: tokens do not end
	Prefixes []string          // of keys that its tokens may read; nil: all
}

// aclToken is a token that a login has made.
type aclToken struct {
	method     string
	service    string // nomad_service of its JWT: the one that it may register
	meta       map[string]string
	made, ends time.Time
}

// acl is the part of an Agent about tokens and keys. Its fields are guarded by the agent's mu.
type acl struct {
	methods map[string]Method
	tokens  map[string]aclToken
	counter int
	pairs   map[string]string
	with    map[string]string // with which token services were registered, by their ids
	reads   int
}

// SetMethod makes an auth method, or replaces it.
func (a *Agent) SetMethod(name string, m Method) { a.withLock(func() { a.methods[name] = m }) }

// PutKey stores a value.
func (a *Agent) PutKey(key, value string) { a.withLock(func() { a.pairs[key] = value }) }

// DeleteKey removes a key.
func (a *Agent) DeleteKey(key string) { a.withLock(func() { delete(a.pairs, key) }) }

// RevokeAll ends all tokens.
func (a *Agent) RevokeAll() { a.withLock(func() { clear(a.tokens) }) }

// Tokens returns the tokens of logins that are valid now, in order.
func (a *Agent) Tokens() (all []string) {
	a.withLock(func() {
		for id := range a.tokens {
			if _, ok := a.validToken(id); ok {
				all = append(all, id)
			}
		}
	})
	slices.Sort(all)
	return all
}

// RegisteredWith returns the token with which a service was registered; "": with none, or that of the node.
func (a *Agent) RegisteredWith(id string) (token string) {
	a.withLock(func() { token = a.with[id] })
	return token
}

func (a *Agent) registeredWith(id, token string) {
	if a.with == nil {
		a.with = map[string]string{}
	}
	a.with[id] = token
}

func (a *Agent) validToken(id string) (aclToken, bool) {
	t, ok := a.tokens[id]
	return t, ok && (t.ends.IsZero() || time.Now().Before(t.ends))
}

// mayWriteService reports whether a request registers, with the token of a login, the service of that login, or tells about its checks.
func (a *Agent) mayWriteService(r *http.Request) bool {
	t, ok := a.validToken(r.Header.Get("X-Consul-Token"))
	return ok && t.service != "" && (strings.HasPrefix(r.URL.Path, "/v1/agent/service/register") || strings.HasPrefix(r.URL.Path, "/v1/agent/check/update/"))
}

// answerACL answers a request about tokens or keys, and reports whether it is one.
func (a *Agent) answerACL(w http.ResponseWriter, r *http.Request) bool {
	id := r.Header.Get("X-Consul-Token")
	t, valid := a.validToken(id)
	key, ofKeys := strings.CutPrefix(r.URL.Path, "/v1/kv/")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/acl/login":
		a.answerLogin(w, r)
		return true
	case !strings.HasPrefix(r.URL.Path, "/v1/acl/") && !ofKeys:
		return false
	case !valid:
		http.Error(w, "ACL not found", http.StatusForbidden)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/acl/logout":
		delete(a.tokens, id)
	case r.Method == http.MethodGet && r.URL.Path == "/v1/acl/token/self":
		writeJSON(w, t.asJSON(id))
	case r.Method == http.MethodGet && ofKeys:
		a.reads++
		a.answerKey(w, t, key, r.URL.Query().Has("recurse"))
	default:
		http.NotFound(w, r)
	}
	return true
}

// asJSON returns a token as the API has it.
func (t aclToken) asJSON(id string) map[string]any {
	body := map[string]any{"AccessorID": "a-" + id, "SecretID": id, "AuthMethod": t.method, "Local": true, "CreateTime": t.made, "Description": "token created via login"}
	if !t.ends.IsZero() {
		body["ExpirationTime"] = t.ends
	}
	return body
}

func (a *Agent) answerLogin(w http.ResponseWriter, r *http.Request) {
	var body struct {
		AuthMethod, BearerToken string
		Meta                    map[string]string
	}
	if err := decodeStrictly(r.Body, &body); err != nil {
		http.Error(w, fmt.Sprintf("Failed to decode request body: %v", err), http.StatusBadRequest)
		return
	}
	m, ok := a.methods[body.AuthMethod]
	if !ok {
		http.Error(w, fmt.Sprintf("rpc error making call: ACL not found: auth method %q not found", body.AuthMethod), http.StatusForbidden)
		return
	}
	keys, err := m.Keys()
	var claims map[string]any
	if err == nil {
		claims, err = loginstest.Check(body.BearerToken, keys, m.Audience, m.Claims, time.Now())
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("Permission denied: %v", err), http.StatusForbidden)
		return
	}
	a.counter++
	id := fmt.Sprintf("marked-token-%d", a.counter)
	service, _ := claims["nomad_service"].(string)
	t := aclToken{method: body.AuthMethod, service: service, meta: body.Meta, made: time.Now()}
	if m.TTL > 0 {
		t.ends = t.made.Add(m.TTL)
	}
	a.tokens[id] = t
	writeJSON(w, t.asJSON(id))
}

func (a *Agent) answerKey(w http.ResponseWriter, t aclToken, key string, recurse bool) {
	m := a.methods[t.method]
	if m.Prefixes != nil && !slices.ContainsFunc(m.Prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
		http.Error(w, "Permission denied: token lacks permission 'key:read' on "+fmt.Sprintf("%q", key), http.StatusForbidden)
		return
	}
	type pair struct {
		Key   string
		Value []byte
		Flags int
	}
	var found []pair
	for _, k := range slices.Sorted(maps.Keys(a.pairs)) {
		if k == key || recurse && strings.HasPrefix(k, key) {
			found = append(found, pair{k, []byte(a.pairs[k]), 0})
		}
	}
	if len(found) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found)
}
