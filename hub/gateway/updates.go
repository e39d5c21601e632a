package gateway

import (
	"context"
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/planted"
	"skerry/syncproto"
)

const (
	// receivedAfter is how long the news that an edge journaled its desired state
	// waits for rows to travel with.
	receivedAfter = time.Second
	// A forked journal's rows are kept apart up to these bounds.
	keptRows  = 100
	keptBytes = 64 << 10
)

// answer is the folder's, of the oldest batch not yet answered or, where alone,
// of a received index without rows.
type answer struct {
	result state.BatchResult
	err    error
	alone  bool
	index  fleet.Index // the received one that went along
}

// updates hands rows to the folder.
func (s *session) updates(e syncproto.EventUpdates) {
	batch := state.NodeRows{
		NodeID: s.node, Epoch: e.Epoch, First: e.Updates.First, Prev: e.Updates.Prev,
		Rows: e.Updates.Rows, Base: e.Updates.Base, Received: s.received.take(),
	}
	s.inFlight = append(s.inFlight, batch)
	paid := s.paid
	s.gw.folder.submit(submission{batch: batch, gone: s.over, answer: func(r state.BatchResult, err error) {
		s.gw.budget.Release(paid)
		s.answers <- answer{result: r, err: err, index: batch.Received}
	}})
}

// receive notes what the edge has journaled of its desired state.
func (s *session) receive(r syncproto.Received) {
	if r.Index > s.received.index {
		s.received.index, s.received.since = r.Index, time.Now()
	}
	s.pusher.heard(r.Index)
	if len(r.Missing) > 0 {
		s.pusher.ask(question{missing: r.Missing})
	}
}

// take returns the received index that the cluster does not have yet.
func (r *received) take() fleet.Index {
	if r.index <= r.submitted {
		return 0
	}
	r.submitted = r.index
	return r.index
}

// due reports whether the received index should go without rows.
func (r *received) due(now time.Time) bool {
	return !r.inFlight && r.index > r.submitted && now.Sub(r.since) >= receivedAfter
}

// report sends the received index alone.
func (s *session) report() {
	s.received.inFlight = true
	batch := state.NodeRows{NodeID: s.node, Epoch: s.machine.Epoch(), Received: s.received.take()}
	s.gw.folder.submit(submission{batch: batch, gone: s.over, answer: func(r state.BatchResult, err error) {
		s.answers <- answer{result: r, err: err, alone: true, index: batch.Received}
	}})
}

// answered passes the cluster's answer on to the edge.
func (s *session) answered(ctx context.Context, a answer) []syncproto.Output {
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
		s.later(ctx, func(ctx context.Context) call { return s.fork(ctx, a.result, batch) })
		return nil
	case a.result.Code != "":
		s.gw.count(func(st *Stats) { st.Refused++ })
		if planted.On(planted.RefuseSilently) {
			return nil
		}
		return s.machine.Refuse(syncproto.Refused{Code: a.result.Code, Message: a.result.Message, Applied: a.result.Applied})
	case a.alone:
		return nil
	}
	s.gw.count(func(st *Stats) { st.Updates += uint64(len(batch.Rows)) })
	applied := syncproto.Applied{Last: a.result.Applied}
	if a.result.Status != s.status {
		s.status, applied.Status = a.result.Status, a.result.Status
	}
	return s.machine.AppliedTo(applied)
}

// fork keeps apart what a forked journal said, and ends the session.
func (s *session) fork(ctx context.Context, r state.BatchResult, batch state.NodeRows) call {
	refused := syncproto.Refused{Code: fleet.CodeFork, Message: r.Message, Applied: r.Applied, RetryAfter: cloneRetry}
	if node, ok := s.gw.cfg.State.View().Node(s.node); ok {
		if node.Readmit {
			return s.refusal(putBack(node))
		}
		s.record(ctx, node, fleet.CodeFork, firstRows(batch.Rows))
		refused.Hint = forkHint(node)
	}
	return s.refusal(refused)
}

func firstRows(rows [][]byte) [][]byte {
	size := 0
	for i, r := range rows {
		if size += len(r); i == keptRows || size > keptBytes {
			return rows[:i]
		}
	}
	return rows
}

// halfWay notices a session whose node does not become ready.
type halfWay struct {
	since   time.Time // nothing has moved since
	applied fleet.Seq
	asked   uint // resyncs in a row
}

func (h *halfWay) begin(now time.Time, applied fleet.Seq) { *h = halfWay{since: now, applied: applied} }

// stuck reports whether a resync is due: after 2 TTLs without progress, then each
// time after twice as long, up to 64 TTLs.
func (h *halfWay) stuck(now time.Time, ttl time.Duration) bool {
	return now.Sub(h.since) > (2*ttl)<<min(h.asked, 5)
}

// rest is how long the loop may sleep where nothing comes in. A session whose node is
// ready has hardly anything to look at: a hub has thousands of them.
func (s *session) rest() time.Duration {
	until := s.looked + lookEvery - s.now() // however much comes in
	if s.machine.State() == syncproto.SessionOpen && s.status == fleet.NodeReady && s.untold == nil {
		until = time.Hour
	}
	if due, ok := s.machine.Due(); ok {
		until = min(until, due-s.now())
	}
	if r := &s.received; r.index > r.submitted && !r.inFlight {
		until = min(until, time.Until(r.since.Add(receivedAfter)))
	}
	return max(until, 0)
}

// idle is what the loop does when it has rested.
func (s *session) idle(ctx context.Context) []syncproto.Output {
	s.looked = s.now()
	if s.machine.State() != syncproto.SessionOpen {
		return nil
	}
	now := time.Now()
	if s.received.due(now) {
		s.report()
	}
	if h := s.untold; h != nil && s.allowance.describes.Allow() {
		s.untold = nil
		s.later(ctx, func(ctx context.Context) call { return s.commitDescription(ctx, *h) })
	}
	if s.status == fleet.NodeReady {
		return nil // what ends that ends the session: the pusher sees to it
	}
	node, ok := s.gw.cfg.State.View().Node(s.node)
	if !ok || node.Epoch != s.machine.Epoch() {
		return nil // the pusher ends the session
	}
	if node.Status == fleet.NodeReady || node.Applied > s.halfWay.applied {
		s.halfWay.begin(now, node.Applied)
		return nil
	}
	if !s.halfWay.stuck(now, s.gw.cfg.Beats.TTL(node.NodePool)) {
		return nil
	}
	s.halfWay.asked++
	s.halfWay.since = now
	reason := fmt.Sprintf("connected but not ready: %d of %d journal rows are applied", node.Applied, node.JournalHead)
	s.log.Warn("edge stays half-way, asking for a resync", "applied", node.Applied, "head", node.JournalHead)
	cmd := state.NodeResync{NodeID: s.node, Epoch: node.Epoch, Reason: reason, Now: now.UnixNano()}
	s.later(ctx, func(ctx context.Context) call { return s.resync(ctx, cmd, node.Applied) })
	return nil
}

// resync notes why the node is half-way, and asks its edge to say everything
// again.
func (s *session) resync(ctx context.Context, cmd state.NodeResync, applied fleet.Seq) call {
	s.note(ctx, cmd)
	return func(time.Duration) []syncproto.Output {
		if s.machine.State() != syncproto.SessionOpen {
			return nil
		}
		s.pusher.ask(question{again: true})
		return s.machine.Resync(syncproto.Resync{Reason: cmd.Reason, Applied: applied})
	}
}

// note commits what people should know of the node, if it can. That it cannot be noted
// stops nothing.
func (s *session) note(ctx context.Context, cmd state.NodeResync) (noted bool) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := s.gw.cfg.Apply.Apply(ctx, cmd)
	if err = res.Failure(err); err != nil {
		s.log.Warn("node's state not noted", "reason", cmd.Reason, "error", err)
	}
	return err == nil
}
