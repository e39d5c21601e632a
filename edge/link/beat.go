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

// description is what a beat said of the machine.
type description struct {
	beat uint64
	hash []byte
}

// welcomed checks that this is the cluster that the edge belongs to, and beats.
func (s *session) welcomed(ctx context.Context, w syncproto.Welcome) {
	if s.mem.Cluster != "" && w.Cluster != s.mem.Cluster {
		s.perform(ctx, s.proto.Bad(fleet.Errorf(fleet.CodeForbidden,
			"hub %s belongs to cluster %s, this edge to %s", s.f.hub, fleet.Short(w.Cluster), fleet.Short(s.mem.Cluster)).
			WithHint("remove the edge's data directory to let it join another cluster")))
		return
	}
	s.welcome = w
	s.beat(ctx, s.now())
}

// beat sends a heartbeat, with the machine's description where the cluster does
// not have it.
func (s *session) beat(ctx context.Context, now time.Duration) {
	s.beats++
	h := syncproto.Heartbeat{Uptime: s.cfg.Uptime(), Wall: s.cfg.Now().UnixNano(), RTT: s.f.conn.Stats().RTT}
	hash, node := s.cfg.Edge.Describe()
	changed := !bytes.Equal(hash, s.mem.NodeHash)
	if changed || s.beats == 1 {
		h.Hash = hash
	}
	if changed {
		h.Node = &node
		s.shown = &description{beat: s.beats, hash: hash}
	}
	// While it is not answered another one would say nothing that is new.
	s.nextBeat = now + beatAfter(s.proto.TTL(), 0)
	s.perform(ctx, s.proto.Beat(now, h))
}

// acknowledged takes the answer to a beat.
func (s *session) acknowledged(ctx context.Context, e syncproto.EventAck) {
	if err := s.cfg.Memory.Beat(ctx, s.believed(e.Ack.HubTime)); err != nil {
		s.log.Warn("answered beat not noted", "error", err)
	}
	s.measureAt, s.measured = s.now()+measureAfter, s.f.conn.Stats()
	sent := s.now() - e.RTT
	s.nextBeat = min(s.nextBeat, sent+beatAfter(s.proto.TTL(), s.cfg.Silence()))
	s.board.set(func(st *Status) {
		st.NodeStatus, st.NodeReason, st.TTL, st.Epoch = e.Ack.Status, e.Ack.Reason, s.proto.TTL(), e.Ack.Epoch
	})
	if s.shown != nil && e.Ack.Number >= s.shown.beat && !e.Ack.NeedNode {
		s.mem.NodeHash, s.shown = s.shown.hash, nil
		if !e.First {
			s.remember(ctx)
		}
	}
	if e.Ack.NeedNode {
		s.mem.NodeHash, s.nextBeat = nil, s.now()
	}
	if hubs := e.Ack.Hubs; len(hubs) > 0 && !slices.Equal(hubs, s.mem.Hubs) {
		s.learn(hubs)
		if !e.First {
			s.remember(ctx)
		}
	}
	if e.First {
		s.commit(ctx, e.Ack)
	}
	s.stands(ctx, e.Ack.Status)
}

// believed is the hub's time, or 0 where that is after the end of the certificate
// that the hub showed. Its clock is wrong then, and by such a time this edge would
// refuse the hubs whose clocks are right.
func (s *session) believed(hubTime int64) int64 {
	if chain := s.f.conn.State().PeerCertificates; len(chain) > 0 && hubTime > chain[0].NotAfter.UnixNano() {
		return 0
	}
	return hubTime
}

// stands takes what the cluster says of this node.
func (s *session) stands(ctx context.Context, status fleet.NodeStatus) {
	if status == "" {
		return
	}
	s.board.set(func(st *Status) { st.NodeStatus = status })
	if status == fleet.NodeReady && s.mem.Rejoined {
		s.mem.Rejoined = false
		s.remember(ctx)
	}
}

// learn takes over the hub list.
func (s *session) learn(hubs []string) {
	s.mem.Hubs = knownHubs(hubs, nil)
	all := knownHubs(s.mem.Hubs, s.cfg.Hubs)
	s.board.set(func(st *Status) { st.Hubs = all })
}

// remember writes what the link has to remember; without it the session ends.
func (s *session) remember(ctx context.Context, rows ...fleet.Transition) (kept bool) {
	err := s.keep(ctx, rows...)
	if err != nil {
		s.stop(fleet.AsError(err))
	}
	return err == nil
}

// commit is the first answer: the cluster has committed the session, and the way
// is open.
func (s *session) commit(ctx context.Context, ack syncproto.HeartbeatAck) {
	s.committed = true
	s.stopSeeking()
	s.pause.reset()
	s.round, s.lastHub, s.turned = 0, s.f.hub, ""
	noted := s.mem.Disconnected
	rows := s.returned(ack)
	if hubs := s.welcome.Hubs; len(hubs) > 0 && len(ack.Hubs) == 0 {
		s.learn(hubs)
	}
	if ack.Status == fleet.NodeInitializing && s.mem.Cluster != "" {
		s.mem.Rejoined = true
	}
	s.mem.Cluster, s.mem.Disconnected, s.mem.Fenced = s.welcome.Cluster, false, ""
	if !s.remember(ctx, rows...) {
		s.mem.Disconnected = noted // as the journal has it
	}
	wentBack := s.mem.WentBack
	s.board.set(func(st *Status) {
		st.LastError, st.Fenced, st.WentBack = "", "", wentBack
	})
	s.board.connected()
	s.log.Info("connected", "hub", s.f.hub, "epoch", ack.Epoch, "status", ack.Status)
	if s.cfg.Journal.Head().Lost != "" {
		s.rebase(ctx, ack)
		return
	}
	s.replay(ctx, s.applies(ack))
}

// applies is how far the cluster has this journal. What the Welcome says may be of
// before a snapshot was restored.
func (s *session) applies(ack syncproto.HeartbeatAck) fleet.Seq {
	if ack.Restored > s.seen {
		return ack.Applied
	}
	return max(s.welcome.Applied, ack.Applied)
}

// returned makes the rows that tell of the link's return, and notes where the
// cluster stands now.
func (s *session) returned(ack syncproto.HeartbeatAck) []fleet.Transition {
	index, term := ack.Index, ack.Term
	if index == 0 {
		index, term = s.welcome.Index, s.welcome.Term
	}
	var rows []fleet.Transition
	message := fmt.Sprintf("hub %s, away for %s", s.f.hub, s.cfg.Memory.Away().Round(time.Millisecond))
	applied, known := s.applies(ack), s.cfg.Journal.Head().Acknowledged
	if s.mem.Cluster != "" && (index < s.seen || applied < known || ack.Restored > s.seen) {
		how := ""
		if ack.Restored > s.seen {
			how = fmt.Sprintf("a snapshot was restored at index %d, ", ack.Restored)
		}
		s.mem.WentBack = fmt.Sprintf("the cluster went back: %sit is at index %d (term %d) and was at %d (term %d) at least, "+
			"it has this journal up to row %d and had acknowledged row %d; this edge keeps its work",
			how, index, term, s.seen, s.mem.Term, applied, known)
		s.log.Warn("the cluster went back", "from", s.seen, "to", index, "acknowledged", known, "applied", applied)
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
