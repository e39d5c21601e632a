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

// sentNode identifies the fleet.Node of this machine that a heartbeat carried: the number of the heartbeat and
// the hash of the node.
type sentNode struct {
	heartbeat uint64
	hash      []byte
}

// handleWelcome handles the hub's answer to Hello: it sends the first heartbeat. It ends the session if the hub
// belongs to another cluster than this edge.
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

// sendHeartbeat sends a heartbeat and schedules the next one. The heartbeat carries this machine's fleet.Node
// if that differs from the one that the cluster has.
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
		s.sentNode = &sentNode{heartbeat: s.heartbeats, hash: hash}
	}
	// Until it is answered, another heartbeat would tell nothing new.
	s.nextHeartbeat = now + heartbeatDelay(s.proto.TTL(), 0)
	s.performOutputs(ctx, s.proto.SendHeartbeat(now, h))
}

// handleHeartbeatAck handles the answer to a heartbeat: it schedules the next heartbeat, takes over the node status
// and the list of hubs, and journals the contact with them. The first answer of a session commits it
// (commitSession).
func (s *session) handleHeartbeatAck(ctx context.Context, e syncproto.EventAck) {
	away := s.cfg.Journal.Away()
	s.cfg.Journal.NoteHeartbeat(e.RTT, s.trustedHubTime(e.Ack.HubTime))
	if len(e.Ack.CAs) > 0 {
		if err := s.cfg.AcceptCAs(e.Ack.CAs); err != nil { // the next session's hub names them again
			s.log.Error("the cluster's CAs not stored", "error", err)
		}
	}
	s.cfg.Answered()
	s.roundTripCheckAt, s.roundTripStats = s.monotonicNow()+measureAfter, s.hubConn.conn.Stats()
	sent := s.monotonicNow() - e.RTT
	s.nextHeartbeat = min(s.nextHeartbeat, sent+heartbeatDelay(s.proto.TTL(), s.cfg.Silence()))
	s.tracker.updateStatus(func(st *Status) {
		st.NodeStatus, st.NodeReason, st.TTL, st.Epoch = e.Ack.Status, e.Ack.Reason, s.proto.TTL(), e.Ack.Epoch
	})
	if s.sentNode != nil && e.Ack.Number >= s.sentNode.heartbeat && !e.Ack.NeedNode {
		s.mem.NodeHash, s.sentNode = s.sentNode.hash, nil
		if !e.First {
			s.saveLinkStateOrEnd(ctx)
		}
	}
	if e.Ack.NeedNode {
		s.mem.NodeHash, s.nextHeartbeat = nil, s.monotonicNow()
	}
	if hubs := e.Ack.Hubs; len(hubs) > 0 && !slices.Equal(hubs, s.mem.Hubs) {
		s.updateHubList(hubs)
		if !e.First {
			s.saveLinkStateOrEnd(ctx)
		}
	}
	if e.First {
		s.commitSession(ctx, e.Ack, away)
	}
	s.updateNodeStatus(ctx, e.Ack.Status)
	if err := s.cfg.Journal.SaveHeartbeat(ctx); err != nil { // what was journaled above has it already
		s.log.Warn("answered heartbeat not journaled", "error", err)
	}
}

// trustedHubTime returns the hub's time, or 0 if that is after the end of the hub's certificate. The hub's
// clock is wrong then, and with its time this edge would refuse the hubs with correct clocks.
func (s *session) trustedHubTime(hubTime int64) int64 {
	if chain := s.hubConn.conn.State().PeerCertificates; len(chain) > 0 && hubTime > chain[0].NotAfter.UnixNano() {
		return 0
	}
	return hubTime
}

// updateNodeStatus shows the node status that the cluster reports in the link's status; "" changes nothing.
// Once the node is ready, its return is complete, and the link's state is saved without Rejoined.
func (s *session) updateNodeStatus(ctx context.Context, status fleet.NodeStatus) {
	if status == "" {
		return
	}
	s.tracker.updateStatus(func(st *Status) { st.NodeStatus = status })
	if status == fleet.NodeReady && s.mem.Rejoined {
		s.mem.Rejoined = false
		s.saveLinkStateOrEnd(ctx)
	}
}

// updateHubList replaces the remembered hub addresses by those that a hub named. It does not save them.
func (s *session) updateHubList(hubs []string) {
	s.mem.Hubs = knownHubs(hubs, nil)
	all := knownHubs(s.mem.Hubs, s.cfg.Hubs)
	s.tracker.updateStatus(func(st *Status) { st.Hubs = all })
}

// saveLinkStateOrEnd calls saveLinkState; an error ends the session. It reports whether the state is saved.
func (s *session) saveLinkStateOrEnd(ctx context.Context, rows ...fleet.Transition) (kept bool) {
	err := s.saveLinkState(ctx, rows...)
	if err != nil {
		s.endWithError(fleet.AsError(err))
	}
	return err == nil
}

// commitSession handles the session's first acknowledged heartbeat, after the time away without one: the cluster has
// committed the session. It journals the return of the link, and then sends the rows that the cluster lacks. A journal
// that lost rows is renumbered instead, and the session ends.
func (s *session) commitSession(ctx context.Context, ack syncproto.HeartbeatAck, away time.Duration) {
	s.committed = true
	s.stopSearch()
	s.backoff.resetDelays()
	s.round, s.lastHub, s.refusingHub = 0, s.hubConn.hub, ""
	before := s.mem
	rows := s.reconnectRows(ack, away)
	if ack.Index > 0 || s.mem.WentBack != before.WentBack { // hubs of older releases name the index of a hub that may lag
		if err := s.cfg.NoteIndex(ctx, s.mem.Index); err != nil {
			s.mem = before // the next session finds it again
			s.endWithError(fleet.AsError(err))
			return
		}
	}
	if hubs := s.welcome.Hubs; len(hubs) > 0 && len(ack.Hubs) == 0 {
		s.updateHubList(hubs)
	}
	if ack.Status == fleet.NodeInitializing && before.Index > 0 { // otherwise it never had a session from which it returns
		s.mem.Rejoined = true
	}
	s.mem.Cluster, s.mem.Disconnected, s.mem.Fenced = s.welcome.Cluster, false, ""
	if !s.saveLinkStateOrEnd(ctx, rows...) {
		s.mem.Disconnected = before.Disconnected // as in the journal
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

// appliedByCluster returns the newest row that the cluster has applied, from the Welcome or, if it is newer or
// a snapshot was restored since, from the first acknowledgement.
func (s *session) appliedByCluster(ack syncproto.HeartbeatAck) fleet.Seq {
	if ack.Restored > s.clusterIndex {
		return ack.Applied
	}
	return max(s.welcome.Applied, ack.Applied)
}

// reconnectRows returns the rows that record the return of the link after the time away, and updates l.mem with the
// cluster's index and term. If the cluster is at an older state than before, it sets mem.WentBack, and the rows say so.
func (s *session) reconnectRows(ack syncproto.HeartbeatAck, away time.Duration) []fleet.Transition {
	index, term := ack.Index, ack.Term
	if index == 0 {
		index, term = s.welcome.Index, s.welcome.Term
	}
	var rows []fleet.Transition
	message := fmt.Sprintf("hub %s, away for %s", s.hubConn.hub, away.Round(time.Millisecond))
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
