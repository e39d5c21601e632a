package api_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skerry/hub/api"
	"skerry/hub/state"
)

// A hub that asks for certificates serves those alone that the TLS server has verified, and no machine of the cluster.
func TestClientsWithoutACertificateAreRefused(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	a, err := api.New(api.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, NeedsCertificate: true})
	if err != nil {
		t.Fatal(err)
	}
	shown := func(name string, verified bool) *tls.ConnectionState {
		chain := []*x509.Certificate{{Subject: pkix.Name{CommonName: name}}}
		if !verified {
			return &tls.ConnectionState{PeerCertificates: chain}
		}
		return &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}
	}
	for name, tc := range map[string]struct {
		tls  *tls.ConnectionState
		says string // "": served
	}{
		"in clear":       {nil, "serves only clients with a certificate"},
		"nothing":        {&tls.ConnectionState{}, "serves only clients with a certificate"},
		"not verified":   {shown("anna", false), "serves only clients with a certificate"},
		"a person":       {shown("anna", true), ""},
		"an edge":        {shown("edge:"+string(nodeID), true), "none of a client"},
		"another hub":    {shown("hub:hub2", true), "none of a client"},
		"nearly an edge": {shown("edge:anna", true), ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/status/leader", nil)
		r.TLS = tc.tls
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if (w.Code == http.StatusForbidden) != (tc.says != "") || !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// Over HTTPS the names of the certificate are the hub's.
func TestNamesOfTheCertificateAreTheHubs(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	a, err := api.New(api.Config{
		State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h),
		Certified: func(host string) bool { return host == "hub.example" },
	})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{
		"https://hub.example/v1/status/peers": 200, "https://HUB.example.:4646/v1/status/peers": 200,
		"https://evil.example/v1/status/peers": 403, "http://hub.example/v1/status/peers": 403,
	} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s", url, w.Code, w.Body)
		}
	}
}
