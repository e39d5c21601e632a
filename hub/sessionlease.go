package hub

import (
	"context"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/gateway"
)

// probeTimeout is how long another hub may take to say whether an edge answers it.
const probeTimeout = 2 * time.Second

// renewLease renews this hub's lease on the sessions of its edges.
func (h *Hub) renewLease(ctx context.Context) error {
	if h.isLeader() {
		return h.renewLeaseFor(ctx, h.hubID())
	}
	_, err := callLeader[struct{}, struct{}](ctx, h, methodLease, struct{}{})
	if fleet.CodeOf(err) == fleet.CodeUnsupported {
		return nil // a leader of an older release, which asks for no leases
	}
	return err
}

// renewLeaseFor renews a hub's lease, as the leader: a majority confirms that this hub
// still leads, so no later leader can have begun before the renewal was asked for.
func (h *Hub) renewLeaseFor(ctx context.Context, id fleet.HubID) error {
	if err := h.node.Verify(ctx); err != nil {
		return err
	}
	members, err := h.node.Peers()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(members, func(p consensus.Peer) bool { return p.ID == id }) {
		return fleet.Errorf(fleet.CodeForbidden, "renew the lease of hub %s: it is not a member of the cluster", id)
	}
	h.liveness.RenewLease(id)
	return nil
}

// probeFormerSession asks the hub that has a node's session whether its edge answers there.
func (h *Hub) probeFormerSession(ctx context.Context, q formerSession) (gateway.Former, error) {
	if q.Hub == h.hubID() {
		return gateway.Former{Answered: true, Alive: h.gateway.Probe(ctx, q.Node)}, nil
	}
	addr, err := h.hubAddr(q.Hub)
	if err != nil {
		return gateway.Former{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	alive, err := callHub[fleet.NodeID, bool](ctx, h, addr, methodProbe, q.Node)
	return gateway.Former{Answered: err == nil, Alive: alive}, err
}

// formerSessionAsLeader says what is known of a session on another hub. Where that hub does not
// answer, it says for how long its lease was not renewed; that this hub led for all of that
// time is verified afterwards.
func (h *Hub) formerSessionAsLeader(ctx context.Context, q formerSession) (gateway.Former, error) {
	if former, err := h.probeFormerSession(ctx, q); err == nil {
		return former, nil
	}
	silence, leads := h.liveness.HubSilence(q.Hub)
	if !leads {
		return gateway.Former{}, fleet.Errorf(fleet.CodeNotLeader, "hub %s does not lead", h.hubID())
	}
	return gateway.Former{Silence: silence}, h.node.Verify(ctx)
}

// FormerSession asks the hub of a former session, and the leader where that hub does not answer.
func (e remoteSessions) FormerSession(ctx context.Context, hub fleet.HubID, node fleet.NodeID) (gateway.Former, error) {
	q := formerSession{Hub: hub, Node: node}
	if e.h.isLeader() {
		return e.h.formerSessionAsLeader(ctx, q)
	}
	if former, err := e.h.probeFormerSession(ctx, q); err == nil {
		return former, nil
	}
	former, err := callLeader[formerSession, gateway.Former](ctx, e.h, methodFormer, q)
	if fleet.CodeOf(err) == fleet.CodeUnsupported {
		return gateway.Former{Silence: gateway.FormerWait}, nil // a leader of an older release knows no leases
	}
	return former, err
}
