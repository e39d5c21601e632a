package link

import (
	"bytes"
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
	session    uint64 // with stale_session: the counter to exceed
	committed  bool   // a beat was answered
	firstTry   bool   // the one before it did not end in the same way
	again      bool   // the link is fine: another session follows at once
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

// description is what a beat said of the machine.
type description struct {
	beat uint64
	hash []byte
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
	s.end.committed = s.committed
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
			s.finish(ending{err: e.Err, retryAfter: e.RetryAfter, session: e.Session})
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
	s.round, s.lastHub = 0, s.f.hub
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
	s.replay(ctx, max(s.welcome.Applied, ack.Applied))
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
	applied, known := max(s.welcome.Applied, ack.Applied), s.cfg.Journal.Head().Acknowledged
	if s.mem.Cluster != "" && (index < s.seen || applied < known) {
		s.mem.WentBack = fmt.Sprintf("the cluster went back: it is at index %d (term %d) and was at %d (term %d) at least, "+
			"it has this journal up to row %d and had acknowledged row %d; this edge keeps its work",
			index, term, s.seen, s.mem.Term, applied, known)
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
	if len(d.holdings) > 0 {
		s.perform(ctx, s.proto.Hold(syncproto.Holdings{Allocs: d.holdings}))
	}
}

// resync says everything again: the hub asked for it.
func (s *session) resync(r syncproto.Resync) {
	s.log.Warn("the hub asks for a resync", "reason", r.Reason, "applied", r.Applied)
	s.mem.NodeHash, s.nextBeat = nil, s.now()
	s.cursor, s.sendAt = r.Applied+1, s.now()
}
