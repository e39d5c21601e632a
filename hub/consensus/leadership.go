package consensus

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"skerry/fleet"
)

// barrierRetry is how long to wait after a barrier failed while still leading.
const barrierRetry = 100 * time.Millisecond

// Leader returns the current leader; ok is false if none is known, as during an election.
func (n *Node) Leader() (id fleet.HubID, addr string, ok bool) {
	r := n.raft.Load()
	if r == nil {
		return "", "", false
	}
	a, i := r.LeaderWithID()
	return fleet.HubID(i), string(a), i != ""
}

// Leads returns the current term, and whether this hub leads.
func (n *Node) Leads() (term uint64, ok bool) {
	r := n.raft.Load()
	if r == nil {
		return 0, false
	}
	return r.CurrentTerm(), r.State() == raft.Leader
}

// IsLeader reports whether this hub leads.
func (n *Node) IsLeader() bool {
	_, ok := n.Leads()
	return ok
}

// Term returns the current Raft term; 0 before Ready.
func (n *Node) Term() uint64 {
	if r := n.raft.Load(); r != nil {
		return r.CurrentTerm()
	}
	return 0
}

// Leadership sends true when this hub has become the leader and has applied everything committed before (a
// barrier), and false when it no longer leads. The values alternate: leadership that was lost and won
// again before anyone received gives false, then true. Only one goroutine may receive.
func (n *Node) Leadership() <-chan bool { return n.lead }

// followLeadership sends to Leadership what raft signals, until ctx ends. Raft keeps only its newest
// signal, so that a true after a true means that leadership was lost and won again.
func (n *Node) followLeadership(ctx context.Context, r *raft.Raft) error {
	told := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case leads := <-r.LeaderCh():
			if told && !n.announceResignation(ctx, r) {
				return nil
			}
			if told = leads && n.announceLeadership(ctx, r); ctx.Err() != nil {
				return nil
			}
		}
	}
}

// announceLeadership waits for a barrier, then sends true to Leadership. It returns false if leadership
// was lost or ctx ended before.
func (n *Node) announceLeadership(ctx context.Context, r *raft.Raft) bool {
	for {
		var out chan<- bool
		var retry <-chan time.Time
		if r.Barrier(0).Error() == nil {
			out = n.lead
		} else {
			retry = time.After(barrierRetry)
		}
		select {
		case <-ctx.Done():
			return false
		case leads := <-r.LeaderCh():
			if !leads {
				return false
			}
		case out <- true:
			n.log.Info("this hub leads", "term", r.CurrentTerm())
			return true
		case <-retry:
		}
	}
}

// announceResignation sends false to Leadership. It returns false if ctx ended before anyone received.
func (n *Node) announceResignation(ctx context.Context, r *raft.Raft) bool {
	select {
	case n.lead <- false:
		n.log.Info("this hub does not lead any more", "term", r.CurrentTerm())
		return true
	case <-ctx.Done():
		return false
	}
}
