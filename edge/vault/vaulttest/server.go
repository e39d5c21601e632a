// Package vaulttest has a Vault server in memory, for tests: it answers the requests that package vault sends as Vault's
// HTTP API is documented, checks JWTs by the keys of their issuer, and fails as a server does.
package vaulttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/edge/logins/loginstest"
)

// Role is a role of the JWT auth method.
type Role struct {
	Audience string
	Claims   map[string]string // bound claims
	TTL      time.Duration     // 0: its tokens do not end
	MaxTTL   time.Duration     // 0: they can be renewed for ever
	Fixed    bool              // its tokens cannot be renewed
	Paths    []string          // prefixes of what its tokens may read; nil: everything
}

// token is a client token.
type token struct {
	role      Role
	name      string // of the role
	namespace string
	made, end time.Time // end is zero for one that does not end
}

// lease is one of a dynamic secret.
type lease struct {
	token     string
	made, end time.Time
	ttl, max  time.Duration
}

// mount is a secrets engine.
type mount struct {
	version int // of a KV store; 0: makes another secret for each read
	data    map[string]map[string]any
	ttl     time.Duration
	max     time.Duration
}

// Server is a Vault. It is an http.Handler, and an http.RoundTripper that calls it without a network.
type Server struct {
	// Keys returns the JSON Web Key Set of the JWTs' issuer.
	Keys func() ([]byte, error)

	mu       sync.Mutex
	roles    map[string]Role
	mounts   map[string]mount
	tokens   map[string]token
	leases   map[string]lease
	counter  int
	failure  error // of the network; nil: there is none
	status   int   // that each request is answered with; 0: as it should be
	requests []string
}

// New makes a server that has nothing.
func New(keys func() ([]byte, error)) *Server {
	return &Server{Keys: keys, roles: map[string]Role{}, mounts: map[string]mount{}, tokens: map[string]token{}, leases: map[string]lease{}}
}

// SetRole makes a role, or replaces it.
func (s *Server) SetRole(name string, r Role) { s.withLock(func() { s.roles[name] = r }) }

// MountKV mounts a KV store of a version, 1 or 2.
func (s *Server) MountKV(path string, version int) {
	s.withLock(func() { s.mounts[path] = mount{version: version, data: map[string]map[string]any{}} })
}

// MountDynamic mounts an engine that makes another secret for each read, with leases of ttl that end after most.
func (s *Server) MountDynamic(path string, ttl, most time.Duration) {
	s.withLock(func() { s.mounts[path] = mount{ttl: ttl, max: most} })
}

// Put stores a secret in a KV store.
func (s *Server) Put(mount, path string, data map[string]any) {
	s.withLock(func() { s.mounts[mount].data[path] = data })
}

// Delete removes a secret from a KV store.
func (s *Server) Delete(mount, path string) {
	s.withLock(func() { delete(s.mounts[mount].data, path) })
}

// FailNetwork makes RoundTrip fail; nil ends that.
func (s *Server) FailNetwork(err error) { s.withLock(func() { s.failure = err }) }

// FailAll makes the server answer each request with a status; 0 ends that.
func (s *Server) FailAll(status int) { s.withLock(func() { s.status = status }) }

// RevokeAll ends all tokens and leases.
func (s *Server) RevokeAll() { s.withLock(func() { clear(s.tokens); clear(s.leases) }) }

// Tokens returns the tokens that are valid now, in order.
func (s *Server) Tokens() (all []string) {
	s.withLock(func() {
		for t, is := range s.tokens {
			if is.end.IsZero() || time.Now().Before(is.end) {
				all = append(all, t)
			}
		}
	})
	slices.Sort(all)
	return all
}

// Requests returns what was asked since the last call, as METHOD PATH.
func (s *Server) Requests() (all []string) {
	s.withLock(func() { all, s.requests = s.requests, nil })
	return all
}

func (s *Server) withLock(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	var failure error
	s.withLock(func() { failure = s.failure })
	if failure != nil {
		return nil, failure
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// reply is an answer.
type reply struct {
	status int
	body   any
}

func deny(status int, format string, args ...any) reply {
	return reply{status, map[string]any{"errors": []string{fmt.Sprintf(format, args...)}}}
}

func allow(body map[string]any) reply { return reply{http.StatusOK, body} }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&body)
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	var a reply
	s.withLock(func() {
		s.requests = append(s.requests, r.Method+" "+path)
		switch {
		case s.status != 0:
			a = deny(s.status, "told to fail")
		case path == "sys/health":
			a = allow(map[string]any{"initialized": true, "version": "1.18.3", "cluster_id": "c-1", "cluster_name": "vault-cluster"})
		case strings.HasPrefix(path, "auth/jwt-nomad/login"):
			a = s.answerLogin(r.Header.Get("X-Vault-Namespace"), body)
		default:
			a = s.answerBearer(r, path, body)
		}
	})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	if a.body != nil {
		_ = json.NewEncoder(w).Encode(a.body)
	}
}

// answerLogin checks a JWT, and makes a token of its role.
func (s *Server) answerLogin(namespace string, body map[string]any) reply {
	name, _ := body["role"].(string)
	jwt, _ := body["jwt"].(string)
	role, ok := s.roles[name]
	if !ok {
		return deny(http.StatusBadRequest, "role %q could not be found", name)
	}
	keys, err := s.Keys()
	if err != nil {
		return deny(http.StatusBadRequest, "fetching keys: %v", err)
	}
	if _, err := loginstest.Check(jwt, keys, role.Audience, role.Claims, time.Now()); err != nil {
		return deny(http.StatusBadRequest, "error validating token: %v", err)
	}
	s.counter++
	id := fmt.Sprintf("hvs.marked-token-%d", s.counter)
	t := token{role: role, name: name, namespace: namespace, made: time.Now()}
	if role.TTL > 0 {
		t.end = t.made.Add(role.TTL)
	}
	s.tokens[id] = t
	return authAnswer(id, t)
}

func authAnswer(id string, t token) reply {
	left := int64(0)
	if !t.end.IsZero() {
		left = int64(time.Until(t.end).Seconds())
	}
	return allow(map[string]any{"auth": map[string]any{"client_token": id, "accessor": "a", "lease_duration": left, "renewable": !t.role.Fixed && t.role.TTL > 0, "policies": []string{"default"}}})
}

// answerBearer answers a request with a token.
func (s *Server) answerBearer(r *http.Request, path string, body map[string]any) reply {
	id := r.Header.Get("X-Vault-Token")
	t, ok := s.tokens[id]
	if !ok || !t.end.IsZero() && !time.Now().Before(t.end) || t.namespace != r.Header.Get("X-Vault-Namespace") {
		return deny(http.StatusForbidden, "permission denied")
	}
	switch path {
	case "auth/token/renew-self":
		if t.role.Fixed || t.role.TTL == 0 {
			return deny(http.StatusBadRequest, "lease is not renewable")
		}
		t.end = earlier(time.Now().Add(t.role.TTL), t.made, t.role.MaxTTL)
		s.tokens[id] = t
		return authAnswer(id, t)
	case "auth/token/lookup-self":
		left := 0
		if !t.end.IsZero() {
			left = int(time.Until(t.end).Seconds())
		}
		return allow(map[string]any{"data": map[string]any{"ttl": left, "renewable": !t.role.Fixed && t.role.TTL > 0}})
	case "auth/token/revoke-self":
		delete(s.tokens, id)
		maps.DeleteFunc(s.leases, func(_ string, l lease) bool { return l.token == id })
		return reply{status: http.StatusNoContent}
	case "sys/leases/renew":
		return s.answerRenewal(body)
	}
	if at, ok := strings.CutPrefix(path, "sys/internal/ui/mounts/"); ok {
		name, m, ok := s.findMount(at)
		if !ok {
			return deny(http.StatusForbidden, "preflight capability check returned 403")
		}
		kind, options := "database", map[string]string(nil)
		if m.version > 0 {
			kind, options = "kv", map[string]string{"version": fmt.Sprint(m.version)}
		}
		return allow(map[string]any{"data": map[string]any{"path": name + "/", "type": kind, "options": options}})
	}
	if t.role.Paths != nil && !slices.ContainsFunc(t.role.Paths, func(p string) bool { return strings.HasPrefix(path, p) }) {
		return deny(http.StatusForbidden, "permission denied")
	}
	return s.answerSecret(id, path, r.URL.Query())
}

// earlier is a time, but not after the end of a longest life; 0: there is none.
func earlier(end, made time.Time, longest time.Duration) time.Time {
	if last := made.Add(longest); longest > 0 && last.Before(end) {
		return last
	}
	return end
}

// answerRenewal renews a lease.
func (s *Server) answerRenewal(body map[string]any) reply {
	id, _ := body["lease_id"].(string)
	l, ok := s.leases[id]
	if !ok || !time.Now().Before(l.end) {
		return deny(http.StatusBadRequest, "lease not found")
	}
	l.end = earlier(time.Now().Add(l.ttl), l.made, l.max)
	s.leases[id] = l
	return allow(map[string]any{"lease_id": id, "renewable": true, "lease_duration": int64(time.Until(l.end).Seconds())})
}

// findMount returns the secrets engine of a path.
func (s *Server) findMount(path string) (string, mount, bool) {
	for name, m := range s.mounts {
		if path == name || strings.HasPrefix(path, name+"/") {
			return name, m, true
		}
	}
	return "", mount{}, false
}

// answerSecret reads or lists.
func (s *Server) answerSecret(id, path string, query url.Values) reply {
	name, m, ok := s.findMount(path)
	rest := strings.Trim(strings.TrimPrefix(path, name), "/")
	if !ok {
		return deny(http.StatusNotFound, "no handler for route %q", path)
	}
	if m.version == 0 {
		s.counter++
		l := lease{token: id, made: time.Now(), end: time.Now().Add(m.ttl), ttl: m.ttl, max: m.max}
		leaseID := fmt.Sprintf("%s/%d", path, s.counter)
		s.leases[leaseID] = l
		data := map[string]any{"username": fmt.Sprintf("marked-user-%d", s.counter)}
		return allow(map[string]any{"lease_id": leaseID, "renewable": m.max != m.ttl, "lease_duration": int64(m.ttl.Seconds()), "data": data})
	}
	if m.version == 2 {
		kind, below, _ := strings.Cut(rest, "/")
		if kind != "data" && kind != "metadata" {
			return deny(http.StatusNotFound, "")
		}
		rest = below
	}
	if query.Get("list") == "true" {
		keys := map[string]bool{}
		for key := range m.data {
			if at, ok := strings.CutPrefix(key, strings.Trim(rest+"/", "/")); ok {
				first, _, more := strings.Cut(strings.Trim(at, "/"), "/")
				keys[first+map[bool]string{true: "/"}[more]] = true
			}
		}
		return allow(map[string]any{"data": map[string]any{"keys": slices.Sorted(maps.Keys(keys))}})
	}
	data, ok := m.data[rest]
	if !ok {
		return deny(http.StatusNotFound, "")
	}
	if m.version == 2 {
		data = map[string]any{"data": data, "metadata": map[string]any{"version": 1, "asked": query.Get("version")}}
	}
	return allow(map[string]any{"lease_duration": 2764800, "data": data})
}
