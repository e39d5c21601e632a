package api_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"skerry/api"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
)

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
		"PUT /v1/job/shop/plan":                      "",
		"PUT /v1/jobs?namespace=tills&secret=s3cret": "PUT /v1/jobs in tills: 400 invalid",
		"DELETE /v1/job/plan":                        "DELETE /v1/job/plan in : 200 ",
		"DELETE /v1/job/shop/plan":                   "DELETE /v1/job/shop/plan in : 405 unsupported",
		"POST /v1/nothing":                           "POST /v1/nothing in : 404 not_found",
		"GET http://evil.example/v1/jobs":            "GET /v1/jobs in : 403 forbidden",
	} {
		kept.entries = nil
		method, url, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, url, strings.NewReader(`{"x": "s3cret"`))
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
