package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// States of a state key in an answer.
const (
	stateKeyDistributing = "distributing" // hubs are storing it
	stateKeyActive       = "active"
	stateKeyKept         = "kept"      // replaced: for snapshots from before
	stateKeyForgotten    = "forgotten" // hubs erase it
)

const (
	defaultStateKeyKeep = 30 * 24 * time.Hour
	maxStateKeyKeep     = 10 * 365 * 24 * time.Hour
)

// StateKeys replaces the key with which the secrets in the state are encrypted.
type StateKeys interface {
	// Rotate begins the rotation to a new key. keep is how long the one before is kept.
	Rotate(ctx context.Context, keep time.Duration) (state.StateKey, fleet.Index, error)
}

func (a *API) stateKeyEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/operator/state-key", onOperator("read"), a.readHandler(a.readStateKeyStatus)},
		{writes, "/v1/operator/state-key/rotate", managementOnly, writeOptionalBody(a, a.rotateStateKey)},
		{"DELETE", "/v1/operator/state-key/{id}", managementOnly, a.writeHandler(a.forgetStateKey)},
	}
}

// rotateStateKey makes another state key. The hubs take it over by themselves.
func (a *API) rotateStateKey(r *http.Request, req api.RotateStateKeyRequest) (any, fleet.Index, error) {
	keep := defaultStateKeyKeep
	if req.Keep != "" {
		var err error
		if keep, err = time.ParseDuration(req.Keep); err != nil || keep < 0 || keep > maxStateKeyKeep {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "rotate the state key: %q is not a time like 720h, from 0 to %s, to keep the key before", req.Keep, maxStateKeyKeep)
		}
	}
	if a.cfg.StateKeys == nil {
		return nil, 0, fleet.Errorf(fleet.CodeUnsupported, "rotate the state key: this hub has none")
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	made, index, err := a.cfg.StateKeys.Rotate(r.Context(), keep)
	if err != nil {
		return nil, index, err
	}
	return api.RotatedStateKey{ID: made.ID, Index: index}, index, nil
}

// forgetStateKey ends the time for which a replaced key is kept.
func (a *API) forgetStateKey(r *http.Request) (any, fleet.Index, error) {
	id := r.PathValue("id")
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	if len(a.cfg.State.View().StateKeys()) == 0 { // hubs of older releases do not know the command
		return nil, 0, fleet.Errorf(fleet.CodeConflict, "forget the state key %s: none was ever replaced", id).
			WithHint("make another one first: skerry operator state-key rotate")
	}
	return commitAnswer(a, r, state.StateKeyExpire{ID: id, Now: a.cfg.Now().UnixNano()}, indexAnswer)
}

// readStateKeyStatus answers with the state keys, without the keys themselves, and with the hubs that do not have the newest
// one yet.
func (a *API) readStateKeyStatus(v *state.View, _ *http.Request, _ query) (any, fleet.Index, error) {
	cluster, ok := v.Cluster()
	if !ok || cluster.SealKey == "" {
		return nil, 0, fleet.Errorf(fleet.CodeUnavailable, "read the cluster's state keys: there is none yet")
	}
	used := map[string]int{cluster.SealKey: 1}
	for _, by := range v.WrappedSecrets() {
		used[by]++
	}
	rows := v.StateKeys()
	if len(rows) == 0 {
		rows = []*state.StateKey{{ID: cluster.SealKey, Number: 1, CreatedAt: cluster.CreatedAt, ActiveSince: cluster.CreatedAt}}
	}
	index := max(v.TableIndex("cluster"), v.TableIndex("state_keys"), v.TableIndex("hubs"), v.TableIndex("cas"), v.TableIndex("root_keys"), v.TableIndex("acl_auth_methods"))
	answer := api.StateKeyStatus{Index: index}
	for _, row := range rows {
		answer.Keys = append(answer.Keys, shownStateKey(row, cluster.SealKey, used[row.ID]))
	}
	if newest := rows[len(rows)-1]; newest.CreateIndex != 0 {
		answer.UnderWay = newest.ActiveSince == 0
		for _, hub := range v.Hubs() {
			if !slices.Contains(newest.Held, hub.ID) {
				answer.HubsMissing = append(answer.HubsMissing, hub.ID)
			}
		}
	}
	return answer, index, nil
}

// shownStateKey returns the record of a state key as the API shows it.
func shownStateKey(row *state.StateKey, active string, secrets int) api.StateKey {
	at := func(nanos int64) *time.Time {
		if nanos == 0 {
			return nil
		}
		t := time.Unix(0, nanos).UTC()
		return &t
	}
	shown := api.StateKey{
		ID: row.ID, Number: row.Number, Status: stateKeyKept, Secrets: secrets, Hubs: row.Held, Erased: row.Erased,
		CreatedAt: at(row.CreatedAt), ActiveSince: at(row.ActiveSince), KeptUntil: at(row.KeptUntil), ForgottenAt: at(row.ForgottenAt),
	}
	switch {
	case row.ID == active:
		shown.Status = stateKeyActive
	case row.ForgottenAt != 0:
		shown.Status = stateKeyForgotten
	case row.ActiveSince == 0:
		shown.Status = stateKeyDistributing
	}
	return shown
}
