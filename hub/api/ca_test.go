package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/fleet"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

// rotator commits prepared CAs.
type rotator struct {
	hub   *fakeHub
	certs [][]byte
	grace time.Duration
}

func (r *rotator) Begin(ctx context.Context, grace time.Duration) (state.CA, fleet.Index, error) {
	r.grace = grace
	number := r.hub.store.View().CAs().Newest().Number + 1
	made := state.CA{Number: number, Cert: r.certs[min(number, 2)-1], Forward: []byte{1}, Reverse: []byte{1}, Wrapped: []byte{1}, Grace: grace}
	res, err := r.hub.Apply(ctx, state.CAStore{CA: made})
	return made, res.Index, res.Failure(err)
}

func mustCACert(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// The status of the CAs counts who has which, and names who does not have the newest one.
func TestCAStatus(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	r := &rotator{hub: h, certs: [][]byte{mustCACert(t, "first"), mustCACert(t, "second")}}
	now := time.Unix(1000, 0)
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, CA: r, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string, want int, out any) string {
		t.Helper()
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		if w.Code != want {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		if out != nil {
			if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
				t.Fatal(err)
			}
		}
		return w.Body.String()
	}
	mustApply(t, h, state.ClusterInit{Cluster: state.Cluster{ID: "c", CACert: r.certs[0], CreatedAt: 1}})
	for _, id := range []fleet.HubID{"hub1", "hub2"} {
		mustApply(t, h, state.Hub{Hub: state.HubAddr{ID: id}})
	}
	first, second := identity.CAID(r.certs[0]), identity.CAID(r.certs[1])
	for name, held := range map[string]string{"a": first + "," + second, "b": first, "c": ""} {
		id := fleet.NodeID(fleet.DeriveUUID("node", name))
		mustApply(t, h, state.NodeRegister{Node: fleet.Node{ID: id, Name: name, NodePool: "default", Attributes: map[string]string{fleet.AttributeCAs: held}}, Now: 1})
		mustApply(t, h, state.Certificate{Serial: name, Subject: "edge:" + string(id), CA: map[string]uint64{"a": 2}[name]})
	}
	for _, body := range []string{`{"Grace": "soon"}`, `{"Grace": "-1s"}`, `{"Grace": "999999h"}`} {
		ask(http.MethodPut, "/v1/operator/ca/rotate", body, http.StatusBadRequest, nil)
	}
	ask(http.MethodPut, "/v1/operator/ca/rotate", "", http.StatusOK, nil)
	if r.grace != 400*24*time.Hour {
		t.Errorf("the grace is %s", r.grace)
	}
	if text := ask(http.MethodPut, "/v1/operator/ca/rotate", `{"Grace": "1s"}`, http.StatusConflict, nil); !strings.Contains(text, "still under way") {
		t.Errorf("another rotation: %s", text)
	}
	mustApply(t, h, state.CAHubStep{Number: 2, Hub: "hub2", Now: 5})
	var s api.CAStatus
	ask(http.MethodGet, "/v1/operator/ca", "", http.StatusOK, &s)
	if !s.UnderWay || len(s.HubsMissing) != 1 || s.HubsMissing[0] != "hub1" || s.CAs[1].Status != "distributing" || s.CAs[0].Status != "signing" {
		t.Fatalf("%+v", s)
	}
	if s.Edges != 3 || s.CAs[0].Edges != 2 || s.CAs[1].Edges != 1 || s.CAs[0].EdgesCertified != 2 || s.CAs[1].EdgesCertified != 1 || s.EdgesMissingTotal != 2 {
		t.Fatalf("%+v", s)
	}
	for _, renewed := range []bool{false, true} {
		for _, id := range []fleet.HubID{"hub1", "hub2"} {
			mustApply(t, h, state.CAHubStep{Number: 2, Hub: id, Renewed: renewed, Now: now.UnixNano()})
		}
	}
	for after, status := range map[time.Duration]string{0: "replaced", 400 * 24 * time.Hour: "replaced", 400*24*time.Hour + time.Second: "ended"} {
		now = time.Unix(1000, 0).Add(after)
		ask(http.MethodGet, "/v1/operator/ca", "", http.StatusOK, &s)
		if s.UnderWay || s.CAs[0].Status != status || s.CAs[1].Status != "signing" {
			t.Errorf("after %s: %+v", after, s)
		}
	}
}
