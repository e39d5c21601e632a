package hub

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"skerry/fleet"
	"skerry/hub/login"
	"skerry/hub/pki"
	"skerry/hub/secrets"
	"skerry/hub/state"
	"skerry/hub/transit"
)

// Ways to keep the state key on a hub's disk, by the names of Nomad's keyring blocks.
const (
	keyringFile    = "file"
	keyringTransit = "transit"
)

// firstSettleTimeout is how long a start waits for the server that wraps the state key. The hub tries again later.
const firstSettleTimeout = 5 * time.Second

// openStateKeys opens the state keys in the data directory.
func (h *Hub) openStateKeys(ctx context.Context) (err error) {
	cfg := pki.StateKeysConfig{Dir: h.dir.File(pki.Folder), Log: h.log.With("component", "pki")}
	if cfg.Wrapper, cfg.Wrap, err = h.cfg.keyWrapper(); err != nil {
		return err
	}
	if h.stateKeys, err = pki.OpenStateKeys(cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, firstSettleTimeout)
	defer cancel()
	_ = h.stateKeys.Settle(ctx) // it logs its error; other hubs may have the key
	return nil
}

// gossipKeyInterval is how often a hub looks for gossip keys besides: it may learn a state key that the state has named.
const gossipKeyInterval = 30 * time.Second

// followGossipKeys has the gossip use the keys that belong to the state keys, until ctx ends.
func (h *Hub) followGossipKeys(ctx context.Context) error {
	stored := h.creds.GossipKey
	for ctx.Err() == nil {
		watch := h.store.Watch()
		keys, err := h.keyring.GossipKeys(watch, stored)
		if err == nil {
			err = h.members.UseKeys(keys)
		}
		if err == nil && !bytes.Equal(keys[0], stored) {
			if err = pki.SaveGossipKey(h.dir, keys[0]); err == nil {
				stored = keys[0]
			}
		}
		if err != nil {
			h.log.Warn("the gossip key is not replaced", "error", err)
		}
		timed, cancel := context.WithTimeout(ctx, gossipKeyInterval)
		_ = watch.Changed(timed) // also the end of the time is a reason to look again
		cancel()
	}
	return nil
}

// keyWrapper returns what wraps the state keys on the disk, and whether they have to be wrapped: without, it opens those that
// were before.
func (c Config) keyWrapper() (w pki.KeyWrapper, wrap bool, err error) {
	switch c.Keyring {
	case "", keyringFile, keyringTransit:
	case "awskms", "azurekeyvault", "gcpckms":
		return nil, false, fleet.Errorf(fleet.CodeUnsupported, "keep the state key by %s: this release does not support it", c.Keyring).
			WithHint("use --keyring transit, with Vault or OpenBao in between, or --keyring file")
	default:
		return nil, false, fleet.Errorf(fleet.CodeInvalid, "keep the state key by %q: there is no such way", c.Keyring).
			WithHint("the ways are file and transit")
	}
	wrap = c.Keyring == keyringTransit
	if !wrap && c.KeyringTransit == (transit.Config{}) {
		return nil, false, nil
	}
	client, err := transit.New(c.KeyringTransit)
	if err != nil {
		return nil, false, err
	}
	return client, wrap, nil
}

// raftVoters returns the hubs that vote in Raft.
func (h *Hub) raftVoters() (ids []fleet.HubID, err error) {
	peers, err := h.node.Peers()
	for _, p := range peers {
		if p.Voter {
			ids = append(ids, p.ID)
		}
	}
	return ids, err
}

// boundOfSecret returns what binds a wrapped secret of the state to its place, as the component that wraps it says.
func boundOfSecret(v *state.View, r state.RewrappedSecret) []byte {
	switch r.Kind {
	case state.WrappedRootKey:
		return []byte(r.Name)
	case state.WrappedSigningKey:
		return secrets.SigningBound(r.Name)
	case state.WrappedAuthMethod:
		return login.BoundToMethod(r.Name)
	case state.WrappedCA:
		for _, ca := range v.CAs() {
			if strconv.FormatUint(ca.Number, 10) == r.Name {
				return ca.Cert
			}
		}
	}
	return nil
}
