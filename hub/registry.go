package hub

import (
	"context"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/state"
)

// registry is what enrolment sees of the cluster.
type registry struct{ h *Hub }

func (r registry) Cluster() (state.Cluster, error) {
	c, ok := r.h.store.View().Cluster()
	if !ok {
		return state.Cluster{}, fleet.Errorf(fleet.CodeUnavailable, "enrol: this hub is not part of a cluster yet")
	}
	return pki.OpenCluster(*c, r.h.stateKeys.allStateKeys())
}

func (r registry) StateKey() []byte {
	if c, ok := r.h.store.View().Cluster(); ok {
		if k, ok := r.h.stateKeys.stateKeyByID(c.SealKey); ok {
			return k[:]
		}
	}
	return nil
}

func (r registry) Token(id string) (*state.JoinToken, bool) { return r.h.store.View().Token(id) }

func (r registry) Known(role, name string) bool {
	view := r.h.store.View()
	if role == fleet.RoleHub {
		_, ok := view.Hub(fleet.HubID(name))
		return ok
	}
	_, ok := view.Node(fleet.NodeID(name))
	return ok
}

func (r registry) Revocation(id fleet.NodeID) (*fleet.Revocation, bool) {
	return r.h.store.View().Revocation(id)
}

func (r registry) Record(ctx context.Context, c state.Certificate) error {
	return r.h.applyAndCheck(ctx, c)
}
