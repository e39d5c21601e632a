package hub

import (
	"context"

	"skerry/fleet"
	"skerry/hub/state"
)

// RemovePeer takes a hub's vote, at the leader, and then has edges dial it no more. A hub
// that runs and is removed joins again when it starts: it has to be stopped.
func (c cluster) RemovePeer(ctx context.Context, id fleet.HubID) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var err error
	if c.h.isLeader() {
		err = c.h.node.Remove(ctx, id)
	} else {
		_, err = callLeader[fleet.HubID, struct{}](ctx, c.h, methodRemove, id)
	}
	if err != nil {
		return err
	}
	addr := state.HubAddr{ID: id}
	if known, ok := c.h.store.View().Hub(id); ok {
		addr = known
	}
	return c.h.applyAndCheck(ctx, state.Hub{Hub: addr, Removed: true})
}

func (c cluster) TransferLead(ctx context.Context, id fleet.HubID) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if c.h.isLeader() {
		return c.h.node.Transfer(ctx, id)
	}
	_, err := callLeader[fleet.HubID, struct{}](ctx, c.h, methodLead, id)
	return err
}
