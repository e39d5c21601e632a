package consensus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"skerry/fleet"
	"skerry/hub/state"
)

// joinRetry is how long Join waits before it asks again. It checks its own log four times as often.
const joinRetry = 200 * time.Millisecond

// Peers returns the hubs of the newest Raft configuration in this hub's log, by ID. Before Ready:
// CodeUnavailable.
func (n *Node) Peers() ([]state.HubPeer, error) {
	peers, _, err := n.currentPeers()
	return peers, err
}

// IsMember reports whether a hub is in Peers.
func (n *Node) IsMember(hub fleet.HubID) (bool, error) {
	peers, err := n.Peers()
	return slices.ContainsFunc(peers, func(p state.HubPeer) bool { return p.ID == hub }), err
}

// Configuration returns Peers and the newest index in this hub's log.
func (n *Node) Configuration() ([]state.HubPeer, fleet.Index, error) { return n.currentPeers() }

// currentPeers returns the newest Raft configuration and the newest index in this hub's log.
func (n *Node) currentPeers() ([]state.HubPeer, fleet.Index, error) {
	r := n.raft.Load()
	if r == nil {
		return nil, 0, fleet.Errorf(fleet.CodeUnavailable, "list hubs: this hub is starting")
	}
	f := r.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, 0, raftError("list hubs", err)
	}
	return sortedPeers(f.Configuration().Servers), fleet.Index(r.LastIndex()), nil
}

// sortedPeers converts raft's servers to peers, by ID.
func sortedPeers(servers []raft.Server) []state.HubPeer {
	peers := make([]state.HubPeer, 0, len(servers))
	for _, s := range servers {
		peers = append(peers, state.HubPeer{ID: fleet.HubID(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	slices.SortFunc(peers, func(a, b state.HubPeer) int { return cmp.Compare(a.ID, b.ID) })
	return peers
}

// Add adds a hub to the cluster, gives it a vote, or changes its address. It never takes a vote away, and
// writes nothing if nothing changes. It returns an index at which the change is in the log. If this hub
// does not lead: CodeNotLeader. If another hub has the address: CodeConflict.
func (n *Node) Add(ctx context.Context, p state.HubPeer) (fleet.Index, error) {
	peers, index, err := n.currentPeers()
	if err != nil {
		return 0, err
	}
	if _, leads := n.Leads(); !leads {
		return 0, raftError("add hub "+string(p.ID), raft.ErrNotLeader)
	}
	for _, have := range peers {
		switch {
		case have.ID == p.ID && have.Addr == p.Addr && (have.Voter || !p.Voter):
			return index, nil
		case have.ID != p.ID && have.Addr == p.Addr:
			return 0, fleet.Errorf(fleet.CodeConflict, "add hub %s: hub %s has the address %s already", p.ID, have.ID, p.Addr).
				WithHint("give it an address of its own with --advertise, or remove the other one")
		}
	}
	change := (*raft.Raft).AddNonvoter
	if p.Voter {
		change = (*raft.Raft).AddVoter
	}
	added, err := call(ctx, n, func(r *raft.Raft) (fleet.Index, error) {
		f := change(r, raft.ServerID(p.ID), raft.ServerAddress(p.Addr), 0, untilDeadline(ctx))
		if err := f.Error(); err != nil {
			return 0, err
		}
		return fleet.Index(f.Index()), nil
	})
	if err != nil {
		return 0, raftError(fmt.Sprintf("add hub %s at %s", p.ID, p.Addr), err)
	}
	n.log.Info("hub added", "hub", p.ID, "addr", p.Addr, "voter", p.Voter)
	return added, nil
}

// Remove removes a hub from the cluster. A hub that is not in it is no error. If this hub does not lead:
// CodeNotLeader.
func (n *Node) Remove(ctx context.Context, id fleet.HubID) error {
	_, err := call(ctx, n, func(r *raft.Raft) (struct{}, error) {
		return struct{}{}, r.RemoveServer(raft.ServerID(id), 0, untilDeadline(ctx)).Error()
	})
	if err != nil {
		return raftError(fmt.Sprintf("remove hub %s", id), err)
	}
	n.log.Info("hub removed", "hub", id)
	return nil
}

// Join makes this hub a voter of a cluster, at its configured address. It returns at once if it is one
// already, so it is called at every start. Run must be running.
// Join calls ask with this hub as a non-voter, waits until its log has caught up, and calls ask with it as
// a voter: a hub that cannot keep up never counts for a majority. ask calls the leader's Add and returns
// its index. It is retried while it fails with unavailable, not_leader or timeout.
func (n *Node) Join(ctx context.Context, ask func(context.Context, state.HubPeer) (fleet.Index, error)) error {
	select {
	case <-n.ready:
	case <-ctx.Done():
		return fmt.Errorf("join: %w", ctx.Err())
	}
	self := state.HubPeer{ID: n.cfg.ID, Addr: n.cfg.Addr}
	peers, err := n.Peers()
	if err != nil {
		return err
	}
	voter := self
	voter.Voter = true
	if slices.Contains(peers, voter) {
		return nil
	}
	index, err := n.askUntil(ctx, self, ask)
	if err != nil {
		return err
	}
	r := n.raft.Load()
	if err := pollUntil(ctx, func() bool { return r.AppliedIndex() >= uint64(index) }); err != nil {
		return fmt.Errorf("join: catch up with entry %d, at %d now: %w", index, r.AppliedIndex(), err)
	}
	if _, err := n.askUntil(ctx, voter, ask); err != nil {
		return err
	}
	err = pollUntil(ctx, func() bool {
		peers, err := n.Peers()
		return err == nil && slices.Contains(peers, voter)
	})
	if err != nil {
		return fmt.Errorf("join: wait until this hub is a voter: %w", err)
	}
	return nil
}

// askUntil calls ask until it succeeds, fails with an error that a retry cannot mend, or ctx ends.
func (n *Node) askUntil(ctx context.Context, p state.HubPeer, ask func(context.Context, state.HubPeer) (fleet.Index, error)) (fleet.Index, error) {
	for {
		index, err := ask(ctx, p)
		if err == nil {
			return index, nil
		}
		switch fleet.CodeOf(err) {
		case fleet.CodeUnavailable, fleet.CodeNotLeader, fleet.CodeTimeout:
		default:
			return 0, fmt.Errorf("join: %w", err)
		}
		n.log.Debug("asked to join", "voter", p.Voter, "error", err)
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("join: %w", err)
		case <-time.After(joinRetry):
		}
	}
}

// pollUntil polls ok until it returns true, or ctx ends.
func pollUntil(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(joinRetry / 4)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
