package api_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"skerry/api"
	"skerry/fleet/acl"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
	"skerry/syncproto"
)

// TestGETsThatChangeAreAudited: a GET that needs more than reading, or listing, changes or starts something, or reads more
// than objects. Each such route has a rule, and each rule is of a route.
func TestGETsThatChangeAreAudited(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Debug: true})
	if err != nil {
		t.Fatal(err)
	}
	unused := maps.Clone(hubapi.AuditRules)
	for _, e := range a.Endpoints() {
		reads := len(e.Any) == 0
		for _, c := range e.Any {
			reads = reads || c == acl.Read || c == acl.List || strings.HasPrefix(string(c), "read-") || strings.HasPrefix(string(c), "list-") || strings.HasSuffix(string(c), "-read")
		}
		for _, route := range e.Routes {
			isAudited, ruled := hubapi.AuditRules[route]
			delete(unused, route)
			if asksForRead := strings.HasPrefix(route, "GET ") || strings.HasPrefix(route, "/"); asksForRead && !reads && !isAudited {
				t.Errorf("%s requires %s: is it audited? %t", route, e.Requires, ruled)
			}
		}
	}
	if len(unused) > 0 {
		t.Errorf("rules of no route: %v", unused)
	}
}

// TestExecIsAudited: the audit has a command or action once before its edge has it, and again if the edge fails to run it.
func TestExecIsAudited(t *testing.T) {
	f := newAccessFixture(t)
	srv := httptest.NewServer(f.api)
	t.Cleanup(srv.Close)
	asked := 0
	serveExecWith(f.hub, func(req syncproto.Request, in *syncproto.Reader, out *syncproto.Writer) {
		f.audit.check(t, "EXEC 101  a")
		asked++
		serveInCapitals(req, in, out)
	})
	path := "/v1/client/allocation/" + string(f.firstAllocID()) + "/exec?"
	for _, tc := range []struct {
		path  string
		audit string
		asked bool
	}{
		{path + escaped(`command=["up"]`), "EXEC 101  a", true},
		{path + escaped(`command=["fail"]`), "EXEC 101  a, EXEC 400 invalid a", true},
		{path + escaped(`command=["refused"]`), "EXEC 101  a, EXEC 400 unsupported a", false},
		{path + escaped(`command=["up"]&task=nobody`), "EXEC 404 not_found a", false},
		{path + escaped(`command=["up"]&ws_handshake=true`), "EXEC 400 invalid a", false}, // the first message has no version
		{path + "command=up", "EXEC 400 invalid a", false},
		{"/v1/job/nope/action?action=flush", "EXEC 404 not_found a", false},
	} {
		f.audit.entries = nil
		before := asked
		conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+tc.path, http.Header{"X-Nomad-Token": {listSecret}})
		if err == nil {
			err = conn.WriteJSON(api.ExecInput{Stdin: &api.ExecIO{Close: true}})
			for err == nil {
				_, _, err = conn.ReadMessage()
			}
			conn.Close()
		}
		f.audit.check(t, tc.audit)
		if (asked > before) != tc.asked {
			t.Errorf("%s: the edge is asked: %t, %v", tc.path, asked > before, err)
		}
	}
}

// A client that sends something before its websocket is open is cut off. The audit has the request.
func TestExecThatIsCutOffIsAudited(t *testing.T) {
	f := newAccessFixture(t)
	srv := httptest.NewServer(f.api)
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nX-Nomad-Token: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2tlcnJ5c2tlcnJ5c2tlcg==\r\n\r\nearly", f.pathOf("/v1/client/allocation/{id}/exec"), listSecret)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); len(b) > 0 {
		t.Errorf("answered %q, %v", b, err)
	}
	f.audit.check(t, "EXEC 400 invalid a")
}

// auditOrder is an answer that wants the request's line in the audit before anything of it is sent.
type auditOrder struct {
	*httptest.ResponseRecorder
	t    *testing.T
	kept *keptAudit
}

func (w auditOrder) check() {
	w.kept.mu.Lock()
	defer w.kept.mu.Unlock()
	if len(w.kept.entries) != 1 {
		w.t.Errorf("the audit has %d lines when the answer begins", len(w.kept.entries))
	}
}

func (w auditOrder) WriteHeader(status int)      { w.check(); w.ResponseRecorder.WriteHeader(status) }
func (w auditOrder) Write(b []byte) (int, error) { w.check(); return w.ResponseRecorder.Write(b) }
func (w auditOrder) Flush()                      { w.check(); w.ResponseRecorder.Flush() }

// A line is in the audit before its request is answered: a client that reads a secret, and then stops to read or has the
// hub killed, is there.
func TestAuditBeforeTheAnswer(t *testing.T) {
	h, kept := &fakeHub{store: state.New(), leader: "hub1"}, &keptAudit{}
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, Audit: kept})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{"GET /v1/operator/snapshot", "GET /v1/var/nomad/jobs/shop", "DELETE /v1/job/shop", "PUT /v1/system/gc"} {
		kept.entries = nil
		method, url, _ := strings.Cut(request, " ")
		a.ServeHTTP(auditOrder{httptest.NewRecorder(), t, kept}, httptest.NewRequest(method, url, nil))
		if len(kept.entries) != 1 || kept.entries[0].Status == 0 {
			t.Errorf("%s: %+v", request, kept.entries)
		}
	}
}

// keptAudit is an audit in memory.
type keptAudit struct {
	mu      sync.Mutex
	entries []api.AuditEntry
}

func (k *keptAudit) Append(e api.AuditEntry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entries = append(k.entries, e)
}

func (k *keptAudit) Copy(w io.Writer, after uint64) error {
	_, err := fmt.Fprintf(w, "after %d\n", after)
	return err
}

// check compares the verbs, results and accessors of the entries.
func (k *keptAudit) check(tb testing.TB, want string) {
	tb.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	var got []string
	for _, e := range k.entries {
		got = append(got, strings.TrimSpace(fmt.Sprint(e.Verb, " ", e.Status, " ", e.Code, " ", e.Actor.Accessor)))
	}
	if text := strings.Join(got, ", "); text != want {
		tb.Errorf("the audit is %q, not %q", text, want)
	}
}

// Each change and each refusal is in the audit once, questions are not, and neither bodies nor parameters are.
func TestWhatIsAudited(t *testing.T) {
	h, kept := &fakeHub{store: state.New(), leader: "hub1"}, &keptAudit{}
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, Audit: kept})
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		"GET /v1/jobs":                               "",
		"PUT /v1/search":                             "",
		"GET /v1/vars":                               "",
		"GET /v1/var/nomad/jobs/shop":                "GET /v1/var/nomad/jobs/shop in : 404 not_found",
		"PUT /v1/jobs/parse":                         "",
		"POST /v1/jobs/statuses":                     "",
		"PUT /v1/job/shop/plan":                      "",
		"PUT /v1/job/shop%2Fplan":                    "PUT /v1/job/shop/plan in : 400 invalid", // registers the job shop/plan
		"HEAD /v1/var/nomad/jobs/shop":               "HEAD /v1/var/nomad/jobs/shop in : 404 not_found",
		"GET /v1/client/gc?node_id=n":                "GET /v1/client/gc in : 404 not_found",
		"HEAD /v1/client/gc?node_id=n":               "HEAD /v1/client/gc in : 404 not_found",
		"PUT /v1/client/gc?node_id=n":                "PUT /v1/client/gc in : 400 invalid", // its body is no JSON
		"GET /v1/client/allocation/a/gc":             "GET /v1/client/allocation/a/gc in : 404 not_found",
		"GET /v1/client/allocation/a/exec":           "EXEC /v1/client/allocation/a/exec in : 400 invalid", // no websocket
		"GET /v1/job/shop/action?action=x":           "EXEC /v1/job/shop/action in : 400 invalid",
		"GET /v1/client/allocation/a/checks":         "",
		"GET /v1/client/allocation/a/stats":          "",
		"PUT /v1/jobs?namespace=tills&secret=s3cret": "PUT /v1/jobs in tills: 400 invalid",
		"DELETE /v1/job/plan":                        "DELETE /v1/job/plan in : 200 ",
		"DELETE /v1/job/shop/plan":                   "DELETE /v1/job/shop/plan in : 405 unsupported",
		"POST /v1/nothing":                           "POST /v1/nothing in : 404 not_found",
		"GET http://evil.example/v1/jobs":            "GET /v1/jobs in : 403 forbidden",
	} {
		kept.entries = nil
		method, url, _ := strings.Cut(request, " ")
		body := `{"x": "s3cret"`
		if method == http.MethodDelete {
			body = ""
		}
		r := httptest.NewRequest(method, url, strings.NewReader(body))
		r.RemoteAddr = "192.0.2.9:4444"
		a.ServeHTTP(httptest.NewRecorder(), r)
		got := ""
		for _, e := range kept.entries {
			got += fmt.Sprintf("%s %s in %s: %d %s", e.Verb, e.Object, e.Namespace, e.Status, e.Code)
			if e.Source != "192.0.2.9" {
				t.Errorf("%s: from %q", request, e.Source)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
		if strings.Contains(fmt.Sprint(kept.entries), "s3cret") {
			t.Errorf("%s: a secret is in %+v", request, kept.entries)
		}
	}
	kept.entries = nil
	r := httptest.NewRequest(http.MethodPut, "/v1/system/gc", nil)
	chain := []*x509.Certificate{{Subject: pkix.Name{CommonName: "anna"}}}
	r.TLS = &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}
	a.ServeHTTP(httptest.NewRecorder(), r)
	if len(kept.entries) != 1 || kept.entries[0].Actor.Certificate != "anna" || kept.entries[0].Code != "" && kept.entries[0].Status == 200 {
		t.Errorf("%+v", kept.entries)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/operator/audit?after=7", nil))
	if w.Body.String() != "after 7\n" {
		t.Errorf("the audit is %q", w.Body)
	}
	w = httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/operator/audit?after=x", nil))
	if w.Code != http.StatusBadRequest {
		t.Errorf("a number that is none: %d", w.Code)
	}
}
