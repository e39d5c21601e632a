package pki

import (
	"context"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
)

// StateRegistry is the Registry that reads and commits the replicated state.
type StateRegistry struct {
	State   *state.Store
	Apply   state.Applier
	Keyring *Keyring
}

// Cluster returns the cluster with its secrets unencrypted. Its CA is the one that signs now, and its gossip key the one
// that hubs encrypt with now.
func (r StateRegistry) Cluster() (state.Cluster, error) {
	view := r.State.View()
	c, ok := view.Cluster()
	if !ok {
		return state.Cluster{}, fleet.Errorf(fleet.CodeUnavailable, "enrol: this hub is not part of a cluster yet")
	}
	opened, err := r.Keyring.Open(*c)
	if err != nil {
		return state.Cluster{}, err
	}
	cas := view.CAs()
	signing := cas[cas.Signing()]
	opened.CACert = signing.Cert
	if opened.CAKey, err = r.openCAKey(signing); err != nil {
		return state.Cluster{}, err
	}
	gossip, err := r.Keyring.GossipKeys(view, opened.GossipKey)
	if err != nil {
		return state.Cluster{}, err
	}
	opened.GossipKey = gossip[0]
	return opened, nil
}

// openCAKey returns the key (PKCS #8 DER) of a CA.
func (r StateRegistry) openCAKey(ca *state.CA) ([]byte, error) {
	if ca.Number > 1 {
		return r.Keyring.Unwrap(ca.WrappedBy, ca.Wrapped, ca.Cert)
	}
	c, ok := r.State.View().Cluster()
	if !ok {
		return nil, fleet.Errorf(fleet.CodeUnavailable, "open the key of the CA: this hub is not part of a cluster yet")
	}
	opened, err := r.Keyring.Open(*c)
	return opened.CAKey, err
}

// openAuthority returns a CA with its key.
func (r StateRegistry) openAuthority(ca *state.CA) (*Authority, error) {
	key, err := r.openCAKey(ca)
	if err != nil {
		return nil, err
	}
	return parseAuthority(ca.Cert, key)
}

// CAs returns the CAs of the cluster.
func (r StateRegistry) CAs() state.CAs { return r.State.View().CAs() }

// AdmittedKey returns the SHA-256 of the public key of a hub or an edge, by its common name; nil: it is not known.
func (r StateRegistry) AdmittedKey(subject string) []byte {
	return r.State.View().AdmittedKey(subject)
}

// StateKey returns the key that the cluster's secrets are sealed with.
func (r StateRegistry) StateKey() []byte {
	if c, ok := r.State.View().Cluster(); ok {
		if k, ok := r.Keyring.cfg.Keys.findKey(c.SealKey); ok {
			return k[:]
		}
	}
	return nil
}

// Token returns the join token of a name.
func (r StateRegistry) Token(id string) (*state.JoinToken, bool) { return r.State.View().Token(id) }

// Known reports whether the state has a hub or an edge of that name.
func (r StateRegistry) Known(role, name string) bool {
	view := r.State.View()
	if role == fleet.RoleHub {
		_, ok := view.Hub(fleet.HubID(name))
		return ok
	}
	_, ok := view.Node(fleet.NodeID(name))
	return ok
}

// Revocation returns why an edge was revoked.
func (r StateRegistry) Revocation(id fleet.NodeID) (*fleet.Revocation, bool) {
	return r.State.View().Revocation(id)
}

// Record commits that a certificate was issued.
func (r StateRegistry) Record(ctx context.Context, c state.Certificate) error {
	return r.commitCommand(ctx, c)
}

// commitCommand commits a command. It has time for an election.
func (r StateRegistry) commitCommand(ctx context.Context, c state.Command) error {
	ctx, cancel := context.WithTimeout(ctx, 3*rpc.CallTimeout)
	defer cancel()
	res, err := r.Apply.Apply(ctx, c)
	return res.Failure(err)
}
