package pki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/internal/pace"
)

// Calls between hubs about the state key, which encrypts the cluster's secrets.
const (
	methodGetKey      rpc.Method[string, []byte]   = "identity.statekey" // by the key's name
	methodKeepKey     rpc.Method[[]byte, struct{}] = "identity.keep-statekey"
	methodKeepNextKey rpc.Method[[]byte, struct{}] = "identity.keep-next-statekey" // of a rotation: older releases have none
)

// sealRetryInterval is the pause between two tries to seal the secrets, and to go on with a rotation.
const sealRetryInterval = 10 * time.Second

// StateKeyCalls asks other hubs about state keys.
type StateKeyCalls interface {
	FetchKey(ctx context.Context, addr, id string) ([]byte, error)
	KeepKey(ctx context.Context, addr string, key []byte) error
	// KeepNextKey has a hub keep the key of a rotation. CodeUnsupported: the hub is of an older release.
	KeepNextKey(ctx context.Context, addr string, key []byte) error
}

// peerCalls are the StateKeyCalls over the hubs' own connections.
type peerCalls struct{ peers *rpc.Peers }

func (c peerCalls) FetchKey(ctx context.Context, addr, id string) ([]byte, error) {
	return methodGetKey.Call(ctx, c.peers, addr, id)
}

func (c peerCalls) KeepKey(ctx context.Context, addr string, key []byte) error {
	_, err := methodKeepKey.Call(ctx, c.peers, addr, key)
	return err
}

func (c peerCalls) KeepNextKey(ctx context.Context, addr string, key []byte) error {
	_, err := methodKeepNextKey.Call(ctx, c.peers, addr, key)
	return err
}

// KeyringConfig of a Keyring. All but Calls is required.
type KeyringConfig struct {
	Keys   *StateKeys
	Hub    fleet.HubID
	State  *state.Store
	Apply  state.Applier // from any hub
	Lead   state.Applier // as the leader
	Peers  *rpc.Peers
	Calls  StateKeyCalls   // nil: by Peers
	Others func() []string // addresses of all other hubs
	// Voters are the hubs that vote in Raft.
	Voters func() ([]fleet.HubID, error)
	// Bound returns what binds a wrapped secret of the state to its place, as who wrapped it gave it to Wrap.
	Bound func(*state.View, state.RewrappedSecret) []byte
	Now   func() time.Time
	Log   *slog.Logger
}

// Keyring opens the cluster's sealed secrets with the state keys that this hub has, and replaces these. It is safe for
// concurrent use.
type Keyring struct{ cfg KeyringConfig }

// NewKeyring returns a keyring. It starts nothing.
func NewKeyring(cfg KeyringConfig) *Keyring {
	if cfg.Calls == nil {
		cfg.Calls = peerCalls{cfg.Peers}
	}
	return &Keyring{cfg}
}

// ServeCalls registers the handlers of other hubs' calls.
func (k *Keyring) ServeCalls() {
	methodGetKey.Handle(k.cfg.Peers, k.serveStateKey)
	methodKeepKey.Handle(k.cfg.Peers, k.storeStateKey)
	methodKeepNextKey.Handle(k.cfg.Peers, k.storeStateKey)
}

// Open returns the cluster with its secrets unencrypted.
func (k *Keyring) Open(c state.Cluster) (state.Cluster, error) {
	if _, ok := k.cfg.Keys.findKey(c.SealKey); !ok && len(c.Sealed) > 0 {
		return state.Cluster{}, k.missingKey(fmt.Sprintf("open the secrets of cluster %s: they are", fleet.Short(c.ID)), c.SealKey)
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
		return nil, "", k.missingKey("wrap a key: the cluster's secrets are", cluster.SealKey)
	}
	wrapped, err = key.wrapBytes(plain, bound)
	return wrapped, key.ID(), err
}

// wrapBytes encrypts a secret that goes into the state.
func (k StateKey) wrapBytes(plain, bound []byte) ([]byte, error) {
	return k.encryptBytes(plain, append([]byte(wrapLabel), bound...))
}

// Unwrap reverses Wrap. CodeUnavailable: this hub does not have the state key, and its error says what to do.
// CodeInvalid: the wrapped key is damaged.
func (k *Keyring) Unwrap(by string, wrapped, bound []byte) ([]byte, error) {
	key, ok := k.cfg.Keys.findKey(by)
	if !ok {
		return nil, k.missingKey("unwrap a key: it is", by)
	}
	return key.decryptBytes("a wrapped key", wrapped, append([]byte(wrapLabel), bound...))
}

// missingKey is StateKeys.missingKey, and says so if the key was forgotten.
func (k *Keyring) missingKey(what, id string) error {
	err := k.cfg.Keys.missingKey(what, id)
	for _, row := range k.cfg.State.View().StateKeys() {
		if row.ID == id && row.ForgottenAt != 0 {
			return fleet.Errorf(fleet.CodeUnavailable, "%s; the cluster has forgotten that key at %s", fleet.AsError(err).Message, formatTime(time.Unix(0, row.ForgottenAt))).
				WithHint("copy the file identity/state-key from a backup of a hub that is older than that into the data directory of this hub, and restart it")
		}
	}
	return err
}

// FetchMissing settles the keys on the disk, and fetches the state keys that this hub lacks from other hubs: without the one that
// seals the cluster's secrets it returns their errors. One that the cluster has forgotten is kept in memory alone, while it is
// needed. caughtUp is false while the state may be that of an old snapshot: then the key that seals is fetched, into memory.
func (k *Keyring) FetchMissing(ctx context.Context, caughtUp bool) error {
	_ = k.cfg.Keys.Settle(ctx) // which logs its error; missingKey has it where it matters
	view := k.cfg.State.View()
	cluster, ok := view.Cluster()
	if !ok || len(cluster.Sealed) == 0 {
		return nil
	}
	var err error
	if _, known := k.cfg.Keys.findKey(cluster.SealKey); !known {
		_, err = k.Open(*cluster)
		err = k.fetchKey(ctx, cluster.SealKey, caughtUp, err)
	}
	if !caughtUp {
		return err
	}
	kept, named := keptStateKeys(view), namedStateKeys(view)
	err = errors.Join(err, k.settleBorrowed(ctx, kept, named))
	for _, id := range named {
		if _, known := k.cfg.Keys.findKey(id); !known && id != cluster.SealKey {
			_ = k.fetchKey(ctx, id, slices.Contains(kept, id), nil) // whoever needs it later gets the error
		}
	}
	return err
}

// settleBorrowed stores the borrowed keys that are kept, and drops those that the state does not name.
func (k *Keyring) settleBorrowed(ctx context.Context, kept, named []string) (err error) {
	for _, key := range k.cfg.Keys.borrowedKeys() {
		id := key.ID()
		if slices.Contains(kept, id) {
			if stored := k.keepKey(ctx, key); stored != nil {
				err = errors.Join(err, stored)
				continue
			}
		} else if slices.Contains(named, id) {
			continue
		}
		k.cfg.Keys.dropBorrowed(id)
	}
	return err
}

// fetchKey asks the other hubs for a key, and stores it, or without store borrows it. Without an answer it returns missing and
// their errors.
func (k *Keyring) fetchKey(ctx context.Context, id string, store bool, missing error) error {
	err := missing
	for _, addr := range k.cfg.Others() {
		callCtx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
		b, callErr := k.cfg.Calls.FetchKey(callCtx, addr, id)
		cancel()
		if callErr == nil {
			var key StateKey
			if key, callErr = ParseStateKey(b); callErr == nil && key.ID() == id {
				k.cfg.Log.Info("state key fetched from another hub", "state_key", id, "addr", addr, "missing_in", k.cfg.Keys.filePath())
				if !store {
					k.cfg.Keys.borrowKey(key)
					return nil
				}
				if err := k.keepKey(ctx, key); err != nil {
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

// keepKey stores a key. If there are too many, it forgets the oldest one that the state does not name.
func (k *Keyring) keepKey(ctx context.Context, key StateKey) error {
	if view := k.cfg.State.View(); k.cfg.Keys.isFull() && !k.cfg.Keys.IsStored(key.ID()) {
		if _, known := view.Cluster(); known {
			stray := k.cfg.Keys.oldestBut(namedStateKeys(view))
			if stray == "" {
				return fleet.Errorf(fleet.CodeConflict, "keep the state key %s: this hub has %d, and all are in use", key.ID(), maxStateKeys)
			}
			if err := k.cfg.Keys.Forget(stray); err != nil {
				return err
			}
		}
	}
	return k.cfg.Keys.Add(ctx, key)
}

// keptStateKeys returns the names of the state keys that are not forgotten.
func keptStateKeys(v *state.View) (ids []string) {
	if cluster, ok := v.Cluster(); ok && cluster.SealKey != "" {
		ids = append(ids, cluster.SealKey)
	}
	for _, row := range v.StateKeys() {
		if row.ForgottenAt == 0 {
			ids = append(ids, row.ID)
		}
	}
	return ids
}

// namedStateKeys returns the names of the state keys that are kept, or with which something in the state is encrypted.
func namedStateKeys(v *state.View) []string {
	ids := keptStateKeys(v)
	for _, by := range v.WrappedSecrets() {
		ids = append(ids, by)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
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

// storeStateKey adds a key with which the secrets are about to be sealed.
func (k *Keyring) storeStateKey(ctx context.Context, _ string, b []byte) (struct{}, error) {
	key, err := ParseStateKey(b)
	if err == nil {
		err = k.keepKey(ctx, key)
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
		if err := k.keepKey(ctx, keys[0]); err != nil {
			return err
		}
	}
	key := keys[len(keys)-1]
	for _, hub := range k.cfg.State.View().Hubs() {
		if hub.ID == k.cfg.Hub {
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
		err := k.cfg.Calls.KeepKey(callCtx, hub.QUIC, key[:])
		cancel()
		if err != nil {
			return fmt.Errorf("have hub %s keep the state key: %w", hub.ID, err)
		}
	}
	seal, err := key.Seal(cluster)
	if err != nil {
		return err
	}
	res, err := k.cfg.Lead.Apply(ctx, seal)
	if err = res.Failure(err); err != nil {
		return fmt.Errorf("seal the cluster's secrets: %w", err)
	}
	k.cfg.Log.Info("the cluster's secrets are sealed; older logs, snapshots and backups still have them unencrypted", "state_key", key.ID())
	return nil
}
