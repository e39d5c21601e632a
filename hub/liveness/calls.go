package liveness

import (
	"context"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
)

// The calls of other hubs on the leader.
const (
	methodHeartbeats rpc.Method[[]Heartbeat, struct{}]            = "liveness.beats"
	methodHeard      rpc.Method[struct{}, map[fleet.NodeID]int64] = "liveness.heard" // UnixNano by node
)

// ServeCalls registers what other hubs call.
func (l *Liveness) ServeCalls(p *rpc.Peers) {
	methodHeartbeats.Handle(p, func(ctx context.Context, _ string, beats []Heartbeat) (struct{}, error) {
		return l.recordForwarded(ctx, beats)
	})
	methodHeard.Handle(p, func(context.Context, string, struct{}) (map[fleet.NodeID]int64, error) {
		return l.lastHeardByNode()
	})
}

// ForwardToLeader hands beats to the leader, as Config.Forward does.
func (l *Liveness) ForwardToLeader(ctx context.Context, p *rpc.Peers, beats []Heartbeat) error {
	_, err := methodHeartbeats.OnLeader(ctx, p, beats, l.recordForwarded)
	return err
}

func (l *Liveness) recordForwarded(_ context.Context, beats []Heartbeat) (struct{}, error) {
	l.RecordHeartbeats(beats...)
	return struct{}{}, nil
}

// LastContact is when the leader last heard each node.
func (l *Liveness) LastContact(ctx context.Context, p *rpc.Peers) (map[fleet.NodeID]time.Time, error) {
	if heard, ok := l.LastHeard(); ok {
		return heard, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	nano, err := methodHeard.OnLeader(ctx, p, struct{}{}, func(context.Context, struct{}) (map[fleet.NodeID]int64, error) {
		return nil, rpc.NoLeader() // this hub leads, and its deadlines are not there yet
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

// lastHeardByNode is when this hub, which must lead, heard each node.
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
