package consensus

import (
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"skerry/fleet"
	"skerry/hub/state"
)

// Transfer transfers the leadership to the hub id, or for "" to the one whose log is most up to date. It
// returns when that hub was told to start an election. If this hub does not lead: CodeNotLeader. If there
// is no hub id: CodeNotFound. If it leads already, has no vote, or no other hub has one: CodeConflict.
func (n *Node) Transfer(ctx context.Context, id fleet.HubID) error {
	peers, _, err := n.currentPeers()
	if err != nil {
		return err
	}
	what := "hand the lead over"
	if id != "" {
		what += " to hub " + string(id)
	}
	if _, leads := n.Leads(); !leads {
		return raftError(what, raft.ErrNotLeader)
	}
	to, err := transferTarget(peers, n.cfg.ID, id, what)
	if err != nil {
		return err
	}
	_, err = call(ctx, n, func(r *raft.Raft) (struct{}, error) {
		if id == "" {
			return struct{}{}, r.LeadershipTransfer().Error()
		}
		return struct{}{}, r.LeadershipTransferToServer(raft.ServerID(to.ID), raft.ServerAddress(to.Addr)).Error()
	})
	if err != nil {
		return raftError(what, err)
	}
	n.log.Info("the lead is handed over", "hub", id)
	return nil
}

// transferTarget returns the hub id if it can become the leader, or a zero peer if id is "" and some hub
// can. Otherwise its error says why not, and the hint lists the hubs that can. what begins the error.
func transferTarget(peers []state.HubPeer, self, id fleet.HubID, what string) (state.HubPeer, error) {
	voters := make([]string, 0, len(peers))
	for _, p := range peers {
		if p.Voter && p.ID != self {
			voters = append(voters, string(p.ID))
		}
	}
	hint := "hubs that can take it: " + strings.Join(voters, ", ")
	if len(voters) == 0 {
		hint = "nobody else can take it: start one more hub with --join and the address of this one; it gets its vote when its log has caught up"
	}
	i := slices.IndexFunc(peers, func(p state.HubPeer) bool { return p.ID == id })
	var err *fleet.Error
	switch {
	case id == "" && len(voters) == 0:
		err = fleet.Errorf(fleet.CodeConflict, "%s: hub %s is the only one of this region that has a vote", what, self)
	case id == "":
		return state.HubPeer{}, nil
	case i < 0:
		err = fleet.Errorf(fleet.CodeNotFound, "%s: there is no such hub in the Raft cluster", what)
	case id == self:
		err = fleet.Errorf(fleet.CodeConflict, "%s: it is already the leader", what)
	case !peers[i].Voter:
		err = fleet.Errorf(fleet.CodeConflict, "%s: it has no vote, it only follows", what)
	default:
		return peers[i], nil
	}
	return state.HubPeer{}, err.WithHint("%s", hint)
}
