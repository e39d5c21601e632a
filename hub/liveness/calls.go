package liveness

import (
	"context"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
)

// The calls that other hubs make on the leader.
const (
	methodHeartbeats rpc.Method[[]Heartbeat, struct{}]            = "liveness.beats"
	methodHeard      rpc.Method[struct{}, map[fleet.NodeID]int64] = "liveness.heard" // answer: last heartbeats, UnixNano
)

// ServeCalls registers the handlers for the calls of other hubs.
func (l *Liveness) ServeCalls(p *rpc.Peers) {
	methodHeartbeats.Handle(p, func(ctx context.Context, _ string, heartbeats []Heartbeat) (struct{}, error) {
		return l.recordForwarded(ctx, heartbeats)
	})
	methodHeard.Handle(p, func(context.Context, string, struct{}) (map[fleet.NodeID]int64, error) {
		return l.lastHeardByNode()
	})
}

// ForwardToLeader sends heartbeats to the leader. It implements Config.Forward.
func (l *Liveness) ForwardToLeader(ctx context.Context, p *rpc.Peers, heartbeats []Heartbeat) error {
	_, err := methodHeartbeats.OnLeader(ctx, p, heartbeats, l.recordForwarded)
	return err
}

// recordForwarded handles methodHeartbeats.
func (l *Liveness) recordForwarded(_ context.Context, heartbeats []Heartbeat) (struct{}, error) {
	l.RecordHeartbeats(heartbeats...)
	return struct{}{}, nil
}

// LastContact returns when the leader received the last heartbeat of each node. It asks the leader if this
// hub does not lead. Nodes without a heartbeat since the leader's election are missing, unless their session
// was the leader's own before that.
func (l *Liveness) LastContact(ctx context.Context, p *rpc.Peers) (map[fleet.NodeID]time.Time, error) {
	if heard, ok := l.LastHeard(); ok {
		return heard, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	nano, err := methodHeard.OnLeader(ctx, p, struct{}{}, func(context.Context, struct{}) (map[fleet.NodeID]int64, error) {
		return nil, rpc.NoLeader() // this hub leads, and Lead has not started yet
	})
	if err != nil {
		return nil, err
	}
	out := make(map[fleet.NodeID]time.Time, len(nano))
	for node, at := range nano {
		out[node] = time.Unix(0, at)
	}
	return out, nil
}

// lastHeardByNode handles methodHeard. It fails with CodeNotLeader if this hub does not lead.
func (l *Liveness) lastHeardByNode() (map[fleet.NodeID]int64, error) {
	heard, ok := l.LastHeard()
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotLeader, "hub %s does not lead", l.cfg.Hub)
	}
	out := make(map[fleet.NodeID]int64, len(heard))
	for node, at := range heard {
		out[node] = at.UnixNano()
	}
	return out, nil
}
