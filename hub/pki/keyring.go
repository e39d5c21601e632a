package pki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/internal/pace"
)

// Calls between hubs about the state key, which encrypts the cluster's secrets.
const (
	methodGetKey  rpc.Method[string, []byte]   = "identity.statekey" // by the key's name
	methodKeepKey rpc.Method[[]byte, struct{}] = "identity.keep-statekey"
)

// sealRetryInterval is the pause between two tries to seal the secrets.
const sealRetryInterval = 10 * time.Second

// KeyringConfig of a Keyring. All is required.
type KeyringConfig struct {
	Keys   *StateKeys
	Hub    fleet.HubID
	State  *state.Store
	Apply  state.Applier // as the leader
	Peers  *rpc.Peers
	Others func() []string // addresses of all other hubs
	Log    *slog.Logger
}

// Keyring opens the cluster's sealed secrets with the state keys that this hub has. It is safe for concurrent use.
type Keyring struct{ cfg KeyringConfig }

// NewKeyring returns a keyring. It starts nothing.
func NewKeyring(cfg KeyringConfig) *Keyring { return &Keyring{cfg} }

// ServeCalls registers the handlers of other hubs' calls.
func (k *Keyring) ServeCalls() {
	methodGetKey.Handle(k.cfg.Peers, k.serveStateKey)
	methodKeepKey.Handle(k.cfg.Peers, k.storeStateKey)
}

// Open returns the cluster with its secrets unencrypted.
func (k *Keyring) Open(c state.Cluster) (state.Cluster, error) {
	if _, ok := k.cfg.Keys.findKey(c.SealKey); !ok && len(c.Sealed) > 0 {
		return state.Cluster{}, k.cfg.Keys.missingKey(fmt.Sprintf("open the secrets of cluster %s: they are", fleet.Short(c.ID)), c.SealKey)
	}
	return OpenCluster(c, k.cfg.Keys.Known())
}

// wrapLabel begins the additional data of a wrapped key.
const wrapLabel = "skerry-wrapped-key/1\x00"

// Wrap encrypts a key that goes into the state, with the state key that seals the cluster's secrets, and returns that
// key's name. bound is what Unwrap has to give again.
func (k *Keyring) Wrap(plain, bound []byte) (wrapped []byte, by string, err error) {
	cluster, ok := k.cfg.State.View().Cluster()
	if !ok || len(cluster.Sealed) == 0 {
		return nil, "", fleet.Errorf(fleet.CodeUnavailable, "encrypt a key of the cluster: there is no state key yet to encrypt it with").
			WithHint("it gets one as soon as every hub runs this release")
	}
	key, ok := k.cfg.Keys.findKey(cluster.SealKey)
	if !ok {
		return nil, "", k.cfg.Keys.missingKey("wrap a key: the cluster's secrets are", cluster.SealKey)
	}
	wrapped, err = key.encryptBytes(plain, append([]byte(wrapLabel), bound...))
	return wrapped, key.ID(), err
}

// Unwrap reverses Wrap. CodeUnavailable: this hub does not have the state key, and its error says what to do.
// CodeInvalid: the wrapped key is damaged.
func (k *Keyring) Unwrap(by string, wrapped, bound []byte) ([]byte, error) {
	key, ok := k.cfg.Keys.findKey(by)
	if !ok {
		return nil, k.cfg.Keys.missingKey("unwrap a key: it is", by)
	}
	return key.decryptBytes("a wrapped key", wrapped, append([]byte(wrapLabel), bound...))
}

// FetchMissing settles the keys on the disk, and makes sure that this hub has the state key that seals the cluster's secrets.
// If it lacks that, it asks the other hubs one after the other until one answers with the key, and stores it. If none has it,
// FetchMissing returns their errors.
func (k *Keyring) FetchMissing(ctx context.Context) error {
	_ = k.cfg.Keys.Settle(ctx) // which logs its error; missingKey has it where it matters
	cluster, ok := k.cfg.State.View().Cluster()
	if !ok || len(cluster.Sealed) == 0 {
		return nil
	}
	if _, ok := k.cfg.Keys.findKey(cluster.SealKey); ok {
		return nil
	}
	_, err := k.Open(*cluster)
	for _, addr := range k.cfg.Others() {
		callCtx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
		b, callErr := methodGetKey.Call(callCtx, k.cfg.Peers, addr, cluster.SealKey)
		cancel()
		if callErr == nil {
			var key StateKey
			if key, callErr = ParseStateKey(b); callErr == nil && key.ID() == cluster.SealKey {
				k.cfg.Log.Info("state key fetched from another hub", "state_key", key.ID(), "addr", addr)
				if err := k.cfg.Keys.Add(ctx, key); err != nil {
					k.cfg.Keys.holdInMemory(key)
					return err
				}
				return nil
			}
		}
		if callErr != nil {
			err = errors.Join(err, fmt.Errorf("ask the hub at %s for the state key: %w", addr, callErr))
		}
	}
	return err
}

// serveStateKey returns the key with an id to another hub of the cluster.
func (k *Keyring) serveStateKey(_ context.Context, from, id string) ([]byte, error) {
	key, ok := k.cfg.Keys.findKey(id)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotFound, "fetch the state key %s from hub %s: it does not have it", id, k.cfg.Hub)
	}
	k.cfg.Log.Info("state key given to another hub", "state_key", id, "hub", from)
	return key[:], nil
}

// storeStateKey adds a key with which the leader is about to seal the secrets.
func (k *Keyring) storeStateKey(ctx context.Context, _ string, b []byte) (struct{}, error) {
	key, err := ParseStateKey(b)
	if err == nil {
		err = k.cfg.Keys.Add(ctx, key)
	}
	return struct{}{}, err
}

// SealSecrets runs on the leader until the secrets in the state are sealed or ctx ends. It replaces
// the plain secrets that an older release left, once every hub has the key: a hub of an older release
// would not understand the entry. Failures are logged and tried again.
func (k *Keyring) SealSecrets(ctx context.Context) error {
	for said := ""; ; {
		watch := k.cfg.State.Watch()
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
		err := k.sealClusterSecrets(ctx, *cluster)
		if err == nil {
			continue
		}
		if text := err.Error(); ctx.Err() == nil && text != said {
			said = text
			k.cfg.Log.Warn("the CA's key is stored unencrypted in the state until every hub runs this release; trying again", "error", err)
		}
		if !pace.Rest(ctx, sealRetryInterval) {
			return nil
		}
	}
}

// sealClusterSecrets gives the newest key to all other hubs, then commits the sealed secrets.
func (k *Keyring) sealClusterSecrets(ctx context.Context, cluster state.Cluster) error {
	keys := k.cfg.Keys.Known()
	if len(keys) == 0 {
		keys = []StateKey{NewStateKey()}
		if err := k.cfg.Keys.Add(ctx, keys[0]); err != nil {
			return err
		}
	}
	key := keys[len(keys)-1]
	for _, hub := range k.cfg.State.View().Hubs() {
		if hub.ID == k.cfg.Hub {
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
		_, err := methodKeepKey.Call(callCtx, k.cfg.Peers, hub.QUIC, key[:])
		cancel()
		if err != nil {
			return fmt.Errorf("have hub %s keep the state key: %w", hub.ID, err)
		}
	}
	seal, err := key.Seal(cluster)
	if err != nil {
		return err
	}
	res, err := k.cfg.Apply.Apply(ctx, seal)
	if err = res.Failure(err); err != nil {
		return fmt.Errorf("seal the cluster's secrets: %w", err)
	}
	k.cfg.Log.Info("the cluster's secrets are sealed; older logs, snapshots and backups still have them unencrypted", "state_key", key.ID())
	return nil
}
