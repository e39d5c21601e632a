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

// ending is how a session ended.
type ending struct {
	err        *fleet.Error
	retryAfter time.Duration
	session    uint64    // with stale_session: the counter to exceed
	applied    fleet.Seq // with put_back: the newest row that the cluster has
	committed  bool      // a beat was answered
	firstTry   bool      // the one before it did not end in the same way
	again      bool      // the link is fine: another session follows at once
	hub        string    // address
	turned     bool      // the hub refused the session, or ended it
}

// session is one session over one connection. Its loop owns all of it.
type session struct {
	*Link
	f     *found
	proto *syncproto.EdgeSession
	end   *ending

	streams [3]*transport.Stream
	out     [3]chan syncproto.Message
	in      chan inbound // control and updates
	desired chan inbound // taken only while nothing is being delivered
	tasks   sync.WaitGroup

	seen      fleet.Index // newest index known of the cluster, before the session
	welcome   syncproto.Welcome
	committed bool
	nextBeat  time.Duration // 0: none before the Welcome
	beats     uint64
	shown     *description // in a beat that is not yet answered

	delivering bool
	delivered  chan delivery

	cursor  fleet.Seq // next row to send
	base    bool      // the next Updates starts the cluster's record anew
	sendAt  time.Duration
	backlog bool // rows that are due wait for an answer

	doubtAt time.Duration // when to look whether anything was heard; 0: nothing was sent since
	heard   uint64        // packets received when doubtAt was set

	measureAt time.Duration   // when to look what the connection sends; 0: not now
	measured  transport.Stats // when measureAt was set
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

// session runs one session to its end and closes its connection.
func (l *Link) session(ctx context.Context, f *found) ending {
	streaming, cancel := context.WithCancel(ctx)
	s := &session{
		Link: l, f: f, proto: syncproto.NewEdgeSession(),
		in: make(chan inbound, 1), desired: make(chan inbound, 1), delivered: make(chan delivery, 1),
	}
	l.board.use(f.conn)
	l.board.set(func(st *Status) { st.Hub = f.hub })
	if err := s.open(streaming); err != nil {
		s.stop(fleet.AsError(err))
	}
	s.loop(ctx)
	cancel()
	var reason *fleet.Error
	if s.end != nil {
		reason = s.end.err
	} else {
		s.end = &ending{}
	}
	if err := f.conn.CloseWith(reason); err != nil {
		l.log.Debug("connection not closed", "hub", f.hub, "error", err)
	}
	s.tasks.Wait()
	l.board.use(nil)
	if err := f.endpoint.Close(); err != nil {
		l.log.Debug("socket not closed", "hub", f.hub, "error", err)
	}
	s.end.committed, s.end.hub = s.committed, f.hub
	s.end.turned = s.end.err != nil && s.end.err.Code == fleet.CodeUnavailable
	return *s.end
}

// open opens the streams and says Hello. Readers and writers end with ctx.
func (s *session) open(ctx context.Context) error {
	s.mem.Session++
	if err := s.keep(ctx); err != nil {
		return err
	}
	s.board.set(func(st *Status) { st.Session = s.mem.Session })
	for i := range s.streams {
		name := syncproto.Stream(i)
		stream, err := s.f.conn.Open(ctx)
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
	s.tasks.Go(func() { s.serve(ctx) })
	head, desired := s.cfg.Journal.Head(), s.cfg.Edge.Desired()
	s.seen = s.mem.Index
	if s.mem.WentBack == "" { // else what is journaled may be of what is gone
		s.seen = max(s.seen, desired)
	}
	s.perform(ctx, s.proto.Start(s.now(), syncproto.Hello{
		Node: s.cfg.Node, Boot: s.cfg.Boot, Instance: s.cfg.Instance, Agent: s.cfg.Agent,
		Session: s.mem.Session,
		First:   head.First, Last: head.Last, ChainHash: head.ChainHash,
		Desired: desired, Cluster: s.mem.Cluster, Term: s.mem.Term, Index: s.seen, Lost: head.Lost,
	}))
	return nil
}

// loop runs until the session ends or ctx does.
func (s *session) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.end == nil {
		appended := s.cfg.Journal.Appended()
		s.schedule()
		timer.Reset(max(0, s.wake()-s.now()))
		desired := s.desired
		if s.delivering {
			desired = nil
		}
		select {
		case <-ctx.Done():
			return
		case i := <-s.in:
			s.take(ctx, i)
		case i := <-desired:
			s.take(ctx, i)
		case d := <-s.delivered:
			s.receive(ctx, d)
		case <-appended:
		case <-s.nudges:
			if s.committed {
				s.nextBeat = s.now()
			}
		case f := <-s.replacement():
			s.replace(f)
		case <-timer.C:
		}
		s.due(ctx)
	}
}

// take steps the session on a frame, or on the end of a stream.
func (s *session) take(ctx context.Context, i inbound) {
	s.hear() // a stream that ended was ended by the hub: silence is noticed by ticks
	if i.err == nil {
		s.perform(ctx, s.proto.Frame(s.now(), i.stream, i.msg))
		return
	}
	err := fleet.AsError(i.err)
	if code := err.Code; code == fleet.CodeFrameBad || code == fleet.CodeFrameTooLarge {
		s.perform(ctx, s.proto.Bad(err))
		return
	}
	if cause := s.f.conn.Err(); cause != nil {
		err = fleet.AsError(cause)
	}
	s.stop(err)
}

// wake is when the loop has something to do though nothing comes in.
func (s *session) wake() time.Duration {
	at := s.now() + time.Hour
	for _, t := range []time.Duration{s.nextBeat, s.sendAt, s.doubtAt, s.measureAt} {
		if t > 0 {
			at = min(at, t)
		}
	}
	if s.proto.State() != syncproto.SessionOpen || s.proto.Overdue(s.now()) > 0 {
		at = min(at, s.now()+time.Second) // the session's own timeouts
	}
	return at
}

// due does what is due.
func (s *session) due(ctx context.Context) {
	now := s.now()
	if s.nextBeat > 0 && now >= s.nextBeat {
		s.beat(ctx, now)
	}
	if s.sendAt > 0 && now >= s.sendAt {
		s.sendAt = 0
		s.flush(ctx)
	}
	if s.doubtAt > 0 && now >= s.doubtAt {
		s.doubt(ctx, now)
	}
	if s.measureAt > 0 && now >= s.measureAt {
		s.measure()
	}
	s.perform(ctx, s.proto.Tick(now))
}

// perform does what a step of the session asks for, in order.
func (s *session) perform(ctx context.Context, outputs []syncproto.Output) {
	for _, o := range outputs {
		if o.Send != nil {
			s.send(o.Stream, o.Send)
		}
		switch e := o.Event.(type) {
		case syncproto.EventWelcome:
			s.welcomed(ctx, e.Welcome)
		case syncproto.EventAck:
			s.acknowledged(ctx, e)
		case syncproto.EventApplied:
			s.applied(ctx, e.Applied)
		case syncproto.EventDesired:
			s.deliver(ctx, e.Desired)
		case syncproto.EventResync:
			s.resync(e.Resync)
		case syncproto.EventEnd:
			s.finish(ending{err: e.Err, retryAfter: e.RetryAfter, session: e.Session, applied: e.Applied})
		}
	}
}

// send queues a frame. It never blocks: a queue that is full means that nothing
// gets through.
func (s *session) send(on syncproto.Stream, m syncproto.Message) {
	select {
	case s.out[on] <- m:
	default:
		s.stop(fleet.Errorf(fleet.CodeTimeout, "nothing gets through on the %s stream", on))
		return
	}
	if s.doubtAt == 0 {
		stats := s.f.conn.Stats()
		s.doubtAt, s.heard = s.now()+doubtAfter(stats.RTT), stats.PacketsReceived
	}
}

func (s *session) stop(err *fleet.Error) { s.finish(ending{err: err}) }

// finish ends the session; the first reason counts.
func (s *session) finish(e ending) {
	if s.end == nil {
		s.end = &e
	}
}

// deliver hands over what the cluster wants, beside the loop: journaling may take
// a while, and beats go on.
func (s *session) deliver(ctx context.Context, d syncproto.Desired) {
	s.delivering = true
	s.tasks.Go(func() {
		r, holdings, err := s.cfg.Edge.Deliver(ctx, d)
		s.delivered <- delivery{r, holdings, d.Index, err}
	})
}

// receive tells the hub that a delivery is journaled.
func (s *session) receive(ctx context.Context, d delivery) {
	s.delivering = false
	if d.err != nil {
		s.stop(fleet.AsError(fmt.Errorf("take desired state %d: %w", d.index, d.err)))
		return
	}
	s.mem.Index = max(s.mem.Index, d.index)
	s.perform(ctx, s.proto.Received(d.received))
	for list := range slices.Chunk(d.holdings, syncproto.MaxHoldings) {
		d.holdings = d.holdings[len(list):]
		s.perform(ctx, s.proto.Hold(syncproto.Holdings{Allocs: list, More: len(d.holdings) > 0}))
	}
}

// resync says everything again: the hub asked for it.
func (s *session) resync(r syncproto.Resync) {
	s.log.Warn("the hub asks for a resync", "reason", r.Reason, "applied", r.Applied)
	s.mem.NodeHash, s.nextBeat = nil, s.now()
	s.cursor, s.sendAt = r.Applied+1, s.now()
}
