package hub

import (
	"context"
	"crypto/rsa"

	"skerry/fleet"
	"skerry/hub/secrets"
	"skerry/hub/state"
)

// openSecrets creates the components for variables, which need the keyring.
func (h *Hub) openSecrets() error {
	log := h.log.With("component", "secrets")
	h.secrets = secrets.New(secrets.Config{
		State: h.store, Apply: h.node, Lead: h.leaderApplier(), Wrap: h.keyring, Signs: h.cfg.OIDCIssuer != "", Now: h.cfg.Now, Log: log,
	})
	h.locks = secrets.NewLocks(secrets.LocksConfig{Hub: h.hubID(), State: h.store, Lead: h.leaderApplier(), Peers: h.peers, Log: log})
	return nil
}

// decryptVariable decrypts a variable for an edge.
func (h *Hub) decryptVariable(v *state.Variable) (fleet.VariableItems, error) {
	return h.secrets.Decrypt(v)
}

// signingKey returns the key that signs identities, and its id, to the gateway, which is opened before the secrets.
func (h *Hub) signingKey(ctx context.Context) (string, *rsa.PrivateKey, error) {
	key, err := h.secrets.SigningKey(ctx)
	return key.KeyID, key.Private, err
}
