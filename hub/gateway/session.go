package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

const (
	checkInterval = time.Second      // between periodic checks
	writeTimeout  = 10 * time.Second // of a frame on the control or the updates stream
	drainTimeout  = time.Second      // for a Refused to arrive before the connection closes
)

// session serves one connection. Its event loop owns the state machine and the fields below it.
// Readers hand frames to the loop, the updateBatcher hands answers, all others hand calls.
type session struct {
	gw        *Gateway
	conn      *transport.Conn
	node      fleet.NodeID
	log       *slog.Logger
	allowance *allowance // shared by the sessions of the edge
	started   time.Time

	frames        chan inbound
	answers       chan batchAnswer // has space for all unanswered batches, so that the updateBatcher never waits
	calls         chan loopCall
	endRefusals   chan syncproto.Refused // from outside the loop: ends the session; capacity 1
	over          chan struct{}          // closed when the loop has ended
	work          *errgroup.Group
	desiredSender *desiredSender
	epoch         fleet.Epoch   // once committed; the gateway's mutex guards it
	former        formerFinding // used by one background call at a time: admitHello, then commitSession

	// Owned by the loop.
	machine            *syncproto.HubSession
	streams            [3]*transport.Stream // by syncproto.Stream
	hello              syncproto.Hello
	opened             bool // committed
	pool               string
	hubs               []string
	cas                *state.AcceptedCAs // last ones considered for the edge; nil: none yet
	status             fleet.NodeStatus   // last one sent to the edge
	inFlight           []state.NodeRows   // not yet answered, oldest first
	received           received
	readyProgress      readyProgress
	pendingDescription *syncproto.Heartbeat // newest one that waits for the edge's allowance; nil: none
	lastCheck          time.Duration        // when runPeriodicChecks ran last
	budgetHeld         int64                // bytes of the gateway's budget that the next rows hold
	probes             []chan<- struct{}    // closed by an answer
	end                *syncproto.EventEnd
}

// inbound is one event of a reader: a stream that the edge opened, a frame, or the error that ended
// the stream.
type inbound struct {
	on     syncproto.Stream
	stream *transport.Stream
	frame  syncproto.Frame
	err    error
}

// budgetBytes returns how many bytes a frame takes from the gateway's budget. Only frames with rows
// take any.
func (in inbound) budgetBytes() int64 {
	if in.frame.Type != syncproto.FrameUpdates {
		return 0
	}
	return int64(len(in.frame.Body))
}

// loopCall is a function that the event loop runs: it may step the machine, and returns the outputs.
type loopCall func(now time.Duration) []syncproto.Output

// received is the newest desired index that the edge has journaled, and the newest one that was
// submitted to the cluster.
type received struct {
	index, submitted fleet.Index
	since            time.Time // when index came
	inFlight         bool      // alone, without rows
}

func newSession(g *Gateway, conn *transport.Conn, node fleet.NodeID) *session {
	return &session{
		gw:          g,
		conn:        conn,
		node:        node,
		log:         g.cfg.Log.With("node", fleet.Short(node), "remote", conn.RemoteAddr().String()),
		allowance:   g.allowances.forNode(node),
		started:     time.Now(),
		frames:      make(chan inbound),
		answers:     make(chan batchAnswer, syncproto.MaxUpdatesInFlight+1),
		calls:       make(chan loopCall),
		endRefusals: make(chan syncproto.Refused, 1),
		over:        make(chan struct{}),
		machine:     syncproto.NewHubSession(0, node),
	}
}

func (s *session) timeSinceStart() time.Duration { return time.Since(s.started) }

// serveSession runs the session to its end and closes the connection.
func (s *session) serveSession(ctx context.Context) error {
	work, wctx := errgroup.WithContext(ctx)
	wctx, cancel := context.WithCancel(wctx)
	s.work = work
	s.desiredSender = newDesiredSender(s)
	work.Go(func() error { s.acceptStreams(wctx); return nil })
	err := s.runEventLoop(ctx, wctx)
	close(s.over)
	cancel()
	s.drainClose()
	closing := s.conn.CloseWith(fleet.AsError(err))
	// Everything that works for the session ends with its context or connection.
	return errors.Join(err, work.Wait(), ignoreClosed(closing))
}

// runEventLoop steps the machine until it has ended, and returns why. ctx is the hub's,
// wctx that of the session's other goroutines.
func (s *session) runEventLoop(ctx, wctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.end == nil {
		var out []syncproto.Output
		timer.Reset(s.timeToNextCheck())
		var leaseEnd <-chan struct{} // of no session that is not committed: admit looks itself
		if s.opened {
			leaseEnd = s.gw.lease.leaseEndedChan()
		}
		select {
		case <-ctx.Done():
			out = s.machine.Refuse(syncproto.Refused{Code: fleet.CodeUnavailable, Message: "the hub is shutting down"})
		case <-s.conn.Done():
			return s.conn.Err()
		case in := <-s.frames:
			out = s.handleInbound(wctx, in)
		case a := <-s.answers:
			out = s.handleBatchAnswer(wctx, a)
		case c := <-s.calls:
			out = c(s.timeSinceStart())
		case r := <-s.endRefusals:
			s.log.Info("session fenced", "code", r.Code, "error", r.Message)
			s.gw.updateStats(func(st *Stats) { st.Fenced++ })
			out = s.machine.Refuse(r)
		case <-leaseEnd:
			out = s.machine.Refuse(leaseEnded(s.gw.cfg.LeaseFor))
		case <-timer.C:
			out = append(s.machine.Tick(s.timeSinceStart()), s.runPeriodicChecks(wctx)...)
		}
		s.performOutputs(wctx, out)
	}
	if s.end.Err == nil {
		return nil
	}
	return s.end.Err
}

// handleInbound steps the machine on an event of a reader. It starts a reader for a new stream.
func (s *session) handleInbound(ctx context.Context, in inbound) []syncproto.Output {
	switch {
	case in.stream != nil && s.streams[in.on] != nil:
		return s.machine.Bad(fleet.Errorf(fleet.CodeFrameBad, "a second %s stream", in.on))
	case in.stream != nil:
		s.streams[in.on] = in.stream
		if in.on == syncproto.StreamDesired {
			s.desiredSender.stream <- in.stream
		}
		s.work.Go(func() error { s.readFrames(ctx, in.on, in.stream); return nil })
		return nil
	case in.err == nil:
		return s.handleFrame(in)
	}
	var bad *fleet.Error
	if errors.As(in.err, &bad) {
		return s.machine.Bad(bad)
	}
	return s.machine.Bad(fleet.Errorf(fleet.CodeUnavailable, "the edge closed the %s stream", in.on))
}

// handleFrame decodes a frame and steps the machine on it. The frame's bytes of the budget are
// released here unless its rows are submitted: then the answer releases them.
func (s *session) handleFrame(in inbound) []syncproto.Output {
	m, err := in.frame.Decode()
	if err != nil {
		s.gw.budget.Release(in.budgetBytes())
		return s.machine.Bad(fleet.AsError(err))
	}
	out := s.machine.Frame(s.timeSinceStart(), in.on, m)
	if s.budgetHeld = in.budgetBytes(); !accepted(out) {
		s.gw.budget.Release(s.budgetHeld)
	}
	return out
}

// accepted reports whether the machine's outputs have rows to be applied.
func accepted(out []syncproto.Output) bool {
	for _, o := range out {
		if _, ok := o.Event.(syncproto.EventUpdates); ok {
			return true
		}
	}
	return false
}

// acceptStreams accepts the three streams that the edge opens, and hands each one, or the first
// error, to the loop.
func (s *session) acceptStreams(ctx context.Context) {
	for range s.streams {
		stream, err := s.conn.Accept(ctx)
		if err != nil {
			return // with the connection or the session
		}
		in := inbound{stream: stream}
		if err = stream.SetReadDeadline(time.Now().Add(syncproto.HelloTimeout)); err == nil {
			if in.on, err = syncproto.ReadStream(stream); err == nil {
				err = stream.SetReadDeadline(time.Time{})
			}
		}
		if err != nil {
			in = inbound{err: err}
		}
		if !s.handToLoop(ctx, in) || err != nil {
			return
		}
	}
}

// readFrames hands the frames of one stream to the loop until the stream or ctx ends. It waits for
// the edge's allowance and the gateway's budget before it hands on a frame with rows.
func (s *session) readFrames(ctx context.Context, on syncproto.Stream, stream *transport.Stream) {
	r := syncproto.NewReader(stream)
	for {
		f, err := r.Next()
		in := inbound{on: on, frame: f, err: err}
		if w := in.budgetBytes(); w > 0 && (s.allowance.waitForRows(ctx, w) != nil || s.gw.budget.Acquire(ctx, w) != nil) {
			return
		}
		if !s.handToLoop(ctx, in) || err != nil {
			return
		}
	}
}

// handToLoop waits until the loop takes an event. false: ctx ended, and the frame's bytes of the
// budget are released.
func (s *session) handToLoop(ctx context.Context, in inbound) bool {
	select {
	case s.frames <- in:
		return true
	case <-ctx.Done():
		s.gw.budget.Release(in.budgetBytes())
		return false
	}
}

// performOutputs sends the machine's frames and handles its events, in order, with the outputs that these events
// cause. A failed write ends the session.
func (s *session) performOutputs(ctx context.Context, out []syncproto.Output) {
	for i := 0; i < len(out); i++ { // events append to it
		o := out[i]
		if o.Send != nil && o.Stream != syncproto.StreamDesired { // the desiredSender writes those
			if err := s.writeFrame(o.Stream, o.Send); err != nil && s.end == nil {
				s.end = &syncproto.EventEnd{Err: fleet.AsError(err)}
				return
			}
		}
		if o.Event != nil {
			out = append(out, s.handleEvent(ctx, o.Event)...)
		}
	}
}

// handleEvent acts on one event of the machine, and returns the outputs that follow from it.
func (s *session) handleEvent(ctx context.Context, e any) []syncproto.Output {
	switch e := e.(type) {
	case syncproto.EventHello:
		s.hello = e.Hello
		s.runInBackground(ctx, s.admitHello)
	case syncproto.EventHeartbeat:
		return s.handleHeartbeat(ctx, e)
	case syncproto.EventUpdates:
		s.submitUpdates(e)
	case syncproto.EventReceived:
		s.handleReceived(e.Received)
	case syncproto.EventHoldings:
		s.desiredSender.queueQuestion(question{held: e.Holdings.Allocs, more: e.Holdings.More})
	case syncproto.EventProbeAck:
		for _, c := range s.probes {
			close(c)
		}
		s.probes = nil
	case syncproto.EventEnd:
		s.end = &e
	}
	return nil
}

// runInBackground runs f on a goroutine of the session, and then the call that f returns in the loop.
func (s *session) runInBackground(ctx context.Context, f func(ctx context.Context) loopCall) {
	s.work.Go(func() error {
		if c := f(ctx); c != nil {
			s.callInLoop(ctx, c)
		}
		return nil
	})
}

// callInLoop waits until the loop takes a call. false: the session or ctx ended first.
func (s *session) callInLoop(ctx context.Context, c loopCall) bool {
	select {
	case s.calls <- c:
		return true
	case <-s.over:
	case <-ctx.Done():
	}
	return false
}

// writeFrame writes a frame to a stream within writeTimeout.
func (s *session) writeFrame(on syncproto.Stream, m syncproto.Message) error {
	stream := s.streams[on]
	if stream == nil {
		return fleet.Errorf(fleet.CodeFrameBad, "write %s: the edge has not opened the %s stream", m.FrameType(), on)
	}
	if err := stream.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return syncproto.NewWriter(stream).Write(m)
}

// drainClose closes the control stream for writing and waits up to drainTimeout for the edge to close
// the connection, so that a last Refused arrives.
func (s *session) drainClose() {
	control := s.streams[syncproto.StreamControl]
	if control == nil || control.CloseWrite() != nil {
		return
	}
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-s.conn.Done():
	case <-timer.C:
	}
}

// endWithRefusal ends the session from outside its loop, telling the edge why.
func (s *session) endWithRefusal(r syncproto.Refused) {
	select {
	case s.endRefusals <- r:
	default: // it is already being ended
	}
}

// probeEdge sends a probe and reports whether the edge answered before ctx or the session ended.
func (s *session) probeEdge(ctx context.Context, number uint64) bool {
	answered := make(chan struct{})
	asked := s.callInLoop(ctx, func(time.Duration) []syncproto.Output {
		if s.machine.State() != syncproto.SessionOpen {
			return nil
		}
		s.probes = append(s.probes, answered)
		return s.machine.Probe(number)
	})
	if !asked {
		return false
	}
	select {
	case <-answered:
		return true
	case <-s.over:
	case <-ctx.Done():
	}
	return false
}

func (s *session) remoteAddr() string { return s.conn.RemoteAddr().String() }

// ignoreClosed drops the error of closing a connection that is closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
