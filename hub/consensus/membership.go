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

// joinRetry is how long Join waits before it asks again, and between two looks
// at its own log.
const joinRetry = 200 * time.Millisecond

// Peers lists the hubs of the newest configuration that this one knows, by ID.
// Before Ready: CodeUnavailable.
func (n *Node) Peers() ([]state.HubPeer, error) {
	peers, _, err := n.currentPeers()
	return peers, err
}

// IsMember reports whether a hub is among Peers.
func (n *Node) IsMember(hub fleet.HubID) (bool, error) {
	peers, err := n.Peers()
	return slices.ContainsFunc(peers, func(p state.HubPeer) bool { return p.ID == hub }), err
}

// Configuration is like Peers, with the end of this hub's log.
func (n *Node) Configuration() ([]state.HubPeer, fleet.Index, error) { return n.currentPeers() }

func (n *Node) currentPeers() ([]state.HubPeer, fleet.Index, error) {
	r := n.raft.Load()
	if r == nil {
		return nil, 0, fleet.Errorf(fleet.CodeUnavailable, "list hubs: this one is starting")
	}
	f := r.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, 0, raftError("list hubs", err)
	}
	return sortedPeers(f.Configuration().Servers), fleet.Index(r.LastIndex()), nil
}

// sortedPeers lists servers by ID.
func sortedPeers(servers []raft.Server) []state.HubPeer {
	peers := make([]state.HubPeer, 0, len(servers))
	for _, s := range servers {
		peers = append(peers, state.HubPeer{ID: fleet.HubID(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	slices.SortFunc(peers, func(a, b state.HubPeer) int { return cmp.Compare(a.ID, b.ID) })
	return peers
}

// Add takes a hub in, gives it a vote, or changes its address. A voter stays one,
// and nothing is written where nothing changes. It returns an index at which the
// change is there. Not on the leader: CodeNotLeader; an address that another hub
// has: CodeConflict.
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
			return 0, fleet.Errorf(fleet.CodeConflict, "add hub %s: hub %s has the address %s", p.ID, have.ID, p.Addr).
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

// Remove puts a hub out; one that is not there is no error. Not on the leader:
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

// Join makes this hub a voter of a cluster, at its configured address. Ask is
// called with the hub as a non-voter, then, when its log has caught up, as a
// voter: a hub that cannot keep up never counts for a majority. Ask reaches the
// leader's Add and returns its index; it is asked again while it fails with
// unavailable, not_leader or timeout. Run must be going on. To be called at every
// start: where this hub is a voter at that address already, nothing is asked.
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
	if err := until(ctx, func() bool { return r.AppliedIndex() >= uint64(index) }); err != nil {
		return fmt.Errorf("join: catch up with entry %d, at %d now: %w", index, r.AppliedIndex(), err)
	}
	if _, err := n.askUntil(ctx, voter, ask); err != nil {
		return err
	}
	err = until(ctx, func() bool {
		peers, err := n.Peers()
		return err == nil && slices.Contains(peers, voter)
	})
	if err != nil {
		return fmt.Errorf("join: hear of the own vote: %w", err)
	}
	return nil
}

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

// until waits for a condition.
func until(ctx context.Context, ok func() bool) error {
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
