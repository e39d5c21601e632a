package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// replyTimeout is how long an edge may take to answer, on the slowest link.
const replyTimeout = 30 * time.Second

// silentAfter is how long an edge may leave a probe unanswered, on a link that is not slow,
// before a request ends: its link is gone then, though no deadline has passed yet.
const silentAfter = 1500 * time.Millisecond

// errSilent is the cause of a request that was given up.
var errSilent = errors.New("the node does not answer")

// requestFromEdge sends a request to the edge and returns the stream of its answer. It probes the edge
// meanwhile, so that a request over a dead link fails sooner than one over a slow link.
func (s *session) requestFromEdge(ctx context.Context, req syncproto.Request, number uint64) (io.ReadWriteCloser, error) {
	patience := max(silentAfter, 4*s.conn.Stats().RTT)
	asking, giveUp := context.WithCancelCause(ctx)
	probing, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var probe errgroup.Group
	probe.Go(func() error {
		if !s.probeEdge(probing, number) && errors.Is(probing.Err(), context.DeadlineExceeded) {
			giveUp(errSilent)
		}
		return nil
	})
	out, err := openRequest(asking, s.conn, req)
	stop()
	_ = probe.Wait() // it returns nil
	switch {
	case !errors.Is(context.Cause(asking), errSilent):
		return out, err
	case err == nil:
		err = out.Close()
	}
	s.log.Debug("request given up", "kind", req.Kind, "error", err)
	return nil, fleet.Errorf(fleet.CodeUnavailable, "ask for %s: node %s has not answered for %s", req.Kind, fleet.Short(s.node), patience).
		WithHint("its link is down, or very slow; ask again when it is back")
}

// deliveryTimeout bounds a request that delivers what allocations wait for.
const deliveryTimeout = 10 * time.Second

// sendDelivery sends a request to the session's edge, and returns what follows the Reply, of which it reads limit bytes and one
// more; with 0 nothing follows.
func (s *session) sendDelivery(ctx context.Context, req syncproto.Request, limit int64) (held []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	out, err := openRequest(ctx, s.conn, req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if limit == 0 {
		return nil, nil
	}
	if held, err = io.ReadAll(io.LimitReader(out, limit+1)); err != nil {
		return nil, fmt.Errorf("ask for %s: %w", req.Kind, err)
	}
	return held, nil
}

// openRequest opens a stream to an edge, sends a request, and returns the stream after the edge's
// Reply. Writes to it reach the edge. The stream is aborted when ctx ends.
func openRequest(ctx context.Context, conn *transport.Conn, req syncproto.Request) (io.ReadWriteCloser, error) {
	stream, err := conn.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", req.Kind, err)
	}
	o := &output{stream: stream, stop: context.AfterFunc(ctx, stream.Abort)}
	if o.Reader, err = sendRequest(stream, req); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// sendRequest writes a request, reads the Reply, and returns a reader of the bytes after it. An error
// in the Reply is returned as it is.
func sendRequest(stream *transport.Stream, req syncproto.Request) (io.Reader, error) {
	if err := stream.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, fmt.Errorf("ask for %s: %w", req.Kind, err)
	}
	if err := syncproto.NewWriter(stream).Write(req); err != nil {
		return nil, err
	}
	r := syncproto.NewReader(stream)
	m, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", req.Kind, err)
	}
	reply, ok := m.(syncproto.Reply)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeFrameBad, "ask for %s: the node answered with %s", req.Kind, m.FrameType())
	}
	if reply.Error != nil {
		return nil, reply.Error
	}
	if err := stream.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("ask for %s: %w", req.Kind, err)
	}
	return r.Rest(), nil
}

// output is an open request's stream: reads are the bytes after the Reply, writes reach the edge.
type output struct {
	io.Reader
	stream *transport.Stream
	stop   func() bool // stops watching the context
}

func (o *output) Write(b []byte) (int, error) { return o.stream.Tell(b) }

func (o *output) Close() error {
	o.stop()
	o.stream.Abort()
	return nil
}
