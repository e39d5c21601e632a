package consensus

import (
	"context"

	"github.com/hashicorp/raft"

	"skerry/fleet"
)

// ReadIndex returns an index such that a state that has applied it has every command acknowledged before
// the call. It asks a majority whether this hub still leads, and writes nothing but one barrier in each
// term. If this hub does not lead: CodeNotLeader.
//
// The leader acknowledges a command after it has applied it. So its own applied index is enough, once it
// has applied what earlier leaders acknowledged.
func (n *Node) ReadIndex(ctx context.Context) (fleet.Index, error) {
	term, leads := n.Leads()
	if !leads {
		return 0, raftError("find the index to read at", raft.ErrNotLeader)
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
	return index, raftError("find the index to read at", err)
}

// Verify asks a majority whether this hub still leads, and writes nothing. If it does not: CodeNotLeader.
func (n *Node) Verify(ctx context.Context) error {
	_, err := call(ctx, n, func(r *raft.Raft) (struct{}, error) {
		return struct{}{}, r.VerifyLeader().Error()
	})
	return raftError("verify that this hub leads", err)
}
