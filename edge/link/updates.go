package link

import (
	"context"
	"fmt"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// maxBatch bounds the row bytes of one Updates: half of the allowed bytes, because two may be in flight.
const maxBatch = syncproto.MaxUpdatesBytes / 2

// startReplay acknowledges the rows up to applied and sends those after it. If some of them are no longer held,
// it first appends rows with the states of all allocations, and lets the cluster continue from the oldest held
// row.
func (s *session) startReplay(ctx context.Context, applied fleet.Seq) {
	s.cfg.Journal.Acknowledge(applied)
	s.cursor = applied + 1
	if s.cursor < s.cfg.Journal.Head().First {
		// The cluster lost rows that it had acknowledged, and this edge has deleted them. The edge
		// records the resulting states again.
		s.log.Warn("the cluster went back behind this journal", "applied", applied, "first", s.cfg.Journal.Head().First)
		if err := s.cfg.Edge.Restate(ctx); err != nil {
			s.endWithError(fleet.AsError(fmt.Errorf("record the states of allocations again: %w", err)))
			return
		}
		s.sendsBase = true
	}
	s.sendRows(ctx)
}

// rebaseJournal renumbers the rows of a journal that lost rows, after the newest row of the cluster, and ends
// the session: the numbers that it announced are no longer valid. The next session starts at once.
func (s *session) rebaseJournal(ctx context.Context, ack syncproto.HeartbeatAck) {
	if ack.Applied > 0 && len(ack.ChainHash) == 0 {
		s.endWithError(fleet.Errorf(fleet.CodeVersion, "continue a journal that lost rows: hub %s does not say after which row", s.hubConn.hub).
			WithHint("upgrade the hub"))
		return
	}
	s.log.Warn("rows are lost: the journal continues behind the cluster's newest row", "reason", s.cfg.Journal.Head().Lost, "applied", ack.Applied)
	restate := func(states map[fleet.AllocID]journal.State) []fleet.Transition {
		return journal.Restatement(states, s.currentMoment(), "said again: rows before it are lost")
	}
	if err := s.cfg.Journal.Rebase(ctx, ack.Applied, ack.ChainHash, restate); err != nil {
		s.endWithError(fleet.AsError(err))
		return
	}
	s.endSession(sessionEnd{reconnectNow: true, err: fleet.Errorf(fleet.CodeGap, "rows are lost: the journal continues after row %d", ack.Applied)})
}

// scheduleSend sets the time at which rows after the cursor are sent. It ends the session if the journal has
// lost rows.
func (s *session) scheduleSend() {
	if !s.committed || s.backlog {
		return
	}
	head := s.cfg.Journal.Head()
	if head.Lost != "" {
		s.endSession(lostRowsEnd(head.Lost))
		return
	}
	if head.Last < s.cursor {
		return
	}
	if at := nextTick(s.monotonicNow(), head.Urgent >= s.cursor); s.sendAt == 0 || at < s.sendAt {
		s.sendAt = at
	}
}

// sendRows sends as many rows from the cursor on as may be in flight. If more are left, it sets backlog, and
// they follow the next answer.
func (s *session) sendRows(ctx context.Context) {
	s.backlog = false
	for s.end == nil && s.committed && s.cursor <= s.cfg.Journal.Head().Last {
		if !s.proto.MaySend() {
			s.backlog = true
			return
		}
		first, prev, rows, err := s.cfg.Journal.Rows(ctx, s.cursor, syncproto.MaxUpdatesRows, maxBatch)
		switch {
		case err != nil:
			s.endWithError(fleet.AsError(fmt.Errorf("read rows from %d: %w", s.cursor, err)))
			return
		case s.cfg.Journal.Head().Lost != "":
			s.endSession(lostRowsEnd(s.cfg.Journal.Head().Lost))
			return
		case len(rows) == 0:
			return
		case first != s.cursor && !s.sendsBase:
			s.endWithError(fleet.Errorf(fleet.CodeGap, "replay the journal: its rows from %d on are no longer held, the next one is %d", s.cursor, first))
			return
		}
		s.cursor = first + fleet.Seq(len(rows))
		u := syncproto.Updates{First: first, Prev: prev, Rows: rows, Base: s.sendsBase}
		s.sendsBase = false
		s.performOutputs(ctx, s.proto.Update(u))
	}
}

// lostRowsEnd returns the end of a session whose journal has lost rows since Hello: the numbers of its rows are
// no longer valid. The next session starts at once and announces that.
func lostRowsEnd(why string) sessionEnd {
	return sessionEnd{reconnectNow: true, err: fleet.Errorf(fleet.CodeGap, "rows are lost: %s", why)}
}

// handleApplied handles the answer to an Updates: it acknowledges the applied rows in the journal and sends
// more. If the cluster applied fewer rows than were sent, sending continues after the applied ones.
func (s *session) handleApplied(ctx context.Context, a syncproto.Applied) {
	s.cfg.Journal.Acknowledge(a.Last)
	s.updateNodeStatus(ctx, a.Status)
	if s.proto.InFlight() == 0 && a.Last+1 < s.cursor {
		s.cursor, s.backlog = a.Last+1, true
	}
	if s.backlog {
		s.sendRows(ctx)
	}
}

// checkSilence checks if anything was received since the last send. If not, it starts a search beside the
// session, and the connection that works first is used.
//
// A packet from the hub does not prove that this side's packets arrive: QUIC repeats lost packets after longer
// and longer times, on each side on its own. But it shows that the path works, so the search starts again at
// once.
func (s *session) checkSilence(ctx context.Context, now time.Duration) {
	received := s.hubConn.conn.Stats().PacketsReceived
	switch {
	case s.search == nil && received != s.packetsHeard:
		s.noteHubHeard()
		return
	case s.search == nil:
		s.log.Debug("hub is silent", "hub", s.hubConn.hub)
		s.startSearch(ctx, 0)
	case received != s.packetsHeard:
		s.stopSearch()
		s.backoff.resetDelays()
		s.startSearch(ctx, 0)
	}
	s.packetsHeard, s.silenceCheckAt = received, now+minSilenceCheck/3
}

// noteHubHeard ends the check of silence, and the search that it started: the hub has sent something.
func (s *session) noteHubHeard() {
	s.silenceCheckAt = 0
	s.stopSearch()
}

// checkRoundTrip finds a round trip that has become so much longer that QUIC, which still reckons with the old one, only sends
// probes. It then ends the session, and the next session starts at once with a connection that measures the round trip.
// Otherwise the round trip replaces the answer time of the dial, which a healing path or a load may have made longer.
func (s *session) checkRoundTrip() {
	s.roundTripCheckAt = 0
	now := s.hubConn.conn.Stats()
	if !now.Probes(s.roundTripStats) {
		s.cfg.AnswerTime.setAnswerTime(now.RTT)
		return
	}
	s.endSession(sessionEnd{reconnectNow: true, err: fleet.Errorf(fleet.CodeTimeout,
		"the round trip to hub %s is not the one of %s that was measured: a new connection measures it", s.hubConn.hub, now.RTT)})
}

// replacementFound returns the channel on which the search beside the session delivers a connection; nil: no
// search is running.
func (s *session) replacementFound() chan *hubConnection {
	if s.search == nil {
		return nil
	}
	return s.search.found
}

// switchConnection ends the session, because the search beside it has found the connection f. It leaves f to
// the next session.
func (s *session) switchConnection(f *hubConnection) {
	s.search.found <- f // Run takes it from there
	s.endSession(sessionEnd{err: fleet.Errorf(fleet.CodeTimeout, "nothing heard from hub %s", s.hubConn.hub)})
}

// handleSessionEnd logs why a session ended, shows and journals what the next one needs (a session number, a
// fence, an older copy of the journal, the loss of the link), and sets the pause before it.
func (l *Link) handleSessionEnd(ctx context.Context, e sessionEnd) {
	l.cfg.Ended(e.err)
	l.log.Info("session over", "committed", e.committed, "code", e.err.Code, "error", e.err.Message)
	stale := e.err.Code == fleet.CodeStaleSession
	e.firstTry, l.stale = !l.stale, stale
	switch e.err.Code {
	case fleet.CodeStaleSession:
		l.mem.Session = max(l.mem.Session, e.session)
	case fleet.CodePutBack:
		l.log.Warn("the data directory is an older copy: the journal continues behind the cluster's newest row", "applied", e.applied)
		e.reconnectNow = l.cfg.Journal.Head().Lost == "" // at most once in a row
		if err := l.cfg.Journal.RecordOlderCopy(ctx, e.applied); err != nil {
			l.log.Warn("older copy of the journal not recorded", "error", err)
			e.reconnectNow = false
		}
	case fleet.CodeFork, fleet.CodeCloned:
		l.mem.Fenced = e.err.Error()
		if err := l.saveLinkState(ctx); err != nil {
			l.log.Warn("fence not recorded", "error", err)
		}
	}
	if e.refusedByHub {
		l.refusingHub = e.hub
	}
	fenced := l.mem.Fenced
	l.tracker.updateStatus(func(s *Status) { s.LastError, s.Fenced, s.Epoch = e.err.Error(), fenced, 0 })
	if e.committed && !e.reconnectNow {
		l.recordLinkLoss(ctx, e.err.Message)
	}
	if l.search == nil {
		if e.committed {
			l.backoff.resetDelays() // a search beside the session may have used them
		}
		if l.wait = 0; !e.reconnectNow {
			l.wait = l.backoff.delayAfterSession(e)
		}
		l.round++
	}
}

// recordLinkLoss journals a row that the link is lost, with the time since the last answered heartbeat. It does
// nothing if the loss is recorded already. It logs an error.
func (l *Link) recordLinkLoss(ctx context.Context, why string) {
	if l.mem.Disconnected {
		return
	}
	l.mem.Disconnected = true
	err := l.saveLinkState(ctx, fleet.Transition{
		Kind:    fleet.TransitionDisconnect,
		Message: fmt.Sprintf("last answer %s ago: %s", l.cfg.Journal.Away().Round(time.Millisecond), why),
	})
	if err != nil {
		l.mem.Disconnected = false
		l.log.Warn("loss of the link not recorded", "error", err)
	}
}
