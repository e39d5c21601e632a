package link

import (
	"context"
	"errors"
	"io"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// readFrames passes the frames of a stream to the event loop until the stream or ctx ends. The error that ends
// the stream is the last value.
func readFrames(ctx context.Context, name syncproto.Stream, s *transport.Stream, in chan<- inbound, received func(syncproto.Message)) {
	frames := syncproto.NewReader(s)
	for {
		m, err := frames.Read()
		if err == nil && received != nil {
			received(m)
		}
		if errors.Is(err, io.EOF) {
			err = fleet.Errorf(fleet.CodeUnavailable, "the hub closed the %s stream", name)
		}
		select {
		case in <- inbound{name, m, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// writeFrames writes the frames that the event loop queues for a stream until ctx ends. It passes an error to
// the event loop and returns.
func writeFrames(ctx context.Context, name syncproto.Stream, s *transport.Stream, out <-chan syncproto.Message, in chan<- inbound) {
	err := syncproto.WriteStream(s, name)
	frames := syncproto.NewWriter(s)
	for err == nil {
		select {
		case m := <-out:
			err = frames.Write(m)
		case <-ctx.Done():
			return
		}
	}
	select {
	case in <- inbound{name, nil, err}:
	case <-ctx.Done():
	}
}

// Bounds of the streams that a hub opens.
const (
	maxRequests = 32
	// maxFollowed bounds the requests that last until the client ends them, so that others still get through.
	maxFollowed    = 16
	requestTimeout = 10 * time.Second // until the Request has arrived
)

// acceptRequests accepts the streams that the hub opens until the connection ends, and serves each in a
// goroutine of its own. It aborts streams beyond maxRequests.
func (s *session) acceptRequests(ctx context.Context) {
	for {
		stream, err := s.hubConn.conn.Accept(ctx)
		if err != nil {
			return // the readers of the session's own streams report the error
		}
		select {
		case s.requests <- struct{}{}:
			s.serving.Go(func() {
				defer func() { <-s.requests }()
				s.answerRequest(ctx, stream)
			})
		default:
			stream.Abort()
		}
	}
}

// answerRequest serves the request on one stream: it writes a Reply, and then the output until that or the
// stream ends. A request that converses (Exec) gets the stream itself. An error goes into the Reply.
func (s *session) answerRequest(ctx context.Context, stream *transport.Stream) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unwanted := context.AfterFunc(stream.Writing(), cancel)
	defer unwanted()
	stop := context.AfterFunc(ctx, stream.Abort)
	stream.Bulk()
	frames := syncproto.NewReader(stream)
	req, err := s.readRequest(stream, frames)
	if err == nil && req.Lasts() {
		select {
		case s.follows <- struct{}{}:
			defer func() { <-s.follows }()
		default:
			err = fleet.Errorf(fleet.CodeUnavailable, "this edge already serves %d commands and followers", maxFollowed).
				WithHint("end one of them and try again")
		}
	}
	var output io.ReadCloser
	reply := syncproto.NewWriter(stream)
	switch {
	case err != nil:
	case req.Converses():
		if err := reply.Write(syncproto.Reply{}); err == nil {
			s.cfg.Edge.Exec(ctx, req, execStream{frames.Rest(), stream})
		}
		if stop() {
			_ = stream.Close() // delivers what was written
		}
		return
	default:
		output, err = s.cfg.Edge.Answer(ctx, req)
	}
	if err == nil {
		defer func() { _ = output.Close() }() // only read from
		if err = reply.Write(syncproto.Reply{}); err == nil {
			_, err = io.Copy(stream, output)
		}
		if err != nil {
			s.log.Debug("request not completed", "error", err)
			stream.Abort()
			return
		}
	} else if err := reply.Write(syncproto.Reply{Error: fleet.AsError(err)}); err != nil {
		s.log.Debug("request not answered", "error", err)
	}
	if stop() {
		_ = stream.Close() // delivers what was written; nobody is left to report an error to
	}
}

// readRequest reads the Request at the beginning of a stream. It waits for at most requestTimeout.
func (s *session) readRequest(stream *transport.Stream, frames *syncproto.Reader) (syncproto.Request, error) {
	if err := stream.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return syncproto.Request{}, err
	}
	m, err := frames.Read()
	if err != nil {
		return syncproto.Request{}, err
	}
	if s.cfg.Received != nil {
		s.cfg.Received(m)
	}
	req, ok := m.(syncproto.Request)
	if !ok {
		return syncproto.Request{}, fleet.Errorf(fleet.CodeFrameBad, "a stream begins with %s and not with a request", m.FrameType())
	}
	return req, stream.SetReadDeadline(time.Time{})
}

// execStream is the rest of a request's stream: the input and output of a command.
type execStream struct {
	rest   io.Reader
	stream *transport.Stream
}

func (t execStream) Read(b []byte) (int, error)         { return t.rest.Read(b) }
func (t execStream) Write(b []byte) (int, error)        { return t.stream.Write(b) }
func (t execStream) SetReadDeadline(at time.Time) error { return t.stream.SetReadDeadline(at) }
