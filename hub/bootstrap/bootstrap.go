// Package bootstrap brings a hub that has just started into its cluster: it makes or joins the
// cluster, and tells the others where this hub is reached. Package hub runs it beside the other
// components. It starts no goroutine, and removes the pending step of pki's folder when it is done.
package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/pki"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/internal/datadir"
)

// Config has what a Bootstrap works with. All fields but Pending are needed.
type Config struct {
	Addr    state.HubAddr // this hub, and where the others reach it
	Pending *pki.Pending  // what an earlier start left to do; nil: nothing
	Dir     *datadir.Dir
	State   *state.Store
	Raft    *consensus.Node
	Peers   *rpc.Peers
	Log     *slog.Logger
}

// Bootstrap is the beginning of one hub's run.
type Bootstrap struct {
	cfg   Config
	ready chan struct{}
}

// New starts nothing.
func New(cfg Config) *Bootstrap { return &Bootstrap{cfg: cfg, ready: make(chan struct{})} }

// Ready is closed when the cluster knows the hub and its address, and the hub's state holds
// everything that was committed by then.
func (b *Bootstrap) Ready() <-chan struct{} { return b.ready }

// Run makes or joins the cluster where that is still to be done, registers the hub's address, and
// closes Ready. Each step can be repeated after a crash.
func (b *Bootstrap) Run(ctx context.Context) error {
	select {
	case <-b.cfg.Raft.Ready():
	case <-ctx.Done():
		return nil
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"move in the cluster", b.updateRaftAddress},
		{"make or join the cluster", b.finishBootstrapOrJoin},
		{"register the hub", b.registerHubAddr},
		{"catch up with the cluster", b.catchUp},
	}
	for _, step := range steps {
		err := rpc.Retry(ctx, func() error {
			err := step.do(ctx)
			if err != nil && !rpc.IsPermanent(err) {
				b.cfg.Log.Info("hub not ready yet", "step", step.name, "error", err)
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
	b.warnOfSharedTokens()
	b.cfg.Log.Info("hub is ready", "index", b.cfg.State.View().Index())
	close(b.ready)
	return nil
}

// updateRaftAddress tells the cluster the hub's address, where Raft has it at another one.
func (b *Bootstrap) updateRaftAddress(ctx context.Context) error {
	voters, err := b.cfg.Raft.Peers()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(voters, func(p state.HubPeer) bool { return p.ID == b.cfg.Addr.ID })
	if i < 0 || voters[i].Addr == b.cfg.Addr.QUIC {
		return nil
	}
	_, err = b.askToJoin(ctx, state.HubPeer{ID: b.cfg.Addr.ID, Addr: b.cfg.Addr.QUIC, Voter: voters[i].Voter})
	return err
}

// finishBootstrapOrJoin commits the cluster that a bootstrap made, or joins one.
func (b *Bootstrap) finishBootstrapOrJoin(ctx context.Context) error {
	p := b.cfg.Pending
	if p == nil {
		return nil
	}
	if p.Cluster == nil {
		if err := b.cfg.Raft.Join(ctx, b.askToJoin); err != nil {
			return err
		}
		return pki.DropPending(b.cfg.Dir)
	}
	res, err := b.cfg.Raft.Apply(ctx, state.ClusterInit{Cluster: *p.Cluster})
	if err != nil {
		return err
	}
	if res.Err != nil { // there is a cluster: it must be this one, by an earlier try
		if c, ok := b.cfg.State.View().Cluster(); !ok || c.ID != p.Cluster.ID {
			return res.Err
		}
	}
	if p.Token != nil {
		p.Tokens = append(p.Tokens, *p.Token)
	}
	for _, token := range p.Tokens {
		if err := b.applyAndCheck(ctx, state.Token{Token: token}); err != nil {
			return err
		}
	}
	if err := b.applyAndCheck(ctx, *p.Certificate); err != nil {
		return err
	}
	return pki.DropPending(b.cfg.Dir)
}

// warnOfSharedTokens names the join tokens of older releases, which admit hubs from
// every machine that an edge's token lies on.
func (b *Bootstrap) warnOfSharedTokens() {
	for t := range b.cfg.State.View().Tokens() {
		if slices.Contains(t.Roles, fleet.RoleHub) && slices.Contains(t.Roles, fleet.RoleEdge) {
			b.cfg.Log.Warn("join token admits hubs as well as edges: make one for each with `skerry token create`, then revoke it",
				"token", t.ID)
		}
	}
}

// registerHubAddr commits where this hub is reached.
func (b *Bootstrap) registerHubAddr(ctx context.Context) error {
	if known, ok := b.cfg.State.View().Hub(b.cfg.Addr.ID); ok && known == b.cfg.Addr {
		return nil
	}
	return b.applyAndCheck(ctx, state.Hub{Hub: b.cfg.Addr})
}

// applyAndCheck commits a command whose refusal is a failure.
func (b *Bootstrap) applyAndCheck(ctx context.Context, c state.Command) error {
	ctx, cancel := context.WithTimeout(ctx, 3*rpc.CallTimeout)
	defer cancel()
	res, err := b.cfg.Raft.Apply(ctx, c)
	return res.Failure(err)
}

func (b *Bootstrap) catchUp(ctx context.Context) error { return b.cfg.Raft.CatchUp(ctx, b.cfg.Peers) }

// askToJoin asks every hub that may be reached, until one brings the request to
// the leader.
func (b *Bootstrap) askToJoin(ctx context.Context, p state.HubPeer) (fleet.Index, error) {
	if b.cfg.Raft.IsLeader() {
		return b.cfg.Raft.Add(ctx, p)
	}
	err := error(rpc.NoLeader())
	for _, addr := range b.OtherHubs() {
		index, callErr := consensus.AskToAdd(ctx, b.cfg.Peers, addr, p)
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

// OtherHubs lists the QUIC addresses of all other hubs that this one has ever heard of.
func (b *Bootstrap) OtherHubs() []string {
	var out []string
	seen := map[string]bool{b.cfg.Addr.QUIC: true}
	add := func(addr string) {
		if addr != "" && !seen[addr] {
			seen[addr] = true
			out = append(out, addr)
		}
	}
	if b.cfg.Pending != nil {
		for _, a := range b.cfg.Pending.Hubs {
			add(a)
		}
	}
	for _, a := range b.cfg.State.View().Hubs() {
		if a.ID != b.cfg.Addr.ID {
			add(a.QUIC)
		}
	}
	if voters, err := b.cfg.Raft.Peers(); err == nil {
		for _, v := range voters {
			if v.ID != b.cfg.Addr.ID {
				add(v.Addr)
			}
		}
	}
	return out
}
