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

// sessionEnd says how a session ended. Its zero value stands for the end of the context.
type sessionEnd struct {
	err          *fleet.Error
	retryAfter   time.Duration // the hub asks not to be dialed sooner; 0: it does not
	session      uint64        // with stale_session: the number to exceed
	applied      fleet.Seq     // with put_back: the newest row of the cluster
	committed    bool          // a heartbeat was answered
	firstTry     bool          // the session before did not end the same way
	reconnectNow bool          // the link works: the next session starts at once
	hub          string        // address
	refusedByHub bool          // the hub refused or ended the session
}

// session is one session over one connection. The goroutine of its event loop owns all fields.
type session struct {
	*Link
	hubConn *hubConnection
	proto   *syncproto.EdgeSession
	end     *sessionEnd // nil: the session goes on

	streams [3]*transport.Stream      // by syncproto.Stream
	out     [3]chan syncproto.Message // frames to write, for each stream
	in      chan inbound              // frames of the control and updates streams
	desired chan inbound              // frames of the desired stream, read only while no delivery is being journaled
	tasks   sync.WaitGroup            // readers, writers, and the journaling of a delivery

	clusterIndex  fleet.Index       // newest index known of the cluster, before the session
	welcome       syncproto.Welcome // the hub's answer to Hello
	committed     bool              // a heartbeat was acknowledged
	nextHeartbeat time.Duration     // 0: not before the Welcome
	heartbeats    uint64            // sent in this session
	sentNode      *sentNode         // in a heartbeat that is not answered yet; nil: none

	delivering bool // a delivery is being journaled
	delivered  chan delivery

	cursor    fleet.Seq     // next row to send
	sendsBase bool          // the next Updates replaces the cluster's record of this journal
	sendAt    time.Duration // when to send waiting rows; 0: none wait
	backlog   bool          // rows that are due wait for an answer

	silenceCheckAt time.Duration // when to check if anything was received; 0: nothing was sent
	packetsHeard   uint64        // packets received when silenceCheckAt was set

	roundTripCheckAt time.Duration   // when to check the connection's round trip; 0: not now
	roundTripStats   transport.Stats // when roundTripCheckAt was set
}

// inbound is a frame that a stream received, or the error that ended the stream.
type inbound struct {
	stream syncproto.Stream
	msg    syncproto.Message
	err    error
}

// delivery is the result of Edge.Deliver for the delivery with an index.
type delivery struct {
	received syncproto.Received
	holdings []fleet.AllocID
	index    fleet.Index
	err      error
}

// maxQueuedFrames bounds the frames that wait to be written to a stream. A working session has far fewer.
const maxQueuedFrames = 16

// runSession runs one session over f until it or ctx ends, and closes the connection and its socket. The
// session's goroutines have then ended, except those that serve requests of the hub.
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

// openStreams saves the number of the new session, opens the three streams, starts their readers and writers,
// and sends Hello. Readers and writers end with ctx.
func (s *session) openStreams(ctx context.Context) error {
	s.mem.Session++
	if err := s.saveLinkState(ctx); err != nil {
		return err
	}
	s.tracker.updateStatus(func(st *Status) { st.Session = s.mem.Session })
	for i := range s.streams {
		name := syncproto.Stream(i)
		stream, err := s.hubConn.conn.Open(ctx)
		if err != nil {
			return err
		}
		out := make(chan syncproto.Message, maxQueuedFrames)
		s.streams[i], s.out[i] = stream, out
		in := s.in
		if name == syncproto.StreamDesired {
			in = s.desired
		}
		s.tasks.Go(func() { readFrames(ctx, name, stream, in, s.cfg.Received) })
		s.tasks.Go(func() { writeFrames(ctx, name, stream, out, s.in) })
	}
	s.tasks.Go(func() { s.acceptRequests(ctx) })
	head, desired := s.cfg.Journal.Head(), s.cfg.Edge.Desired()
	s.clusterIndex = s.mem.Index
	if s.mem.WentBack == "" { // otherwise the journaled index may be of the lost state
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

// runEventLoop handles frames, timers and changes of the journal until the session or ctx ends.
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

// handleFrame gives a frame to the protocol and performs its outputs. The end of a stream ends the session.
func (s *session) handleFrame(ctx context.Context, i inbound) {
	s.noteHubHeard() // a stream that ended was ended by the hub; silence is noticed by timers
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

// nextWakeTime returns the time of the next timer, on the clock of monotonicNow, at most an hour ahead.
func (s *session) nextWakeTime() time.Duration {
	at := s.monotonicNow() + time.Hour
	for _, t := range []time.Duration{s.nextHeartbeat, s.sendAt, s.silenceCheckAt, s.roundTripCheckAt} {
		if t > 0 {
			at = min(at, t)
		}
	}
	if s.proto.State() != syncproto.SessionOpen || s.proto.Overdue(s.monotonicNow()) > 0 {
		at = min(at, s.monotonicNow()+time.Second) // timeouts of the session itself
	}
	return at
}

// runDueTimers does what is due now: send a heartbeat or rows, check for silence, check the round trip, and the
// protocol's own timeouts.
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

// performOutputs performs the outputs of a protocol step, in order: it queues frames and handles events.
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

// queueFrame queues a frame for a stream's writer. It never blocks: a full queue means that the hub takes
// nothing, and ends the session.
func (s *session) queueFrame(on syncproto.Stream, m syncproto.Message) {
	select {
	case s.out[on] <- m:
	default:
		s.endWithError(fleet.Errorf(fleet.CodeTimeout, "send on the %s stream: the hub takes no more frames", on))
		return
	}
	if s.silenceCheckAt == 0 {
		stats := s.hubConn.conn.Stats()
		s.silenceCheckAt, s.packetsHeard = s.monotonicNow()+silenceCheckDelay(stats.RTT), stats.PacketsReceived
	}
}

func (s *session) endWithError(err *fleet.Error) { s.endSession(sessionEnd{err: err}) }

// endSession makes the event loop end with e. Only the first call counts.
func (s *session) endSession(e sessionEnd) {
	if s.end == nil {
		s.end = &e
	}
}

// deliverDesired journals a delivery in a goroutine of its own, so that heartbeats go on meanwhile. The event
// loop gets the result on s.delivered.
func (s *session) deliverDesired(ctx context.Context, d syncproto.Desired) {
	s.delivering = true
	s.tasks.Go(func() {
		r, holdings, err := s.cfg.Edge.Deliver(ctx, d)
		s.delivered <- delivery{r, holdings, d.Index, err}
	})
}

// confirmDelivery sends Received, and the holdings if there are any, after a delivery was journaled. If that
// failed, it ends the session.
func (s *session) confirmDelivery(ctx context.Context, d delivery) {
	s.delivering = false
	if d.err != nil {
		s.endWithError(fleet.AsError(fmt.Errorf("journal desired state %d: %w", d.index, d.err)))
		return
	}
	s.mem.Index = max(s.mem.Index, d.index)
	s.performOutputs(ctx, s.proto.Received(d.received))
	for list := range slices.Chunk(d.holdings, syncproto.MaxHoldings) {
		d.holdings = d.holdings[len(list):]
		s.performOutputs(ctx, s.proto.Hold(syncproto.Holdings{Allocs: list, More: len(d.holdings) > 0}))
	}
}

// resendEverything handles a Resync: it makes the next heartbeat, with this machine's fleet.Node, due now, and
// sends the rows after r.Applied again.
func (s *session) resendEverything(r syncproto.Resync) {
	s.log.Warn("the hub asks for a resync", "reason", r.Reason, "applied", r.Applied)
	s.mem.NodeHash, s.nextHeartbeat = nil, s.monotonicNow()
	s.cursor, s.sendAt = r.Applied+1, s.monotonicNow()
}
