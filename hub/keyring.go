package hub

import (
	"context"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
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
