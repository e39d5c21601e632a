package hub

import (
	"context"

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

// signingKeys is the access of the gateway, which is opened first, to the keys that sign identities.
type signingKeys struct{ h *Hub }

// SigningKey implements workload.Keys.
func (k signingKeys) SigningKey(ctx context.Context) (secrets.SigningKey, error) {
	return k.h.secrets.SigningKey(ctx)
}
