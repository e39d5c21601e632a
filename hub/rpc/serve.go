package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
)

// Bounds.
const (
	MaxBody            = 64 << 20 // bytes of a request, of an answer: a plan of 50,000 allocations has 25 MB
	DefaultMaxInFlight = 128      // calls that one connection may have in progress
	DefaultMaxStreams  = 64       // and answers that are streams

	// headerTimeout bounds how long a stream may stay silent after it was opened.
	headerTimeout = 10 * time.Second
)

// Config of Peers.
type Config struct {
	Pool *Pool // of ALPN skerry-hub/1; Peers does not close it
	Self fleet.HubID
	// Leadership tells which hub leads. Method.OnLeader needs it.
	Leadership Leadership
	// MaxInFlight is how many calls of one connection run at a time; more wait.
	// MaxStreams bounds the streams; more are refused. 0: the defaults.
	MaxInFlight int
	MaxStreams  int
	Log         *slog.Logger // nil: discard
}

// Leadership is Raft's knowledge of the leader.
type Leadership interface {
	IsLeader() bool // this hub is the leader
	Leader() (id fleet.HubID, addr string, ok bool)
}

// Handler serves one method. Its answer or error (as *fleet.Error) is sent back. ctx ends with the caller's deadline
// or connection; from is the caller's hub name.
type Handler func(ctx context.Context, from string, body []byte) ([]byte, error)

// StreamHandler serves one method that answers with a stream of bytes. ctx also ends when the caller closes the
// stream. The reader gets the handler's error after the bytes that the handler wrote.
type StreamHandler func(ctx context.Context, from string, body []byte, w io.Writer) error

// Peers calls other hubs and serves their calls.
type Peers struct {
	cfg Config
	// Set before the first Serve.
	handlers map[string]Handler
	streams  map[string]StreamHandler
	talks    map[string]TalkHandler
}

// New checks the configuration.
func New(cfg Config) (*Peers, error) {
	if cfg.Pool == nil {
		return nil, errors.New("make peers: a pool is required")
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = DefaultMaxStreams
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Peers{cfg: cfg, handlers: map[string]Handler{}, streams: map[string]StreamHandler{}, talks: map[string]TalkHandler{}}, nil
}

// Handle registers a method before the first Serve.
func (p *Peers) Handle(method string, h Handler) { p.handlers[method] = h }

// HandleStream registers a method that answers with a stream.
func (p *Peers) HandleStream(method string, h StreamHandler) { p.streams[method] = h }

// Serve handles the calls of a connection of ALPN skerry-hub/1 until it ends or ctx ends. It then closes the
// connection and returns when all handlers have.
func (p *Peers) Serve(ctx context.Context, conn *transport.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	_, from := conn.Peer()
	s := &session{
		peers: p, from: from, log: p.cfg.Log.With("peer", from),
		calls: make(chan struct{}, p.cfg.MaxInFlight), open: make(chan struct{}, p.cfg.MaxStreams),
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.CloseWith(nil) })
	defer stop()
	for {
		stream, err := conn.Accept(ctx)
		if err != nil {
			return // the caller has closed the connection, or this hub stops
		}
		wg.Go(func() { s.serveStream(ctx, stream) })
	}
}

// session serves one connection.
type session struct {
	peers *Peers
	from  string
	log   *slog.Logger
	calls chan struct{} // slots of calls in progress
	open  chan struct{} // slots of streams
}

// serveStream handles one call, closes its stream, and logs an error of the stream.
func (s *session) serveStream(ctx context.Context, stream *transport.Stream) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, stream.Abort)
	err := s.answerRequest(ctx, stream)
	if stop() && err == nil {
		err = stream.Close()
	} else {
		stream.Abort()
	}
	if err != nil && ctx.Err() == nil {
		s.log.Debug("stream ended early", "error", err)
	}
}

// answerRequest reads a request, runs its handler and writes the answer. It returns errors of the stream; the
// handler's error goes to the caller.
func (s *session) answerRequest(ctx context.Context, stream *transport.Stream) error {
	if err := stream.SetReadDeadline(time.Now().Add(headerTimeout)); err != nil {
		return err
	}
	var req request
	size, err := readHeader(stream, &req)
	if err != nil {
		return err
	}
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Timeout)
		defer cancel()
	}
	if h, ok := s.peers.streams[req.Method]; ok {
		return s.handleStream(ctx, stream, size, h)
	}
	if h, ok := s.peers.talks[req.Method]; ok {
		return s.handleTalk(ctx, stream, size, h)
	}
	if h, ok := s.peers.handlers[req.Method]; ok {
		return s.handleCall(ctx, stream, size, h)
	}
	return writeMessage(stream, answer{Err: fleet.Errorf(fleet.CodeUnsupported, "this hub has no method %q", req.Method).
		WithHint("the hubs may be of different releases")}, nil)
}

// handleCall runs the handler of a plain method. It waits while MaxInFlight calls of the connection run.
func (s *session) handleCall(ctx context.Context, stream *transport.Stream, size int, h Handler) error {
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	case <-ctx.Done():
		return ctx.Err()
	}
	body, err := readBody(stream, size)
	if err != nil {
		return err
	}
	reply, err := h(ctx, s.from, body)
	if err == nil && len(reply) > MaxBody {
		err = fleet.Errorf(fleet.CodeFrameTooLarge, "an answer of %d bytes, at most %d are allowed", len(reply), MaxBody)
	}
	if err != nil {
		return writeMessage(stream, answer{Err: boundErrorSize(fleet.AsError(err))}, nil)
	}
	return writeMessage(stream, answer{}, reply)
}

// handleStream runs the handler of a method that answers with a stream. It refuses the call while MaxStreams are
// open.
func (s *session) handleStream(ctx context.Context, stream *transport.Stream, size int, h StreamHandler) error {
	w := &chunkWriter{w: stream}
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		return w.endAnswer(s.tooManyStreamsError())
	}
	body, err := readBody(stream, size)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		io.Copy(io.Discard, stream) // callers send nothing more: reading ends when they close
		cancel()
	})
	err = w.endAnswer(boundErrorSize(fleet.AsError(h(ctx, s.from, body, w))))
	err = errors.Join(err, stream.Close()) // delivers the written bytes, and ends the reader above
	wg.Wait()
	return err
}

func (s *session) tooManyStreamsError() *fleet.Error {
	return fleet.Errorf(fleet.CodeUnavailable, "this hub has %d streams open for hub %s already", cap(s.open), s.from).
		WithHint("close some of them, then try again")
}

// boundErrorSize returns e with its texts cut so that they fit into a header; nil stays nil.
func boundErrorSize(e *fleet.Error) *fleet.Error {
	const most = 16 << 10
	if e == nil || len(e.Message) <= most && len(e.Hint) <= most {
		return e
	}
	cut := func(text string) string { return strings.ToValidUTF8(text[:min(len(text), most)], "") } // CBOR requires valid UTF-8
	c := *e
	c.Message, c.Hint = cut(c.Message), cut(c.Hint)
	return &c
}
