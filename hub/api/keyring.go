package api

import (
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) keyringEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/operator/keyring/keys", managementOnly, a.readHandler(a.listRootKeys)},
		{writes, "/v1/operator/keyring/rotate", managementOnly, a.writeHandler(a.rotateRootKey)},
		{"DELETE", "/v1/operator/keyring/key/{id}", managementOnly, a.writeHandler(a.removeRootKey)},
	}
}

// listRootKeys lists the root keys by id, without the keys themselves.
func (a *API) listRootKeys(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	id := func(k fleet.RootKey) string { return k.KeyID }
	keys := mapItems(v.RootKeys(), func(k *state.RootKey) fleet.RootKey { return k.RootKey })
	answer, err := page(r, filterByPrefix(q, keys, id), id, unchangedItem[fleet.RootKey])
	return answer, v.TableIndex("root_keys"), err
}

// rotateRootKey makes a new root key active.
func (a *API) rotateRootKey(r *http.Request) (any, fleet.Index, error) {
	full, err := queryFlag(r, "full", false)
	if err != nil {
		return nil, 0, err
	}
	p := r.URL.Query()
	if algo := p.Get("algo"); algo != "" && algo != fleet.AlgorithmAES256GCM {
		return nil, 0, fleet.Errorf(fleet.CodeUnsupported, "rotate the root key: the algorithm %q is not supported", algo).
			WithHint("leave algo out: root keys are %s", fleet.AlgorithmAES256GCM)
	}
	if at := p.Get("publish_time"); at != "" && at != "0" {
		return nil, 0, fleet.Errorf(fleet.CodeUnsupported, "rotate the root key: publish_time is not supported").
			WithHint("leave it out: a new key is active at once, and every hub has it by then")
	}
	made, err := a.cfg.Secrets.Rotate(r.Context(), full)
	return api.RotatedKey{Key: made, Index: made.ModifyIndex}, made.ModifyIndex, err
}

// removeRootKey removes a root key with which nothing is encrypted.
func (a *API) removeRootKey(r *http.Request) (any, fleet.Index, error) {
	if force, err := queryFlag(r, "force", false); err != nil {
		return nil, 0, err
	} else if force {
		return nil, 0, fleet.Errorf(fleet.CodeUnsupported, "remove root key %s: force is not supported: what is encrypted with the key would be lost", r.PathValue("id")).
			WithHint("encrypt the variables with another key: skerry operator root keyring rotate --full; purge those that no hub can decrypt")
	}
	return commitAnswer(a, r, state.RootKeyDelete{KeyID: r.PathValue("id"), Now: a.cfg.Now().UnixNano()}, indexAnswer)
}
