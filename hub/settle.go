package hub

import (
	"context"
	"fmt"
	"slices"

	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/pki"
	"skerry/hub/rpc"
	"skerry/hub/state"
)

// bootstrapOrJoin finishes the hub's beginning: it makes or joins the cluster where that is
// still to be done, tells the others where it is reached, and says that it is
// ready. Each step may be done again after a crash.
func (h *Hub) bootstrapOrJoin(ctx context.Context) error {
	select {
	case <-h.node.Ready():
	case <-ctx.Done():
		return nil
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"move in the cluster", h.updateRaftAddress},
		{"make or join the cluster", h.finishBootstrapOrJoin},
		{"register the hub", h.registerHubAddr},
		{"catch up with the cluster", cluster{h}.CatchUp},
	}
	for _, step := range steps {
		err := rpc.Retry(ctx, func() error {
			err := step.do(ctx)
			if err != nil && !rpc.IsPermanent(err) {
				h.log.Info("hub not ready yet", "step", step.name, "error", err)
			}
			return err
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	h.warnOfSharedTokens()
	h.log.Info("hub is ready", "index", h.store.View().Index())
	close(h.ready)
	return nil
}

// updateRaftAddress tells the cluster the hub's address, where Raft has it at another one.
func (h *Hub) updateRaftAddress(ctx context.Context) error {
	voters, err := h.node.Peers()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(voters, func(p state.HubPeer) bool { return p.ID == h.hubID() })
	if i < 0 || voters[i].Addr == h.addr.QUIC {
		return nil
	}
	_, err = h.askToJoin(ctx, state.HubPeer{ID: h.hubID(), Addr: h.addr.QUIC, Voter: voters[i].Voter})
	return err
}

// finishBootstrapOrJoin commits what a bootstrap made, or joins.
func (h *Hub) finishBootstrapOrJoin(ctx context.Context) error {
	p := h.creds.Pending
	if p == nil {
		return nil
	}
	if p.Cluster == nil {
		if err := h.node.Join(ctx, h.askToJoin); err != nil {
			return err
		}
		return pki.DropPending(h.dir)
	}
	res, err := h.node.Apply(ctx, state.ClusterInit{Cluster: *p.Cluster})
	if err != nil {
		return err
	}
	if res.Err != nil { // there is a cluster: it must be this one, by an earlier try
		if c, ok := h.store.View().Cluster(); !ok || c.ID != p.Cluster.ID {
			return res.Err
		}
	}
	if p.Token != nil {
		p.Tokens = append(p.Tokens, *p.Token)
	}
	for _, token := range p.Tokens {
		if err := h.applyAndCheck(ctx, state.Token{Token: token}); err != nil {
			return err
		}
	}
	if err := h.applyAndCheck(ctx, *p.Certificate); err != nil {
		return err
	}
	return pki.DropPending(h.dir)
}

// warnOfSharedTokens names the join tokens of older releases, which admit hubs from
// every machine that an edge's token lies on.
func (h *Hub) warnOfSharedTokens() {
	for t := range h.store.View().Tokens() {
		if slices.Contains(t.Roles, fleet.RoleHub) && slices.Contains(t.Roles, fleet.RoleEdge) {
			h.log.Warn("join token admits hubs as well as edges: make one for each with `skerry token create`, then revoke it",
				"token", t.ID)
		}
	}
}

// registerHubAddr commits where this hub is reached.
func (h *Hub) registerHubAddr(ctx context.Context) error {
	if known, ok := h.store.View().Hub(h.hubID()); ok && known == h.addr {
		return nil
	}
	return h.applyAndCheck(ctx, state.Hub{Hub: h.addr})
}

// applyAndCheck commits a command whose refusal is a failure.
func (h *Hub) applyAndCheck(ctx context.Context, c state.Command) error {
	ctx, cancel := context.WithTimeout(ctx, 3*rpc.CallTimeout)
	defer cancel()
	res, err := h.node.Apply(ctx, c)
	return res.Failure(err)
}

// askToJoin asks every hub that may be reached, until one brings the request to
// the leader.
func (h *Hub) askToJoin(ctx context.Context, p state.HubPeer) (fleet.Index, error) {
	if h.node.IsLeader() {
		return h.node.Add(ctx, p)
	}
	err := error(rpc.NoLeader())
	for _, addr := range h.otherHubAddrs() {
		index, callErr := consensus.AskToAdd(ctx, h.peers, addr, p)
		if callErr == nil {
			return index, nil
		}
		err = fmt.Errorf("ask %s to join: %w", addr, callErr)
		if rpc.IsPermanent(callErr) {
			return 0, err
		}
	}
	return 0, err
}

// otherHubAddrs lists the addresses of all other hubs that this one has ever heard of.
func (h *Hub) otherHubAddrs() []string {
	var out []string
	seen := map[string]bool{h.addr.QUIC: true}
	add := func(addr string) {
		if addr != "" && !seen[addr] {
			seen[addr] = true
			out = append(out, addr)
		}
	}
	if h.creds.Pending != nil {
		for _, a := range h.creds.Pending.Hubs {
			add(a)
		}
	}
	for _, a := range h.store.View().Hubs() {
		if a.ID != h.hubID() {
			add(a.QUIC)
		}
	}
	if voters, err := h.node.Peers(); err == nil {
		for _, v := range voters {
			if v.ID != h.hubID() {
				add(v.Addr)
			}
		}
	}
	return out
}
