package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/api"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

func TestJoinTokens(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ca := []byte("a certificate")
	mustApply(t, h, state.ClusterInit{Cluster: state.Cluster{ID: "c", CACert: ca}})
	ask := func(method, path, body string, out any) (int, string) {
		t.Helper()
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		if out != nil && w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
				t.Fatal(err)
			}
		}
		return w.Code, w.Body.String()
	}
	var made api.CreatedToken
	if status, text := ask("POST", "/v1/join/tokens", `{"Role": "edge", "NodePool": "tills", "Site": "shop-17", "MaxUses": 2, "TTL": "24h", "Description": "till"}`, &made); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	token, err := identity.ParseToken(made.Token)
	if err != nil || !token.Names(ca) || token.ID != made.ID {
		t.Fatalf("%+v, %v", made, err)
	}
	kept, ok := h.store.View().Token(made.ID)
	if !ok || !identity.MatchesSecret(kept.Hash, token.Secret) || kept.ExpiresAt != now.Add(24*time.Hour).UnixNano() ||
		!slices.Equal(kept.Roles, []string{"edge"}) || kept.NodePool != "tills" || kept.Site != "shop-17" || kept.MaxUses != 2 {
		t.Fatalf("kept %+v", kept)
	}
	var state1 strings.Builder
	if err := h.store.View().Describe(&state1); err != nil || strings.Contains(state1.String(), token.Secret) {
		t.Fatal("the state has the secret", err)
	}
	mustApply(t, h, state.Certificate{Serial: "1", Subject: "edge:" + string(nodeID), Token: made.ID, Key: []byte{1}})
	var one api.JoinToken
	ask("GET", "/v1/join/token/"+made.ID, "", &one)
	if one.Uses != 1 || !slices.Equal(one.Admitted, []string{"edge:" + string(nodeID)}) || one.ExpiresAt == nil {
		t.Fatalf("%+v", one)
	}
	if _, text := ask("GET", "/v1/join/tokens", "", nil); strings.Contains(text, token.Secret) || strings.Contains(text, "Hash") || !strings.Contains(text, made.ID) {
		t.Fatalf("the list says %s", text)
	}
	if status, text := ask("DELETE", "/v1/join/token/"+made.ID, "", nil); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	if _, ok := h.store.View().Token(made.ID); ok {
		t.Fatal("it is still there")
	}
	if status, _ := ask("DELETE", "/v1/join/token/"+made.ID, "", nil); status != http.StatusNotFound {
		t.Fatalf("revoked twice: %d", status)
	}
	low, high := strings.Repeat("0a", 32), strings.Repeat("f0", 32)
	if status, text := ask("POST", "/v1/join/tokens", `{"Role": "edge", "AllowKeys": ["`+high+`", "`+strings.ToUpper(low)+`", "`+high+`"]}`, &made); status != http.StatusOK || made.AllowedKeys != 2 {
		t.Fatalf("%d %s", status, text)
	}
	if kept, _ := h.store.View().Token(made.ID); fmt.Sprintf("%x", kept.AllowKeys) != low+high {
		t.Fatalf("kept the keys %x", kept.AllowKeys)
	}
	for body, says := range map[string]string{
		`{}`: "the role", `{"Role": "king"}`: "the role", `{"Role": "hub", "Site": "x"}`: "no site", `{"Role": "edge", "TTL": "-1h"}`: "cannot end",
		`{"Role": "edge", "TTL": "soon"}`: "cannot end", `{"Role": "edge", "NodePool": "all"}`: "all", `{"Role": "edge", "NodePool": "a b"}`: "a b",
		`{"Role": "edge", "AllowKeys": ["abcd"]}`:                                   "key 1 of its list",
		`{"Role": "hub", "AllowKeys": ["` + strings.Repeat("ab", 32) + `"]}`:        "only a token with the role edge",
		`{"Role": "edge", "AllowKeys": [` + strings.Repeat(`"a",`, 10000) + `"a"]}`: "10001 keys, more than 10000",
		`{"Role": "edge", "Description": "` + strings.Repeat("x", 300) + `"}`:       "256 bytes",
	} {
		if status, text := ask("PUT", "/v1/join/tokens", body, nil); status != http.StatusBadRequest || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}
