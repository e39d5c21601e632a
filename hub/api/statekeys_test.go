package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/fleet"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
)

// keyRotator commits prepared state keys.
type keyRotator struct {
	hub  *fakeHub
	keep time.Duration
}

func (r *keyRotator) Rotate(ctx context.Context, keep time.Duration) (state.StateKey, fleet.Index, error) {
	r.keep = keep
	made := state.StateKey{ID: "k2", Keep: keep, Held: []fleet.HubID{"hub1"}, CreatedAt: 2}
	res, err := r.hub.Apply(ctx, state.StateKeyStore{Key: made})
	return made, res.Index, res.Failure(err)
}

// TestStateKeyStatus: the status of the state keys counts what each encrypts and who has it, from before the first rotation on.
func TestStateKeyStatus(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	r := &keyRotator{hub: h}
	now := time.Unix(1000, 0)
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, StateKeys: r, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string, want int) (s api.StateKeyStatus, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		if w.Code != want {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		if want == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
				t.Fatal(err)
			}
		}
		return s, w.Body.String() + w.Header().Get("X-Skerry-Hint")
	}
	const path = "/v1/operator/state-key"
	ask(http.MethodGet, path, "", http.StatusInternalServerError)
	mustApply(t, h, state.ClusterInit{Cluster: state.Cluster{ID: "c", CACert: []byte{1}, Sealed: []byte{1}, SealKey: "k1", CreatedAt: 1}})
	for _, id := range []fleet.HubID{"hub1", "hub2"} {
		mustApply(t, h, state.Hub{Hub: state.HubAddr{ID: id}})
	}
	mustApply(t, h, state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "r1"}, Wrapped: []byte{1}, WrappedBy: "k1"}})
	if s, _ := ask(http.MethodGet, path, "", http.StatusOK); len(s.Keys) != 1 || s.Keys[0].Status != "active" || s.Keys[0].Secrets != 2 || s.UnderWay || len(s.HubsMissing) != 0 {
		t.Errorf("before the first rotation: %+v", s)
	}
	if _, text := ask(http.MethodDelete, path+"/k1", "", http.StatusConflict); !strings.Contains(text, "none was ever replaced") {
		t.Errorf("forget the only key: %s", text)
	}
	for _, body := range []string{`{"Keep": "soon"}`, `{"Keep": "-1s"}`, `{"Keep": "999999h"}`} {
		ask(http.MethodPut, path+"/rotate", body, http.StatusBadRequest)
	}
	ask(http.MethodPut, path+"/rotate", "", http.StatusOK)
	if r.keep != 30*24*time.Hour {
		t.Errorf("the key before is kept for %s", r.keep)
	}
	if _, text := ask(http.MethodPut, path+"/rotate", `{"Keep": "1h"}`, http.StatusConflict); !strings.Contains(text, "known already") {
		t.Errorf("the same key again: %s", text)
	}
	if s, _ := ask(http.MethodGet, path, "", http.StatusOK); !s.UnderWay || len(s.HubsMissing) != 1 || s.HubsMissing[0] != "hub2" || s.Keys[1].Status != "distributing" || s.Keys[0].Status != "active" {
		t.Errorf("on the way: %+v", s)
	}
	if _, text := ask(http.MethodDelete, path+"/k1", "", http.StatusConflict); !strings.Contains(text, "no other key has replaced it") {
		t.Errorf("forget the active key: %s", text)
	}
	mustApply(t, h, state.StateKeyHubStep{ID: "k2", Hub: "hub2"})
	mustApply(t, h, state.StateKeyRewrap{ID: "k2", Sealed: []byte{2}, Now: now.UnixNano()})
	if s, _ := ask(http.MethodGet, path, "", http.StatusOK); s.UnderWay || s.Keys[0].Status != "kept" || s.Keys[0].Secrets != 1 || s.Keys[1].Secrets != 1 || !s.Keys[0].KeptUntil.Equal(now.Add(30*24*time.Hour)) {
		t.Errorf("active: %+v", s)
	}
	ask(http.MethodDelete, path+"/k1", "", http.StatusOK)
	mustApply(t, h, state.StateKeyRewrap{ID: "k2", Rows: []state.RewrappedSecret{{Kind: state.WrappedRootKey, Name: "r1", Before: []byte{1}, After: []byte{2}}}})
	mustApply(t, h, state.StateKeyForget{ID: "k1", Now: now.UnixNano()})
	if s, _ := ask(http.MethodGet, path, "", http.StatusOK); s.Keys[0].Status != "forgotten" || !s.Keys[0].KeptUntil.Equal(now) || s.Keys[0].Secrets != 0 || s.Keys[1].Secrets != 2 {
		t.Errorf("forgotten: %+v", s)
	}
}
