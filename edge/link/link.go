// Package link keeps an edge in touch with its cluster: it drives the edge's half
// of syncproto (syncproto.EdgeSession) over QUIC. edge.Open makes the one Link,
// and runs it beside everything else; nothing waits for it.
//
// It dials the hubs it knows, in turn and again for as long as it takes, says
// Hello, beats, and when a hub has committed the session it replays the journal
// from the first row that the cluster has not applied, and then sends what is
// appended. It hands what the hub wants to its Edge, and serves the streams that
// the hub opens (logs). When answers stay away it dials beside the session that
// it has, so that a link which heals is used at once. Where the journal has lost
// rows, a first session learns where the cluster stands, and the next one goes on
// from there.
//
// Run's goroutine owns all state. Beside it run, for each session, a reader and a
// writer per stream, one that takes the hub's streams, and while a connection is
// sought one dialer with a goroutine for each hub. What a hub asks for has a goroutine,
// too, which is told to end with its session, and not waited for until Run ends: a disk
// that hangs keeps no link from coming back. All of them have ended when Run returns.
//
// The link persists only what a Remembered holds, through Memory, and a row for
// each loss and return of the link. It decides nothing about allocations, and
// never deletes anything for what a hub says or leaves out.
package link

import (
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

// Journal is the part of *journal.Journal that a Link uses. It is an interface because tests replace
// the disk. Methods without a context read memory only.
type Journal interface {
	Head() journal.Head
	Rows(ctx context.Context, from fleet.Seq, maxRows, maxBytes int) (first fleet.Seq, prev []byte, rows [][]byte, err error)
	Appended() <-chan struct{}
	Acknowledge(seq fleet.Seq)
	PutBack(ctx context.Context, newest fleet.Seq) error
	Rebase(ctx context.Context, applied fleet.Seq, chain []byte, restate journal.RowsOfStates) error

	Link() journal.Link
	PutLinkAnd(ctx context.Context, l journal.Link, more journal.RowsOfStates, ts ...fleet.Transition) error
	NoteHeartbeat(ctx context.Context, hubTime int64) error
	Away() time.Duration
}

// Edge is who the link works for. Its methods may be called from any goroutine.
type Edge interface {
	// Describe says what this machine is and has, and a hash of that. It must not
	// block.
	Describe() (hash []byte, node fleet.Node)
	// Desired is the newest desired index that is journaled.
	Desired() fleet.Index
	// Deliver journals what the cluster wants and acts on it later. For a full
	// delivery holdings lists what is held here and was not mentioned.
	Deliver(ctx context.Context, d syncproto.Desired) (r syncproto.Received, holdings []fleet.AllocID, err error)
	// Restate journals the state of every allocation anew, because the cluster
	// went back behind rows that are no longer held.
	Restate(ctx context.Context) error
	// Answer does what a hub asks for and opens what follows the reply: a task's
	// output, a file, nothing; following readers end with ctx. Of a kind that it does
	// not know it gives fleet.CodeUnsupported.
	Answer(ctx context.Context, req syncproto.Request) (io.ReadCloser, error)
	// Exec runs a command for a hub, and writes how it ended. ctx ends with the
	// stream. It must have ended reading when it returns.
	Exec(ctx context.Context, req syncproto.Request, talk Talk)
}

// Talk is a stream that a hub goes on writing to behind its Request.
type Talk interface {
	io.ReadWriter
	SetReadDeadline(t time.Time) error
}

// Config of a Link. Fields with a default may be left zero.
type Config struct {
	Node     fleet.NodeID
	Boot     fleet.BootID
	Instance fleet.InstanceID
	Agent    string   // version
	Hubs     []string // HOST:PORT; those that a hub tells come on top

	Journal Journal
	Edge    Edge

	// Socket opens the socket of a round of dialing; the connection that it gives
	// keeps it. nil: a UDP socket on any port.
	Socket func(ctx context.Context) (net.PacketConn, error)
	// TLS is asked at every round, so that a renewed certificate counts.
	TLS func() (*tls.Config, error)
	// Resolve turns HOST:PORT into addresses, at every attempt. nil: the system's.
	Resolve func(ctx context.Context, hub string) ([]net.Addr, error)

	// Silence is the longest that may pass between an answered beat and the next
	// one, where that is less than the TTL that a hub asks for; it is asked after
	// each answer, and 0 is as long as the hub says. nil: always.
	Silence func() time.Duration

	// Answered is called after each answered heartbeat, Ended with the reason after each session,
	// and FenceChanged when journal.Link.Fenced has changed. They must not block; nil: no call.
	Answered     func()
	Ended        func(why *fleet.Error)
	FenceChanged func()

	BackoffCap time.Duration        // 0: DefaultBackoffCap
	Uptime     func() time.Duration // of the machine, nil: since New
	Now        func() time.Time     // wall clock: shown, never decided on; nil: time.Now
	Log        *slog.Logger         // nil: discard
}

// Link keeps an edge in touch.
type Link struct {
	cfg               Config
	log               *slog.Logger
	start             time.Time // of monotonic time, as sessions are given it
	heartbeatRequests chan struct{}

	// Owned by Run's goroutine.
	mem         journal.Link
	lastHub     string // of the last session that a hub committed
	refusingHub string // the hub that turned this edge away last, "" since a session was committed
	backoff     *reconnectBackoff
	wait        time.Duration // before the next search starts
	stale       bool          // the last session ended as a stale one
	round       int           // rounds of dialing since a session was committed
	search      *search       // a dialer at work, or nil

	tracker statusTracker

	// What hubs ask for, of all sessions: those that are served, those of them that last.
	serving  sync.WaitGroup
	requests chan struct{}
	follows  chan struct{}
}

// New makes a Link. It touches neither disk nor network.
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
	if cfg.BackoffCap == 0 {
		cfg.BackoffCap = DefaultBackoffCap
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
	if cfg.Ended == nil {
		cfg.Ended = func(*fleet.Error) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Link{
		cfg: cfg, log: cfg.Log, start: start,
		heartbeatRequests: make(chan struct{}, 1),
		backoff:           newReconnectBackoff(cfg.BackoffCap),

		requests: make(chan struct{}, maxRequests), follows: make(chan struct{}, maxFollowed),
	}
	l.tracker.status = Status{Hubs: knownHubs(nil, cfg.Hubs)}
	return l, nil
}

// RequestHeartbeat makes the next beat due now: the machine's description has changed, or
// Silence has become shorter.
func (l *Link) RequestHeartbeat() {
	select {
	case l.heartbeatRequests <- struct{}{}:
	default: // one is waiting already
	}
}

// Run keeps the link until ctx ends, and then returns nil. An error of the journal is logged, and
// the write is tried again with the next session.
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
			return nil // ctx is done
		}
		end := l.runSession(ctx, f)
		if ctx.Err() != nil {
			return nil
		}
		l.handleSessionEnd(ctx, end)
	}
}

// monotonicNow is monotonic time as sessions are given it.
func (l *Link) monotonicNow() time.Duration { return time.Since(l.start) }

// saveMemory writes l.mem to the journal, together with rows. Where the cluster has this edge back,
// rows follow that tell for how long each task has been running.
func (l *Link) saveMemory(ctx context.Context, rows ...fleet.Transition) error {
	before := l.cfg.Journal.Link()
	var reconnected journal.RowsOfStates
	if l.mem.Rejoined && !before.Rejoined {
		reconnected = func(states map[fleet.AllocID]journal.State) []fleet.Transition {
			return journal.Reconnected(states, l.currentMoment())
		}
	}
	if err := l.cfg.Journal.PutLinkAnd(ctx, l.mem, reconnected, rows...); err != nil {
		return fmt.Errorf("save the state of the link: %w", err)
	}
	if before.Fenced != l.mem.Fenced {
		l.cfg.FenceChanged()
	}
	return nil
}

func (l *Link) currentMoment() journal.Moment {
	return journal.Moment{Boot: l.cfg.Boot, Mono: l.cfg.Uptime(), Wall: l.cfg.Now()}
}
