package gateway

import (
	"context"
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

const (
	// receivedAfter is how long a new received index waits for rows before it is submitted alone.
	receivedAfter = time.Second
	// A forked journal's rows are kept apart up to these bounds.
	keptRows  = 100
	keptBytes = 64 << 10
)

// batchAnswer is the updateBatcher's answer to the oldest unanswered batch, or, with alone set, to a
// received index that was submitted without rows.
type batchAnswer struct {
	result state.BatchResult
	err    error
	alone  bool
	index  fleet.Index // the received index of the batch
}

// submitUpdates hands rows to the updateBatcher. Their answer releases their bytes of the budget.
func (s *session) submitUpdates(e syncproto.EventUpdates) {
	batch := state.NodeRows{
		NodeID: s.node, Epoch: e.Epoch, First: e.Updates.First, Prev: e.Updates.Prev,
		Rows: e.Updates.Rows, Base: e.Updates.Base, Received: s.received.takeUnsubmitted(),
	}
	s.inFlight = append(s.inFlight, batch)
	paid := s.budgetHeld
	s.gw.updateBatcher.submitBatch(queuedBatch{batch: batch, sessionOver: s.over, answer: func(r state.BatchResult, err error) {
		s.gw.budget.Release(paid)
		s.answers <- batchAnswer{result: r, err: err, index: batch.Received}
	}})
}

// handleReceived notes the newest desired index that the edge has journaled with all job bodies, and queues the bodies that
// the edge lacks: without one it does not act on the newest version.
func (s *session) handleReceived(r syncproto.Received) {
	if r.Index > s.received.index && len(r.Missing) == 0 {
		s.received.index, s.received.since = r.Index, time.Now()
	}
	s.desiredSender.recordReceived(r.Index)
	if len(r.Missing) > 0 {
		s.desiredSender.queueQuestion(question{missing: r.Missing})
	}
}

// takeUnsubmitted returns the received index and marks it as submitted. 0: it was submitted before.
func (r *received) takeUnsubmitted() fleet.Index {
	if r.index <= r.submitted {
		return 0
	}
	r.submitted = r.index
	return r.index
}

// isReportDue reports whether the received index should be submitted without rows.
func (r *received) isReportDue(now time.Time) bool {
	return !r.inFlight && r.index > r.submitted && now.Sub(r.since) >= receivedAfter
}

// submitReceivedIndex submits the received index without rows.
func (s *session) submitReceivedIndex() {
	s.received.inFlight = true
	batch := state.NodeRows{NodeID: s.node, Epoch: s.machine.Epoch(), Received: s.received.takeUnsubmitted()}
	s.gw.updateBatcher.submitBatch(queuedBatch{batch: batch, sessionOver: s.over, answer: func(r state.BatchResult, err error) {
		s.answers <- batchAnswer{result: r, err: err, alone: true, index: batch.Received}
	}})
}

// handleBatchAnswer acknowledges a batch to the edge, or refuses the session with the reason why the
// batch was not applied.
func (s *session) handleBatchAnswer(ctx context.Context, a batchAnswer) []syncproto.Output {
	var batch state.NodeRows
	if a.alone {
		s.received.inFlight = false
	} else {
		batch, s.inFlight = s.inFlight[0], s.inFlight[1:]
	}
	switch {
	case a.err != nil:
		return s.machine.Refuse(syncproto.Refused{Code: fleet.CodeOf(a.err), Message: a.err.Error()})
	case a.result.Code == fleet.CodeFork && len(batch.Rows) > 0:
		s.runInBackground(ctx, func(ctx context.Context) loopCall { return s.handleForkedJournal(ctx, a.result, batch) })
		return nil
	case a.result.Code != "":
		s.gw.updateStats(func(st *Stats) { st.Refused++ })
		return s.machine.Refuse(syncproto.Refused{Code: a.result.Code, Message: a.result.Message, Applied: a.result.Applied})
	case a.alone:
		return nil
	}
	s.gw.updateStats(func(st *Stats) { st.Updates += uint64(len(batch.Rows)) })
	applied := syncproto.Applied{Last: a.result.Applied}
	if a.result.Status != s.status {
		s.status, applied.Status = a.result.Status, a.result.Status
	}
	return s.machine.AppliedTo(applied)
}

// handleForkedJournal records the first rows of a forked journal beside the node, and returns the call
// that refuses the session.
func (s *session) handleForkedJournal(ctx context.Context, r state.BatchResult, batch state.NodeRows) loopCall {
	refused := syncproto.Refused{Code: fleet.CodeFork, Message: r.Message, Applied: r.Applied, RetryAfter: cloneRetry}
	if node, ok := s.gw.cfg.State.View().Node(s.node); ok {
		if node.Readmit {
			return s.refuseSession(putBackRefusal(node))
		}
		s.recordFenceOnce(ctx, node, fleet.CodeFork, firstRows(batch.Rows))
		refused.Hint = forkHint(node)
	}
	return s.refuseSession(refused)
}

// firstRows returns the first rows within keptRows and keptBytes.
func firstRows(rows [][]byte) [][]byte {
	size := 0
	for i, r := range rows {
		if size += len(r); i == keptRows || size > keptBytes {
			return rows[:i]
		}
	}
	return rows
}

// readyProgress detects an open session whose node does not become ready.
type readyProgress struct {
	since        time.Time // time of the last progress
	applied      fleet.Seq
	resyncsInRow uint // resyncs in a row
}

func (h *readyProgress) resetProgress(now time.Time, applied fleet.Seq) {
	*h = readyProgress{since: now, applied: applied}
}

// needsResync reports whether a resync is due: after 2 TTLs without progress, then each
// time after twice as long, up to 64 TTLs.
func (h *readyProgress) needsResync(now time.Time, ttl time.Duration) bool {
	return now.Sub(h.since) > (2*ttl)<<min(h.resyncsInRow, 5)
}

// timeToNextCheck returns how long the loop may sleep if no event comes. It is long for a session
// whose node is ready, as a hub has thousands of those.
func (s *session) timeToNextCheck() time.Duration {
	until := s.lastCheck + checkInterval - s.timeSinceStart() // however many events come in
	if s.machine.State() == syncproto.SessionOpen && s.status == fleet.NodeReady && s.pendingDescription == nil {
		until = time.Hour
	}
	if due, ok := s.machine.Due(); ok {
		until = min(until, due-s.timeSinceStart())
	}
	if r := &s.received; r.index > r.submitted && !r.inFlight {
		until = min(until, time.Until(r.since.Add(receivedAfter)))
	}
	return max(until, 0)
}

// runPeriodicChecks submits a received index that is due and a pending node description, and asks an
// edge for a resync if its node makes no progress towards ready.
func (s *session) runPeriodicChecks(ctx context.Context) []syncproto.Output {
	s.lastCheck = s.timeSinceStart()
	if s.machine.State() != syncproto.SessionOpen {
		return nil
	}
	now := time.Now()
	if s.received.isReportDue(now) {
		s.submitReceivedIndex()
	}
	if h := s.pendingDescription; h != nil && s.allowance.describes.Allow() {
		s.pendingDescription = nil
		s.runInBackground(ctx, func(ctx context.Context) loopCall { return s.commitDescription(ctx, *h) })
	}
	if s.status == fleet.NodeReady {
		return nil // the desiredSender ends the session when the node is no longer ready
	}
	node, ok := s.gw.cfg.State.View().Node(s.node)
	if !ok || node.Epoch != s.machine.Epoch() {
		return nil // the desiredSender ends the session
	}
	if node.Status == fleet.NodeReady || node.Applied > s.readyProgress.applied {
		s.readyProgress.resetProgress(now, node.Applied)
		return nil
	}
	if !s.readyProgress.needsResync(now, s.gw.cfg.Beats.TTL(node.NodePool)) {
		return nil
	}
	s.readyProgress.resyncsInRow++
	s.readyProgress.since = now
	reason := fmt.Sprintf("connected but not ready: %d of %d journal rows are applied", node.Applied, node.JournalHead)
	s.log.Warn("node makes no progress towards ready, asking for a resync", "applied", node.Applied, "head", node.JournalHead)
	cmd := state.NodeResync{NodeID: s.node, Epoch: node.Epoch, Reason: reason, Now: now.UnixNano()}
	s.runInBackground(ctx, func(ctx context.Context) loopCall { return s.requestResync(ctx, cmd, node.Applied) })
	return nil
}

// requestResync commits why the node is not ready, and returns the call that asks the edge to send
// its rows from applied on again.
func (s *session) requestResync(ctx context.Context, cmd state.NodeResync, applied fleet.Seq) loopCall {
	s.commitResyncNote(ctx, cmd)
	return func(time.Duration) []syncproto.Output {
		if s.machine.State() != syncproto.SessionOpen {
			return nil
		}
		s.desiredSender.queueQuestion(question{again: true})
		return s.machine.Resync(syncproto.Resync{Reason: cmd.Reason, Applied: applied})
	}
}

// commitResyncNote commits a note that operators see at the node. A failure is logged and reported as
// false.
func (s *session) commitResyncNote(ctx context.Context, cmd state.NodeResync) (noted bool) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := s.gw.cfg.Apply.Apply(ctx, cmd)
	if err = res.Failure(err); err != nil {
		s.log.Warn("node's state not noted", "reason", cmd.Reason, "error", err)
	}
	return err == nil
}
