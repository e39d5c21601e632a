package consensus

import (
	"context"

	"github.com/hashicorp/raft"

	"skerry/fleet"
)

// ReadIndex returns an index such that a state which has applied it holds every
// command that was acknowledged before the call. It asks a majority whether this
// hub still leads, and writes nothing, but for one barrier in each term. Not on
// the leader: CodeNotLeader.
//
// The leader acknowledges a command when it has applied it, so its own state is
// far enough, once it holds what earlier leaders acknowledged.
func (n *Node) ReadIndex(ctx context.Context) (fleet.Index, error) {
	term, leads := n.Leads()
	if !leads {
		return 0, raftError("find out how far to read", raft.ErrNotLeader)
	}
	if n.barrierTerm.Load() != term {
		if err := n.Barrier(ctx); err != nil {
			return 0, err
		}
		n.barrierTerm.Store(term)
	}
	index := n.cfg.Store.View().Index()
	_, err := call(ctx, n, func(r *raft.Raft) (struct{}, error) {
		return struct{}{}, r.VerifyLeader().Error()
	})
	return index, raftError("find out how far to read", err)
}

// Verify asks a majority whether this hub still leads. It writes nothing. Not on the
// leader: CodeNotLeader.
func (n *Node) Verify(ctx context.Context) error {
	_, err := call(ctx, n, func(r *raft.Raft) (struct{}, error) {
		return struct{}{}, r.VerifyLeader().Error()
	})
	return raftError("verify that this hub leads", err)
}
