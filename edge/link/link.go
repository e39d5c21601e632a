// Package link connects an edge to its cluster: it runs the edge's half of syncproto (syncproto.EdgeSession) over
// QUIC. edge.Open makes one Link and runs it beside everything else; nothing waits for it.
//
// It dials the known hubs, one a little after the other, until one answers. A hub may answer later if the last answers
// came late, because the path is slow, or a hub or this machine is busy. Then the link sends Hello and heartbeats, and
// after a hub has committed the session it replays the journal from the first row that the cluster has not applied.
// Then it sends rows as they are appended. It gives deliveries to its Edge and serves the streams that the hub opens
// (logs). If answers stop, it dials beside the session, so that it uses a healed link at once. If the journal has lost
// rows, a first session learns where the cluster stands, and the next one continues from there.
//
// Run's goroutine owns all state. A session has a reader and a writer for each stream, and one goroutine that
// accepts the hub's streams. A search has a dialer with one goroutine for each hub. Each request of a hub has a
// goroutine that is cancelled with its session; Run waits for it only at the end, so that a hanging disk does not
// delay the next session. All goroutines have ended when Run returns.
//
// The link stores only journal.Link, and a row for each loss and return of the link. It decides nothing about
// allocations.
package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// DefaultBackoffCap bounds the pause between two rounds of dialing.
const DefaultBackoffCap = 60 * time.Second

// Journal is the part of *journal.Journal that a Link uses. It is an interface because tests replace the disk.
// Methods without a context read or change memory only.
type Journal interface {
	Head() journal.Head
	Rows(ctx context.Context, from fleet.Seq, maxRows, maxBytes int) (first fleet.Seq, prev []byte, rows [][]byte, err error)
	Appended() <-chan struct{}
	Acknowledge(seq fleet.Seq)
	RecordOlderCopy(ctx context.Context, newest fleet.Seq) error
	Rebase(ctx context.Context, applied fleet.Seq, chain []byte, restate journal.RowsOfStates) error

	Link() journal.Link
	PutLink(ctx context.Context, l journal.Link, more journal.RowsOfStates, ts ...fleet.Transition) error
	NoteHeartbeat(roundTrip time.Duration, hubTime int64)
	SaveHeartbeat(ctx context.Context) error
	Away() time.Duration
}

// Edge is the rest of the edge, as a Link calls it. Its methods may be called from any goroutine.
type Edge interface {
	// Describe returns the fleet.Node of this machine and its hash. It must not block.
	Describe() (hash []byte, node fleet.Node)
	// Desired returns the index of the newest journaled delivery.
	Desired() fleet.Index
	// Deliver journals a hub's delivery and returns what to answer. The edge acts on it later. For a full
	// delivery, holdings lists the allocations of this edge that it does not name.
	Deliver(ctx context.Context, d syncproto.Desired) (r syncproto.Received, holdings []fleet.AllocID, err error)
	// Restate appends rows that repeat the state of every allocation, because the cluster went back to a state
	// before rows that are no longer held.
	Restate(ctx context.Context) error
	// Answer executes a request of a hub and returns the bytes that follow the reply: output, a file, or
	// nothing. A reader that follows a growing output ends with ctx. An unknown kind of request is a
	// fleet.CodeUnsupported.
	Answer(ctx context.Context, req syncproto.Request) (io.ReadCloser, error)
	// Exec runs a command for a hub, or takes data that it brings: talk is the input and output. It writes the result itself. ctx ends with
	// the stream. When Exec returns, it no longer reads from talk.
	Exec(ctx context.Context, req syncproto.Request, talk ExecStream)
}

// ExecStream is a stream on which a hub continues to write after its Request.
type ExecStream interface {
	io.ReadWriter
	SetReadDeadline(t time.Time) error
}

// Config of a Link. Fields with a default may be left zero.
type Config struct {
	Node     fleet.NodeID
	Boot     fleet.BootID
	Instance fleet.InstanceID
	Agent    string   // version of the agent
	Hubs     []string // HOST:PORT; the addresses that a hub names are added

	Journal Journal
	Edge    Edge

	// Socket opens the socket of a dialing round; its connection keeps it. nil: a UDP socket on any port.
	Socket func(ctx context.Context) (net.PacketConn, error)
	// TLS is called in every round, so that a renewed certificate is used.
	TLS func() (*tls.Config, error)
	// Resolve resolves HOST:PORT at every attempt. nil: with the system's resolver.
	Resolve func(ctx context.Context, hub string) ([]net.Addr, error)

	// Silence returns the longest time between an answered heartbeat and the next one, if that is less
	// than the hub's TTL; 0: the TTL. It is called after each answer. nil: always 0.
	Silence func() time.Duration

	// Answered is called after each acknowledged heartbeat, Ended with the reason after each session, and
	// FenceChanged when journal.Link.Fenced has changed. They must not block; nil: no call.
	Answered     func()
	Ended        func(why *fleet.Error)
	FenceChanged func()
	// AcceptCAs stores the CAs (DER) of which the edge is to accept hubs from now on; the first one signs certificates.
	// nil: they are ignored.
	AcceptCAs func(cas [][]byte) error
	// NoteIndex is called with the cluster's index when it has committed a session. What a hub delivered with a newer index is of a
	// state that the cluster has lost. An error ends the session. nil: no call.
	NoteIndex func(ctx context.Context, index fleet.Index) error
	// Received is called with each message of a hub before it is handled, by any goroutine; nil: no call. For tests.
	Received func(m syncproto.Message)

	// AnswerTime is how long hubs took to answer in dials before those of the link, which keeps it up to date. nil: not
	// known yet.
	AnswerTime *AnswerTime

	BackoffCap time.Duration        // 0: DefaultBackoffCap
	Uptime     func() time.Duration // of the machine; nil: since New
	Now        func() time.Time     // wall clock: shown, never decided on; nil: time.Now
	Log        *slog.Logger         // nil: discards
}

// Link connects an edge to its cluster. Its exported methods may be called from any goroutine.
type Link struct {
	cfg               Config
	log               *slog.Logger
	start             time.Time     // of the sessions' monotonic time
	heartbeatRequests chan struct{} // capacity 1; filled by RequestHeartbeat

	// Owned by Run's goroutine.
	mem         journal.Link // saved by saveLinkState
	lastHub     string       // hub of the last committed session
	refusingHub string       // the hub that last turned this edge away; "" after a committed session
	backoff     *reconnectBackoff
	wait        time.Duration // before the next search
	stale       bool          // the last session was refused as stale
	round       int           // dialing rounds since the last committed session
	search      *search       // nil: none

	tracker statusTracker

	// Requests of hubs in all sessions: slots for all of them, and for those that last.
	serving  sync.WaitGroup
	requests chan struct{}
	follows  chan struct{}
}

// New makes a Link with the defaults of cfg filled in. It does no I/O and starts no goroutine.
func New(cfg Config) (*Link, error) {
	switch {
	case cfg.Node == "" || cfg.Boot == "" || cfg.Instance == "":
		return nil, errors.New("make a link: node, boot and instance ids are required")
	case cfg.Journal == nil || cfg.Edge == nil || cfg.TLS == nil:
		return nil, errors.New("make a link: Journal, Edge and TLS are required")
	}
	start := time.Now()
	if cfg.Socket == nil {
		cfg.Socket = udpSocket
	}
	if cfg.Resolve == nil {
		cfg.Resolve = systemResolve
	}
	cfg.BackoffCap = cmp.Or(cfg.BackoffCap, DefaultBackoffCap)
	if cfg.AnswerTime == nil {
		cfg.AnswerTime = &AnswerTime{}
	}
	if cfg.Uptime == nil {
		cfg.Uptime = func() time.Duration { return time.Since(start) }
	}
	if cfg.Silence == nil {
		cfg.Silence = func() time.Duration { return 0 }
	}
	if cfg.Answered == nil {
		cfg.Answered = func() {}
	}
	if cfg.FenceChanged == nil {
		cfg.FenceChanged = func() {}
	}
	if cfg.NoteIndex == nil {
		cfg.NoteIndex = func(context.Context, fleet.Index) error { return nil }
	}
	if cfg.AcceptCAs == nil {
		cfg.AcceptCAs = func([][]byte) error { return nil }
	}
	if cfg.Ended == nil {
		cfg.Ended = func(*fleet.Error) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	l := &Link{
		cfg: cfg, log: cfg.Log, start: start,
		heartbeatRequests: make(chan struct{}, 1),
		backoff:           newReconnectBackoff(cfg.BackoffCap),

		requests: make(chan struct{}, maxRequests), follows: make(chan struct{}, maxFollowed),
	}
	l.tracker.status = Status{Hubs: knownHubs(nil, cfg.Hubs)}
	return l, nil
}

// RequestHeartbeat makes a committed session send a heartbeat now, because the fleet.Node of this machine or
// Silence has changed. It does not wait for that.
func (l *Link) RequestHeartbeat() {
	select {
	case l.heartbeatRequests <- struct{}{}:
	default: // a request is pending already
	}
}

// Run dials hubs and runs one session after another until ctx ends, and then returns nil. It may be called
// once. Errors of the journal are logged or end the session; the next session writes again.
func (l *Link) Run(ctx context.Context) error {
	l.mem = l.cfg.Journal.Link()
	mem := l.mem
	l.tracker.updateStatus(func(s *Status) {
		s.Fenced, s.WentBack, s.Session = mem.Fenced, mem.WentBack, mem.Session
		s.Hubs = knownHubs(mem.Hubs, l.cfg.Hubs)
	})
	defer l.serving.Wait()
	defer l.stopSearch()
	for {
		f, err := l.waitForConnection(ctx)
		if err != nil {
			return nil // ctx has ended
		}
		end := l.runSession(ctx, f)
		if ctx.Err() != nil {
			return nil
		}
		l.handleSessionEnd(ctx, end)
	}
}

// monotonicNow returns the time since New, by which sessions and their timers count.
func (l *Link) monotonicNow() time.Duration { return time.Since(l.start) }

// saveLinkState journals l.mem together with rows. If the cluster has just taken this edge back (mem.Rejoined),
// it also appends a row for each running task with the time that it has been running.
func (l *Link) saveLinkState(ctx context.Context, rows ...fleet.Transition) error {
	before := l.cfg.Journal.Link()
	var reconnected journal.RowsOfStates
	if l.mem.Rejoined && !before.Rejoined {
		reconnected = func(states map[fleet.AllocID]journal.State) []fleet.Transition {
			return journal.Reconnected(states, l.currentMoment())
		}
	}
	if err := l.cfg.Journal.PutLink(ctx, l.mem, reconnected, rows...); err != nil {
		return fmt.Errorf("save the state of the link: %w", err)
	}
	if before.Fenced != l.mem.Fenced {
		l.cfg.FenceChanged()
	}
	return nil
}

// currentMoment returns the machine's boot and clocks as rows have them.
func (l *Link) currentMoment() journal.Moment {
	return journal.Moment{Boot: l.cfg.Boot, Mono: l.cfg.Uptime(), Wall: l.cfg.Now()}
}
