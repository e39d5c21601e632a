package consensus

import (
	"context"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
)

// MethodApply is the call between hubs that Config.Forward makes: an encoded command, answered by an
// encoded Result.
const MethodApply = "raft.apply"

// The other calls between hubs. All but methodJoin go to the leader; a joining hub calls any hub.
const (
	methodCatchUp rpc.Method[struct{}, fleet.Index]      = "raft.catchup" // answer: the index to reach
	methodJoin    rpc.Method[state.HubPeer, fleet.Index] = "hub.join"     // answer: the index of the change
	methodRemove  rpc.Method[fleet.HubID, struct{}]      = "hub.remove"
	methodLead    rpc.Method[fleet.HubID, struct{}]      = "hub.lead" // request: the new leader; "": any hub
)

// ServeCalls registers the handlers for the calls of other hubs.
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

// removePeer handles methodRemove on the leader.
func (n *Node) removePeer(ctx context.Context, id fleet.HubID) (struct{}, error) {
	return struct{}{}, n.Remove(ctx, id)
}

// transferLead handles methodLead on the leader.
func (n *Node) transferLead(ctx context.Context, id fleet.HubID) (struct{}, error) {
	return struct{}{}, n.Transfer(ctx, id)
}

// AskToAdd asks the hub at addr to add a peer through the leader. It returns an index at which the peer is
// a member.
func AskToAdd(ctx context.Context, p *rpc.Peers, addr string, peer state.HubPeer) (fleet.Index, error) {
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	return methodJoin.Call(ctx, p, addr, peer)
}

// CatchUp asks the leader for the newest index, and blocks until this hub has applied it. During an
// election it retries until ctx or rpc.CallTimeout ends. Requests that wait at the same time share a call.
func (n *Node) CatchUp(ctx context.Context, p *rpc.Peers) error {
	return n.catchUps.waitForCall(ctx, func(ctx context.Context) error { return n.catchUpWithLeader(ctx, p) })
}

func (n *Node) catchUpWithLeader(ctx context.Context, p *rpc.Peers) error {
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

// RemoveFromCluster removes a hub from the Raft configuration, through the leader, and then its addresses
// from the state, so that edges no longer dial it. The hub must be stopped: a removed hub joins again when
// it starts.
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

// TransferLead asks the leader to transfer the leadership to a hub, or for "" to the one whose log is most
// up to date.
func (n *Node) TransferLead(ctx context.Context, p *rpc.Peers, id fleet.HubID) error {
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	_, err := methodLead.OnLeader(ctx, p, id, n.transferLead)
	return err
}
