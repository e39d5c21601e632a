package consensus

import (
	"context"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
)

// MethodApply is the call that Config.Forward makes: an encoded command, answered by
// an encoded Result.
const MethodApply = "raft.apply"

// The other calls of hubs on the leader, and of a hub that joins on any hub.
const (
	methodCatchUp rpc.Method[struct{}, fleet.Index]      = "raft.catchup" // the index to reach
	methodJoin    rpc.Method[state.HubPeer, fleet.Index] = "hub.join"     // the index of the change
	methodRemove  rpc.Method[fleet.HubID, struct{}]      = "hub.remove"
	methodLead    rpc.Method[fleet.HubID, struct{}]      = "hub.lead" // the hub that shall lead; "": any
)

// ServeCalls registers what other hubs call.
func (n *Node) ServeCalls(p *rpc.Peers) {
	p.Handle(MethodApply, func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		return n.ApplyEncoded(ctx, body)
	})
	methodCatchUp.Handle(p, func(ctx context.Context, _ string, _ struct{}) (fleet.Index, error) { return n.ReadIndex(ctx) })
	methodJoin.Handle(p, func(ctx context.Context, from string, peer state.HubPeer) (fleet.Index, error) {
		return methodJoin.OnLeader(ctx, p, peer, func(ctx context.Context, peer state.HubPeer) (fleet.Index, error) {
			n.cfg.Log.Info("hub joins", "hub", peer.ID, "addr", peer.Addr, "voter", peer.Voter, "by", from)
			return n.Add(ctx, peer)
		})
	})
	methodRemove.Handle(p, func(ctx context.Context, _ string, id fleet.HubID) (struct{}, error) { return n.removePeer(ctx, id) })
	methodLead.Handle(p, func(ctx context.Context, _ string, id fleet.HubID) (struct{}, error) { return n.transferLead(ctx, id) })
}

func (n *Node) removePeer(ctx context.Context, id fleet.HubID) (struct{}, error) {
	return struct{}{}, n.Remove(ctx, id)
}

func (n *Node) transferLead(ctx context.Context, id fleet.HubID) (struct{}, error) {
	return struct{}{}, n.Transfer(ctx, id)
}

// AskToAdd asks the hub at addr to have the leader Add a peer.
func AskToAdd(ctx context.Context, p *rpc.Peers, addr string, peer state.HubPeer) (fleet.Index, error) {
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	return methodJoin.Call(ctx, p, addr, peer)
}

// CatchUp asks the leader for the index of the newest entry, and waits until this hub
// has applied it. It waits for the end of an election.
func (n *Node) CatchUp(ctx context.Context, p *rpc.Peers) error {
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	var index fleet.Index
	err := rpc.Retry(ctx, func() (err error) {
		index, err = methodCatchUp.OnLeader(ctx, p, struct{}{}, func(ctx context.Context, _ struct{}) (fleet.Index, error) {
			return n.ReadIndex(ctx)
		})
		return err
	})
	if err != nil {
		return err
	}
	return n.cfg.Store.WaitIndex(ctx, index)
}

// RemoveFromCluster takes a hub's vote, at the leader, and then has edges dial it no more.
// A hub that runs and is removed joins again when it starts: it has to be stopped.
func (n *Node) RemoveFromCluster(ctx context.Context, p *rpc.Peers, id fleet.HubID) error {
	call, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	if _, err := methodRemove.OnLeader(call, p, id, n.removePeer); err != nil {
		return err
	}
	addr := state.HubAddr{ID: id}
	if known, ok := n.cfg.Store.View().Hub(id); ok {
		addr = known
	}
	res, err := n.Apply(call, state.Hub{Hub: addr, Removed: true})
	return res.Failure(err)
}

// TransferLead has another hub lead: that one, or for "" whichever has most of the log.
func (n *Node) TransferLead(ctx context.Context, p *rpc.Peers, id fleet.HubID) error {
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	_, err := methodLead.OnLeader(ctx, p, id, n.transferLead)
	return err
}
