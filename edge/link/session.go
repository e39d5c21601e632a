package link

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// sessionEnd is how a session ended.
type sessionEnd struct {
	err          *fleet.Error
	retryAfter   time.Duration
	session      uint64    // with stale_session: the counter to exceed
	applied      fleet.Seq // with put_back: the newest row that the cluster has
	committed    bool      // a beat was answered
	firstTry     bool      // the one before it did not end in the same way
	reconnectNow bool      // the link is fine: another session follows at once
	hub          string    // address
	refusedByHub bool      // the hub refused the session, or ended it
}

// session is one session over one connection. Its loop owns all of it.
type session struct {
	*Link
	hubConn *hubConnection
	proto   *syncproto.EdgeSession
	end     *sessionEnd

	streams [3]*transport.Stream
	out     [3]chan syncproto.Message
	in      chan inbound // control and updates
	desired chan inbound // taken only while nothing is being delivered
	tasks   sync.WaitGroup

	clusterIndex    fleet.Index // newest index known of the cluster, before the session
	welcome         syncproto.Welcome
	committed       bool
	nextHeartbeat   time.Duration // 0: none before the Welcome
	heartbeats      uint64
	sentDescription *description // in a beat that is not yet answered

	delivering bool
	delivered  chan delivery

	cursor    fleet.Seq // next row to send
	sendsBase bool      // the next Updates starts the cluster's record anew
	sendAt    time.Duration
	backlog   bool // rows that are due wait for an answer

	silenceCheckAt time.Duration // when to look whether anything was heard; 0: nothing was sent since
	packetsHeard   uint64        // packets received when silenceCheckAt was set

	roundTripCheckAt time.Duration   // when to look what the connection sends; 0: not now
	roundTripStats   transport.Stats // when roundTripCheckAt was set
}

// inbound is a frame, or why no more will come.
type inbound struct {
	stream syncproto.Stream
	msg    syncproto.Message
	err    error
}

// delivery is how journaling a Desired ended.
type delivery struct {
	received syncproto.Received
	holdings []fleet.AllocID
	index    fleet.Index
	err      error
}

// queued bounds the frames of a stream that wait to be written. A session has far
// fewer, unless nothing gets through.
const queued = 16

// runSession runs one session to its end and closes its connection.
func (l *Link) runSession(ctx context.Context, f *hubConnection) sessionEnd {
	streaming, cancel := context.WithCancel(ctx)
	s := &session{
		Link: l, hubConn: f, proto: syncproto.NewEdgeSession(),
		in: make(chan inbound, 1), desired: make(chan inbound, 1), delivered: make(chan delivery, 1),
	}
	l.tracker.setConnection(f.conn)
	l.tracker.updateStatus(func(st *Status) { st.Hub = f.hub })
	if err := s.openStreams(streaming); err != nil {
		s.endWithError(fleet.AsError(err))
	}
	s.runEventLoop(ctx)
	cancel()
	var reason *fleet.Error
	if s.end != nil {
		reason = s.end.err
	} else {
		s.end = &sessionEnd{}
	}
	if err := f.conn.CloseWith(reason); err != nil {
		l.log.Debug("connection not closed", "hub", f.hub, "error", err)
	}
	s.tasks.Wait()
	l.tracker.setConnection(nil)
	if err := f.endpoint.Close(); err != nil {
		l.log.Debug("socket not closed", "hub", f.hub, "error", err)
	}
	s.end.committed, s.end.hub = s.committed, f.hub
	s.end.refusedByHub = s.end.err != nil && s.end.err.Code == fleet.CodeUnavailable
	return *s.end
}

// openStreams opens the streams and says Hello. Readers and writers end with ctx.
func (s *session) openStreams(ctx context.Context) error {
	s.mem.Session++
	if err := s.saveMemory(ctx); err != nil {
		return err
	}
	s.tracker.updateStatus(func(st *Status) { st.Session = s.mem.Session })
	for i := range s.streams {
		name := syncproto.Stream(i)
		stream, err := s.hubConn.conn.Open(ctx)
		if err != nil {
			return err
		}
		out := make(chan syncproto.Message, queued)
		s.streams[i], s.out[i] = stream, out
		in := s.in
		if name == syncproto.StreamDesired {
			in = s.desired
		}
		s.tasks.Go(func() { read(ctx, name, stream, in) })
		s.tasks.Go(func() { write(ctx, name, stream, out, s.in) })
	}
	s.tasks.Go(func() { s.acceptRequests(ctx) })
	head, desired := s.cfg.Journal.Head(), s.cfg.Edge.Desired()
	s.clusterIndex = s.mem.Index
	if s.mem.WentBack == "" { // else what is journaled may be of what is gone
		s.clusterIndex = max(s.clusterIndex, desired)
	}
	s.performOutputs(ctx, s.proto.Start(s.monotonicNow(), syncproto.Hello{
		Node: s.cfg.Node, Boot: s.cfg.Boot, Instance: s.cfg.Instance, Agent: s.cfg.Agent,
		Session: s.mem.Session,
		First:   head.First, Last: head.Last, ChainHash: head.ChainHash,
		Desired: desired, Cluster: s.mem.Cluster, Term: s.mem.Term, Index: s.clusterIndex, Lost: head.Lost,
	}))
	return nil
}

// runEventLoop runs until the session ends or ctx does.
func (s *session) runEventLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.end == nil {
		appended := s.cfg.Journal.Appended()
		s.scheduleSend()
		timer.Reset(max(0, s.nextWakeTime()-s.monotonicNow()))
		desired := s.desired
		if s.delivering {
			desired = nil
		}
		select {
		case <-ctx.Done():
			return
		case i := <-s.in:
			s.handleFrame(ctx, i)
		case i := <-desired:
			s.handleFrame(ctx, i)
		case d := <-s.delivered:
			s.confirmDelivery(ctx, d)
		case <-appended:
		case <-s.heartbeatRequests:
			if s.committed {
				s.nextHeartbeat = s.monotonicNow()
			}
		case f := <-s.replacementFound():
			s.switchConnection(f)
		case <-timer.C:
		}
		s.runDueTimers(ctx)
	}
}

// handleFrame steps the session on a frame, or on the end of a stream.
func (s *session) handleFrame(ctx context.Context, i inbound) {
	s.noteHubHeard() // a stream that ended was ended by the hub: silence is noticed by ticks
	if i.err == nil {
		s.performOutputs(ctx, s.proto.Frame(s.monotonicNow(), i.stream, i.msg))
		return
	}
	err := fleet.AsError(i.err)
	if code := err.Code; code == fleet.CodeFrameBad || code == fleet.CodeFrameTooLarge {
		s.performOutputs(ctx, s.proto.Bad(err))
		return
	}
	if cause := s.hubConn.conn.Err(); cause != nil {
		err = fleet.AsError(cause)
	}
	s.endWithError(err)
}

// nextWakeTime is when the loop has something to do though nothing comes in.
func (s *session) nextWakeTime() time.Duration {
	at := s.monotonicNow() + time.Hour
	for _, t := range []time.Duration{s.nextHeartbeat, s.sendAt, s.silenceCheckAt, s.roundTripCheckAt} {
		if t > 0 {
			at = min(at, t)
		}
	}
	if s.proto.State() != syncproto.SessionOpen || s.proto.Overdue(s.monotonicNow()) > 0 {
		at = min(at, s.monotonicNow()+time.Second) // the session's own timeouts
	}
	return at
}

// runDueTimers does what is due.
func (s *session) runDueTimers(ctx context.Context) {
	now := s.monotonicNow()
	if s.nextHeartbeat > 0 && now >= s.nextHeartbeat {
		s.sendHeartbeat(ctx, now)
	}
	if s.sendAt > 0 && now >= s.sendAt {
		s.sendAt = 0
		s.sendRows(ctx)
	}
	if s.silenceCheckAt > 0 && now >= s.silenceCheckAt {
		s.checkSilence(ctx, now)
	}
	if s.roundTripCheckAt > 0 && now >= s.roundTripCheckAt {
		s.checkRoundTrip()
	}
	s.performOutputs(ctx, s.proto.Tick(now))
}

// performOutputs does what a step of the session asks for, in order.
func (s *session) performOutputs(ctx context.Context, outputs []syncproto.Output) {
	for _, o := range outputs {
		if o.Send != nil {
			s.queueFrame(o.Stream, o.Send)
		}
		switch e := o.Event.(type) {
		case syncproto.EventWelcome:
			s.handleWelcome(ctx, e.Welcome)
		case syncproto.EventAck:
			s.handleHeartbeatAck(ctx, e)
		case syncproto.EventApplied:
			s.handleApplied(ctx, e.Applied)
		case syncproto.EventDesired:
			s.deliverDesired(ctx, e.Desired)
		case syncproto.EventResync:
			s.resendEverything(e.Resync)
		case syncproto.EventEnd:
			s.endSession(sessionEnd{err: e.Err, retryAfter: e.RetryAfter, session: e.Session, applied: e.Applied})
		}
	}
}

// queueFrame queues a frame. It never blocks: a queue that is full means that nothing
// gets through.
func (s *session) queueFrame(on syncproto.Stream, m syncproto.Message) {
	select {
	case s.out[on] <- m:
	default:
		s.endWithError(fleet.Errorf(fleet.CodeTimeout, "nothing gets through on the %s stream", on))
		return
	}
	if s.silenceCheckAt == 0 {
		stats := s.hubConn.conn.Stats()
		s.silenceCheckAt, s.packetsHeard = s.monotonicNow()+silenceCheckDelay(stats.RTT), stats.PacketsReceived
	}
}

func (s *session) endWithError(err *fleet.Error) { s.endSession(sessionEnd{err: err}) }

// endSession ends the session; the first reason counts.
func (s *session) endSession(e sessionEnd) {
	if s.end == nil {
		s.end = &e
	}
}

// deliverDesired hands over what the cluster wants, beside the loop: journaling may take
// a while, and beats go on.
func (s *session) deliverDesired(ctx context.Context, d syncproto.Desired) {
	s.delivering = true
	s.tasks.Go(func() {
		r, holdings, err := s.cfg.Edge.Deliver(ctx, d)
		s.delivered <- delivery{r, holdings, d.Index, err}
	})
}

// confirmDelivery tells the hub that a delivery is journaled.
func (s *session) confirmDelivery(ctx context.Context, d delivery) {
	s.delivering = false
	if d.err != nil {
		s.endWithError(fleet.AsError(fmt.Errorf("take desired state %d: %w", d.index, d.err)))
		return
	}
	s.mem.Index = max(s.mem.Index, d.index)
	s.performOutputs(ctx, s.proto.Received(d.received))
	for list := range slices.Chunk(d.holdings, syncproto.MaxHoldings) {
		d.holdings = d.holdings[len(list):]
		s.performOutputs(ctx, s.proto.Hold(syncproto.Holdings{Allocs: list, More: len(d.holdings) > 0}))
	}
}

// resendEverything says everything again: the hub asked for it.
func (s *session) resendEverything(r syncproto.Resync) {
	s.log.Warn("the hub asks for a resync", "reason", r.Reason, "applied", r.Applied)
	s.mem.NodeHash, s.nextHeartbeat = nil, s.monotonicNow()
	s.cursor, s.sendAt = r.Applied+1, s.monotonicNow()
}
