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

// Config configures a Bootstrap. All fields but Pending are required.
type Config struct {
	Addr    state.HubAddr // id and addresses of this hub
	Pending *pki.Pending  // the unfinished bootstrap or join of this data directory; nil: it is done
	Dir     *datadir.Dir
	State   *state.Store
	Raft    *consensus.Node
	Peers   *rpc.Peers
	Log     *slog.Logger
}

// Bootstrap makes this hub a registered member of its cluster, once for each start.
type Bootstrap struct {
	cfg   Config
	ready chan struct{}
}

// New returns a Bootstrap and starts nothing; Run does the work.
func New(cfg Config) *Bootstrap { return &Bootstrap{cfg: cfg, ready: make(chan struct{})} }

// Ready returns a channel that is closed when the cluster knows the hub and its address, and the hub's state holds
// every entry that was committed by then.
func (b *Bootstrap) Ready() <-chan struct{} { return b.ready }

// Run makes or joins the cluster if that is not done yet, registers the hub's address, and closes Ready. It retries
// each step until it succeeds, ctx ends (nil is returned), or the error is permanent. After a crash it can run
// again.
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

// updateRaftAddress changes this hub's address in the Raft configuration, if that has another one.
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

// finishBootstrapOrJoin finishes Config.Pending: it commits the new cluster with its tokens and this hub's
// certificate, or joins an existing one. Then it removes the pending file.
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
	known, ok := b.cfg.State.View().Cluster()
	if ok && known.ID != p.Cluster.ID {
		return fleet.Errorf(fleet.CodeConflict, "make cluster %s: there is a cluster, %s", p.Cluster.ID, known.ID)
	}
	tokens := p.Tokens
	if p.Token != nil {
		tokens = append(slices.Clone(tokens), *p.Token)
	}
	for _, token := range tokens { // before the cluster: a hub with a cluster refuses a token that it does not know
		if err := b.applyAndCheck(ctx, state.Token{Token: token}); err != nil {
			return err
		}
	}
	if !ok { // not by an earlier try
		if err := b.applyAndCheck(ctx, state.ClusterInit{Cluster: *p.Cluster}); err != nil {
			return err
		}
	}
	if err := b.applyAndCheck(ctx, *p.Certificate); err != nil {
		return err
	}
	return pki.DropPending(b.cfg.Dir)
}

// warnOfSharedTokens logs a warning for each join token that admits hubs as well as edges. Older releases made such
// tokens; every edge that has one could join as a hub.
func (b *Bootstrap) warnOfSharedTokens() {
	for t := range b.cfg.State.View().Tokens() {
		if slices.Contains(t.Roles, fleet.RoleHub) && slices.Contains(t.Roles, fleet.RoleEdge) {
			b.cfg.Log.Warn("join token admits hubs as well as edges: make one for each with `skerry token create`, then revoke it",
				"token", t.ID)
		}
	}
}

// registerHubAddr commits this hub's addresses, unless the state has them already.
func (b *Bootstrap) registerHubAddr(ctx context.Context) error {
	if known, ok := b.cfg.State.View().Hub(b.cfg.Addr.ID); ok && known == b.cfg.Addr {
		return nil
	}
	return b.applyAndCheck(ctx, state.Hub{Hub: b.cfg.Addr})
}

// applyAndCheck commits a command, and fails if the command is refused.
func (b *Bootstrap) applyAndCheck(ctx context.Context, c state.Command) error {
	ctx, cancel := context.WithTimeout(ctx, 3*rpc.CallTimeout)
	defer cancel()
	res, err := b.cfg.Raft.Apply(ctx, c)
	return res.Failure(err)
}

// catchUp waits until this hub has applied every entry that the leader had committed.
func (b *Bootstrap) catchUp(ctx context.Context) error { return b.cfg.Raft.CatchUp(ctx, b.cfg.Peers) }

// askToJoin has the leader add p to the Raft configuration, or change its address. It asks the other hubs in turn
// until one passes the request on. It returns the index of the change.
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

// OtherHubs returns the QUIC addresses of all other hubs in the pending join, the state and the Raft configuration,
// each once.
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
