// Package consultest has a Consul agent in memory, for tests: it answers the requests that package consul sends as the
// agent's HTTP API is documented, and fails as an agent does.
package consultest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Service is a registered service.
type Service struct {
	ID, Service       string
	Tags              []string
	Meta              map[string]string
	Port              int
	Address           string
	TaggedAddresses   map[string]Address
	Weights           Weights
	EnableTagOverride bool
}

// Address is an address of a service.
type Address struct {
	Address string
	Port    int
}

// Weights are the weights of a service.
type Weights struct{ Passing, Warning int }

// Check is a check of a service.
type Check struct {
	CheckID, Name, Notes, Status, Output, ServiceID, ServiceName, Type string
	TTL                                                                time.Duration `json:"-"`
	Updates                                                            int           `json:"-"` // results that it got
}

// Agent is an agent. It is an http.Handler, and an http.RoundTripper that calls it without a network.
type Agent struct {
	mu       sync.Mutex
	services map[string]Service
	checks   map[string]Check
	token    string
	failure  error // of the network; nil: there is none
	hangs    bool  // requests about tokens
	status   int   // that each request is answered with; 0: as it should be
	refused  string
	writes   []string

	acl
}

// New makes an agent that has nothing.
func New() *Agent {
	return &Agent{services: map[string]Service{}, checks: map[string]Check{}, acl: acl{methods: map[string]Method{}, tokens: map[string]aclToken{}, pairs: map[string]string{}}}
}

// RequireToken makes the agent refuse other tokens.
func (a *Agent) RequireToken(token string) { a.withLock(func() { a.token = token }) }

// FailNetwork makes RoundTrip fail; nil ends that.
func (a *Agent) FailNetwork(err error) { a.withLock(func() { a.failure = err }) }

// HangLogins makes RoundTrip not answer requests about tokens, until their time is over.
func (a *Agent) HangLogins(hang bool) { a.withLock(func() { a.hangs = hang }) }

// FailAll makes the agent answer each request with a status; 0 ends that.
func (a *Agent) FailAll(status int) { a.withLock(func() { a.status = status }) }

// RefuseService makes the agent answer requests about services and checks of a name with 400; "" ends that.
func (a *Agent) RefuseService(name string) { a.withLock(func() { a.refused = name }) }

// Forget drops everything, as an agent that has lost its data.
func (a *Agent) Forget() {
	a.withLock(func() { a.services, a.checks, a.with = map[string]Service{}, map[string]Check{}, nil })
}

// ExpireChecks lets the TTL of all checks end.
func (a *Agent) ExpireChecks() {
	a.withLock(func() {
		for id, c := range a.checks {
			c.Status = "critical"
			a.checks[id] = c
		}
	})
}

// PutService adds or replaces a service, as somebody else does.
func (a *Agent) PutService(s Service) { a.withLock(func() { a.services[s.ID] = s }) }

// PutCheck adds or replaces a check, as somebody else does.
func (a *Agent) PutCheck(c Check) { a.withLock(func() { a.checks[c.CheckID] = c }) }

// Services returns the registered services, by id.
func (a *Agent) Services() map[string]Service {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.services)
}

// Checks returns the registered checks, by id.
func (a *Agent) Checks() map[string]Check {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.checks)
}

// Writes returns the paths of the requests that changed something, in order, and forgets them.
func (a *Agent) Writes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.writes
	a.writes = nil
	return w
}

func (a *Agent) withLock(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// RoundTrip answers a request without a network.
func (a *Agent) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	err, hangs := a.failure, a.hangs
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if hangs && strings.HasPrefix(r.URL.Path, "/v1/acl/") {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w.Result(), nil
}

// ServeHTTP answers a request.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status != 0 {
		http.Error(w, "something is wrong", a.status)
		return
	}
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if a.answerACL(w, r) {
		return
	}
	if a.token != "" && r.Header.Get("X-Consul-Token") != a.token && !a.mayWriteService(r) {
		http.Error(w, "Permission denied", http.StatusForbidden)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/v1/agent/")
	switch {
	case r.Method == http.MethodGet && path == "self":
		writeJSON(w, map[string]any{"Config": map[string]any{
			"Datacenter": "dc7", "NodeName": "shop-17", "Server": false, "Revision": "f4f0f4eb", "Version": "1.21.0",
		}, "Stats": map[string]any{}})
	case r.Method == http.MethodGet && path == "services":
		writeJSON(w, a.services)
	case r.Method == http.MethodGet && path == "checks":
		writeJSON(w, a.checks)
	case r.Method != http.MethodPut:
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case path == "service/register":
		a.registerService(w, r)
	case strings.HasPrefix(path, "service/deregister/"):
		a.deregisterService(w, strings.TrimPrefix(path, "service/deregister/"))
	case strings.HasPrefix(path, "check/update/"):
		a.updateCheck(w, r, strings.TrimPrefix(path, "check/update/"))
	default:
		http.NotFound(w, r)
	}
}

func (a *Agent) registerService(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Service
		Name   string
		Checks []struct{ CheckID, Name, Notes, TTL, Status string }
	}
	body.Weights = Weights{1, 1}
	if err := decodeStrictly(r.Body, &body); err != nil || body.Name == "" {
		http.Error(w, fmt.Sprintf("Request decode failed: %v", err), http.StatusBadRequest)
		return
	}
	if body.Name == a.refused {
		http.Error(w, "Invalid service", http.StatusBadRequest)
		return
	}
	checks := map[string]Check{}
	for _, c := range body.Checks {
		ttl, err := time.ParseDuration(c.TTL)
		if err != nil || ttl <= 0 || c.CheckID == "" || !validStatus(c.Status) {
			http.Error(w, "Invalid check", http.StatusBadRequest)
			return
		}
		checks[c.CheckID] = Check{
			CheckID: c.CheckID, Name: c.Name, Notes: c.Notes, Status: c.Status, TTL: ttl, ServiceID: body.ID, ServiceName: body.Name, Type: "ttl",
		}
	}
	s := body.Service
	s.Service = body.Name
	if s.TaggedAddresses == nil {
		s.TaggedAddresses = map[string]Address{}
	}
	if s.Address != "" { // as an agent does
		s.TaggedAddresses["lan_ipv4"] = Address{s.Address, s.Port}
	}
	if r.URL.Query().Has("replace-existing-checks") {
		maps.DeleteFunc(a.checks, func(_ string, c Check) bool { return c.ServiceID == s.ID })
	}
	a.services[s.ID] = s
	a.registeredWith(s.ID, r.Header.Get("X-Consul-Token"))
	maps.Copy(a.checks, checks)
	a.writes = append(a.writes, "register "+s.ID)
}

func (a *Agent) deregisterService(w http.ResponseWriter, id string) {
	if _, ok := a.services[id]; !ok {
		http.Error(w, fmt.Sprintf("Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id), http.StatusNotFound)
		return
	}
	delete(a.services, id)
	maps.DeleteFunc(a.checks, func(_ string, c Check) bool { return c.ServiceID == id })
	a.writes = append(a.writes, "deregister "+id)
}

func (a *Agent) updateCheck(w http.ResponseWriter, r *http.Request, id string) {
	var body struct{ Status, Output string }
	if err := decodeStrictly(r.Body, &body); err != nil || !validStatus(body.Status) {
		http.Error(w, fmt.Sprintf("Invalid check status: %q", body.Status), http.StatusBadRequest)
		return
	}
	c, ok := a.checks[id]
	if !ok {
		http.Error(w, fmt.Sprintf("Unknown check ID %q", id), http.StatusNotFound)
		return
	}
	c.Status, c.Output, c.Updates = body.Status, body.Output, c.Updates+1
	a.checks[id] = c
	a.writes = append(a.writes, "update "+id)
}

// decodeStrictly decodes JSON with known fields alone: a name that the API does not have is a mistake of the client.
func decodeStrictly(r io.Reader, into any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func validStatus(s string) bool {
	return slices.Contains([]string{"passing", "warning", "critical"}, s)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		panic(fmt.Sprintf("encode an answer: %v", err))
	}
}
