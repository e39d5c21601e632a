package link

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// read hands frames of a stream to the loop until it ends.
func read(ctx context.Context, name syncproto.Stream, s *transport.Stream, in chan<- inbound) {
	frames := syncproto.NewReader(s)
	for {
		m, err := frames.Read()
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

// write writes what the loop queues for a stream.
func write(ctx context.Context, name syncproto.Stream, s *transport.Stream, out <-chan syncproto.Message, in chan<- inbound) {
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
	maxRequests    = 16
	requestTimeout = 10 * time.Second // for the Request to come
)

// serve takes streams that the hub opens, until the connection ends.
func (s *session) serve(ctx context.Context) {
	free := make(chan struct{}, maxRequests)
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		stream, err := s.f.conn.Accept(ctx)
		if err != nil {
			return // the readers of the session's own streams say why
		}
		select {
		case free <- struct{}{}:
			serving.Go(func() {
				defer func() { <-free }()
				s.answer(ctx, stream)
			})
		default:
			stream.Abort()
		}
	}
}

// answer serves one request: a Reply, then the output until it ends or the hub
// has had enough.
func (s *session) answer(ctx context.Context, stream *transport.Stream) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unwanted := context.AfterFunc(stream.Writing(), cancel)
	defer unwanted()
	stop := context.AfterFunc(ctx, stream.Abort)
	stream.Bulk()
	output, err := s.request(ctx, stream)
	reply := syncproto.NewWriter(stream)
	if err == nil {
		defer func() { _ = output.Close() }() // only read from
		if err = reply.Write(syncproto.Reply{}); err == nil {
			_, err = io.Copy(stream, output)
		}
		if err != nil {
			s.log.Debug("request not served to its end", "error", err)
			stream.Abort()
			return
		}
	} else if err := reply.Write(syncproto.Reply{Error: fleet.AsError(err)}); err != nil {
		s.log.Debug("request not answered", "error", err)
	}
	if stop() {
		_ = stream.Close() // delivers what was written; there is nobody to tell of an error
	}
}

// request reads a Request and opens what it asks for.
func (s *session) request(ctx context.Context, stream *transport.Stream) (io.ReadCloser, error) {
	if err := stream.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, err
	}
	m, err := syncproto.NewReader(stream).Read()
	if err != nil {
		return nil, err
	}
	req, ok := m.(syncproto.Request)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeFrameBad, "a stream begins with %s and not with a request", m.FrameType())
	}
	return s.cfg.Edge.Answer(ctx, req)
}
