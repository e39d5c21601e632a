package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/internal/datadir"
	"skerry/internal/pace"
)

// The calls of hubs about the key that the cluster's secrets are sealed with.
const (
	methodGetKey  rpc.Method[string, []byte]   = "identity.statekey" // by the key's name
	methodKeepKey rpc.Method[[]byte, struct{}] = "identity.keep-statekey"
)

// sealRetryInterval is how long after secrets could not be sealed it is tried again.
const sealRetryInterval = 10 * time.Second

// stateKeys are the keys by which this hub can open the secrets in the cluster's
// state. All of the hub's goroutines use it.
type stateKeys struct {
	saving sync.Mutex // held while the file is written

	mu   sync.Mutex
	keys []pki.StateKey
}

func (s *stateKeys) setStateKeys(keys []pki.StateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
}

func (s *stateKeys) allStateKeys() []pki.StateKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

func (s *stateKeys) stateKeyByID(id string) (pki.StateKey, bool) {
	keys := s.allStateKeys()
	i := slices.IndexFunc(keys, func(k pki.StateKey) bool { return k.ID() == id })
	if i < 0 {
		return pki.StateKey{}, false
	}
	return keys[i], true
}

// addStateKey keeps a key, durably before it is used.
func (h *Hub) addStateKey(k pki.StateKey) error {
	s := &h.stateKeys
	s.saving.Lock()
	defer s.saving.Unlock()
	keys := pki.WithStateKey(s.allStateKeys(), k)
	if err := pki.SaveStateKeys(h.dir.File(identityDir), keys); err != nil {
		return datadir.DiskError("keep the state key", err)
	}
	s.setStateKeys(keys)
	return nil
}

// fetchMissingStateKey fetches the key of the cluster's secrets from another hub where this
// hub does not have it: its file was lost, or it joined through a hub that had none.
func (h *Hub) fetchMissingStateKey(ctx context.Context) error {
	cluster, ok := h.store.View().Cluster()
	if !ok || len(cluster.Sealed) == 0 {
		return nil
	}
	if _, ok := h.stateKeys.stateKeyByID(cluster.SealKey); ok {
		return nil
	}
	_, err := pki.OpenCluster(*cluster, h.stateKeys.allStateKeys())
	for _, addr := range h.otherHubAddrs() {
		callCtx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
		b, callErr := methodGetKey.Call(callCtx, h.peers, addr, cluster.SealKey)
		cancel()
		if callErr == nil {
			var key pki.StateKey
			if key, callErr = pki.ParseStateKey(b); callErr == nil && key.ID() == cluster.SealKey {
				h.log.Info("state key fetched from another hub", "state_key", key.ID(), "addr", addr)
				return h.addStateKey(key)
			}
		}
		if callErr != nil {
			err = errors.Join(err, fmt.Errorf("ask the hub at %s for it: %w", addr, callErr))
		}
	}
	return err
}

// serveStateKey hands the key of a name to another hub of the cluster.
func (h *Hub) serveStateKey(_ context.Context, from, id string) ([]byte, error) {
	k, ok := h.stateKeys.stateKeyByID(id)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotFound, "give the state key %s: hub %s does not have it", id, h.hubID())
	}
	h.log.Info("state key given to another hub", "state_key", id, "hub", from)
	return k[:], nil
}

// storeStateKey keeps a key that the leader is about to seal the secrets with.
func (h *Hub) storeStateKey(_ context.Context, _ string, b []byte) (struct{}, error) {
	k, err := pki.ParseStateKey(b)
	if err == nil {
		err = h.addStateKey(k)
	}
	return struct{}{}, err
}

// sealSecrets takes secrets that an older release left in clear out of the state,
// once every hub of the cluster has the key that they are sealed with: a hub of an
// older release would not understand the entry.
func (h *Hub) sealSecrets(ctx context.Context) error {
	for said := ""; ; {
		watch := h.store.Watch()
		cluster, ok := watch.Cluster()
		switch {
		case ok && len(cluster.Sealed) > 0:
			return nil
		case !ok:
			if watch.Changed(ctx) != nil {
				return nil
			}
			continue
		}
		err := h.sealClusterSecrets(ctx, *cluster)
		if err == nil {
			continue
		}
		if text := err.Error(); ctx.Err() == nil && text != said {
			said = text
			h.log.Warn("the CA's key lies in the state in clear until every hub runs this release; trying again", "error", err)
		}
		if !pace.Rest(ctx, sealRetryInterval) {
			return nil
		}
	}
}

func (h *Hub) sealClusterSecrets(ctx context.Context, cluster state.Cluster) error {
	keys := h.stateKeys.allStateKeys()
	if len(keys) == 0 {
		keys = []pki.StateKey{pki.NewStateKey()}
		if err := h.addStateKey(keys[0]); err != nil {
			return err
		}
	}
	key := keys[len(keys)-1]
	for _, hub := range h.store.View().Hubs() {
		if hub.ID == h.hubID() {
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
		_, err := methodKeepKey.Call(callCtx, h.peers, hub.QUIC, key[:])
		cancel()
		if err != nil {
			return fmt.Errorf("have hub %s keep the state key: %w", hub.ID, err)
		}
	}
	seal, err := key.Seal(cluster)
	if err != nil {
		return err
	}
	res, err := h.node.Decide(ctx, seal)
	if err = res.Failure(err); err != nil {
		return fmt.Errorf("seal the cluster's secrets: %w", err)
	}
	h.log.Info("the cluster's secrets are sealed; older logs, snapshots and backups still have them in clear", "state_key", key.ID())
	return nil
}
