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

// Cluster returns the cluster with its secrets unencrypted.
func (r StateRegistry) Cluster() (state.Cluster, error) {
	c, ok := r.State.View().Cluster()
	if !ok {
		return state.Cluster{}, fleet.Errorf(fleet.CodeUnavailable, "enrol: this hub is not part of a cluster yet")
	}
	return r.Keyring.Open(*c)
}

// StateKey returns the key that the cluster's secrets are sealed with.
func (r StateRegistry) StateKey() []byte {
	if c, ok := r.State.View().Cluster(); ok {
		if k, ok := r.Keyring.keyByID(c.SealKey); ok {
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
	ctx, cancel := context.WithTimeout(ctx, 3*rpc.CallTimeout)
	defer cancel()
	res, err := r.Apply.Apply(ctx, c)
	return res.Failure(err)
}
