package link

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// description is the description of the machine that a heartbeat carried.
type description struct {
	beat uint64
	hash []byte
}

// handleWelcome checks that the hub is of this edge's cluster, and sends the first heartbeat.
func (s *session) handleWelcome(ctx context.Context, w syncproto.Welcome) {
	if s.mem.Cluster != "" && w.Cluster != s.mem.Cluster {
		s.performOutputs(ctx, s.proto.Bad(fleet.Errorf(fleet.CodeForbidden,
			"hub %s belongs to cluster %s, this edge to %s", s.hubConn.hub, fleet.Short(w.Cluster), fleet.Short(s.mem.Cluster)).
			WithHint("remove the edge's data directory to let it join another cluster")))
		return
	}
	s.welcome = w
	s.sendHeartbeat(ctx, s.monotonicNow())
}

// sendHeartbeat sends a heartbeat, with the description of the machine if the cluster does not have it.
func (s *session) sendHeartbeat(ctx context.Context, now time.Duration) {
	s.heartbeats++
	h := syncproto.Heartbeat{Uptime: s.cfg.Uptime(), Wall: s.cfg.Now().UnixNano(), RTT: s.hubConn.conn.Stats().RTT}
	hash, node := s.cfg.Edge.Describe()
	changed := !bytes.Equal(hash, s.mem.NodeHash)
	if changed || s.heartbeats == 1 {
		h.Hash = hash
	}
	if changed {
		h.Node = &node
		s.sentDescription = &description{beat: s.heartbeats, hash: hash}
	}
	// Until it is answered, another heartbeat would tell nothing new.
	s.nextHeartbeat = now + heartbeatDelay(s.proto.TTL(), 0)
	s.performOutputs(ctx, s.proto.SendHeartbeat(now, h))
}

// handleHeartbeatAck handles the answer to a heartbeat.
func (s *session) handleHeartbeatAck(ctx context.Context, e syncproto.EventAck) {
	if err := s.cfg.Journal.NoteHeartbeat(ctx, s.trustedHubTime(e.Ack.HubTime)); err != nil {
		s.log.Warn("answered heartbeat not journaled", "error", err)
	}
	s.cfg.Answered()
	s.roundTripCheckAt, s.roundTripStats = s.monotonicNow()+measureAfter, s.hubConn.conn.Stats()
	sent := s.monotonicNow() - e.RTT
	s.nextHeartbeat = min(s.nextHeartbeat, sent+heartbeatDelay(s.proto.TTL(), s.cfg.Silence()))
	s.tracker.updateStatus(func(st *Status) {
		st.NodeStatus, st.NodeReason, st.TTL, st.Epoch = e.Ack.Status, e.Ack.Reason, s.proto.TTL(), e.Ack.Epoch
	})
	if s.sentDescription != nil && e.Ack.Number >= s.sentDescription.beat && !e.Ack.NeedNode {
		s.mem.NodeHash, s.sentDescription = s.sentDescription.hash, nil
		if !e.First {
			s.saveMemoryOrEnd(ctx)
		}
	}
	if e.Ack.NeedNode {
		s.mem.NodeHash, s.nextHeartbeat = nil, s.monotonicNow()
	}
	if hubs := e.Ack.Hubs; len(hubs) > 0 && !slices.Equal(hubs, s.mem.Hubs) {
		s.updateHubList(hubs)
		if !e.First {
			s.saveMemoryOrEnd(ctx)
		}
	}
	if e.First {
		s.commitSession(ctx, e.Ack)
	}
	s.updateNodeStatus(ctx, e.Ack.Status)
}

// trustedHubTime returns the hub's time, or 0 if it is after the end of the hub's certificate. The
// hub's clock is wrong then, and with its time this edge would refuse the hubs with correct clocks.
func (s *session) trustedHubTime(hubTime int64) int64 {
	if chain := s.hubConn.conn.State().PeerCertificates; len(chain) > 0 && hubTime > chain[0].NotAfter.UnixNano() {
		return 0
	}
	return hubTime
}

// updateNodeStatus takes the node status that the cluster reports.
func (s *session) updateNodeStatus(ctx context.Context, status fleet.NodeStatus) {
	if status == "" {
		return
	}
	s.tracker.updateStatus(func(st *Status) { st.NodeStatus = status })
	if status == fleet.NodeReady && s.mem.Rejoined {
		s.mem.Rejoined = false
		s.saveMemoryOrEnd(ctx)
	}
}

// updateHubList takes the hub list that the cluster reports.
func (s *session) updateHubList(hubs []string) {
	s.mem.Hubs = knownHubs(hubs, nil)
	all := knownHubs(s.mem.Hubs, s.cfg.Hubs)
	s.tracker.updateStatus(func(st *Status) { st.Hubs = all })
}

// saveMemoryOrEnd saves the state of the link; an error ends the session.
func (s *session) saveMemoryOrEnd(ctx context.Context, rows ...fleet.Transition) (kept bool) {
	err := s.saveMemory(ctx, rows...)
	if err != nil {
		s.endWithError(fleet.AsError(err))
	}
	return err == nil
}

// commitSession handles the first acknowledgement: the cluster has committed the session.
func (s *session) commitSession(ctx context.Context, ack syncproto.HeartbeatAck) {
	s.committed = true
	s.stopSearch()
	s.backoff.resetDelays()
	s.round, s.lastHub, s.refusingHub = 0, s.hubConn.hub, ""
	noted := s.mem.Disconnected
	rows := s.noteReconnect(ack)
	if hubs := s.welcome.Hubs; len(hubs) > 0 && len(ack.Hubs) == 0 {
		s.updateHubList(hubs)
	}
	if ack.Status == fleet.NodeInitializing && s.mem.Cluster != "" {
		s.mem.Rejoined = true
	}
	s.mem.Cluster, s.mem.Disconnected, s.mem.Fenced = s.welcome.Cluster, false, ""
	if !s.saveMemoryOrEnd(ctx, rows...) {
		s.mem.Disconnected = noted // as in the journal
	}
	wentBack := s.mem.WentBack
	s.tracker.updateStatus(func(st *Status) {
		st.LastError, st.Fenced, st.WentBack = "", "", wentBack
	})
	s.tracker.markCommitted()
	s.log.Info("connected", "hub", s.hubConn.hub, "epoch", ack.Epoch, "status", ack.Status)
	if s.cfg.Journal.Head().Lost != "" {
		s.rebaseJournal(ctx, ack)
		return
	}
	s.startReplay(ctx, s.appliedByCluster(ack))
}

// appliedByCluster returns the newest row that the cluster has applied. The Welcome may be older than a
// snapshot that was restored.
func (s *session) appliedByCluster(ack syncproto.HeartbeatAck) fleet.Seq {
	if ack.Restored > s.clusterIndex {
		return ack.Applied
	}
	return max(s.welcome.Applied, ack.Applied)
}

// noteReconnect returns the rows about the return of the link, and stores the cluster's index and term.
func (s *session) noteReconnect(ack syncproto.HeartbeatAck) []fleet.Transition {
	index, term := ack.Index, ack.Term
	if index == 0 {
		index, term = s.welcome.Index, s.welcome.Term
	}
	var rows []fleet.Transition
	message := fmt.Sprintf("hub %s, away for %s", s.hubConn.hub, s.cfg.Journal.Away().Round(time.Millisecond))
	applied, known := s.appliedByCluster(ack), s.cfg.Journal.Head().Acknowledged
	if s.mem.Cluster != "" && (index < s.clusterIndex || applied < known || ack.Restored > s.clusterIndex) {
		how := ""
		if ack.Restored > s.clusterIndex {
			how = fmt.Sprintf("a snapshot was restored at index %d, ", ack.Restored)
		}
		s.mem.WentBack = fmt.Sprintf("the cluster went back: %sit is at index %d (term %d) and was at %d (term %d) at least, "+
			"it has this journal up to row %d and had acknowledged row %d; this edge keeps its work",
			how, index, term, s.clusterIndex, s.mem.Term, applied, known)
		s.log.Warn("the cluster went back", "from", s.clusterIndex, "to", index, "acknowledged", known, "applied", applied)
		message += "; " + s.mem.WentBack
		if !s.mem.Disconnected {
			rows = append(rows, fleet.Transition{Kind: fleet.TransitionDisconnect, Message: "the cluster was replaced by an older state"})
			s.mem.Disconnected = true
		}
	}
	if s.mem.Disconnected {
		rows = append(rows, fleet.Transition{Kind: fleet.TransitionReconnect, Message: message})
	}
	s.mem.Index, s.mem.Term = index, term
	return rows
}
