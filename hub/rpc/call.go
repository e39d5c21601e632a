package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
)

// callError is the error of a call that the handler did not answer.
type callError struct {
	failure *fleet.Error
	cause   error
	notSent bool
}

func (e *callError) Error() string   { return e.failure.Error() }
func (e *callError) Unwrap() []error { return []error{e.failure, e.cause} }

// NotSent reports whether the handler certainly never ran.
func (e *callError) NotSent() bool { return e.notSent }

// Call calls method at addr (a QUIC address) with body. Errors are *fleet.Error:
// the handler's own, or unavailable, timeout or frame_too_large; those have a
// method NotSent() bool, which is true if the handler certainly never ran.
func (p *Peers) Call(ctx context.Context, addr, method string, body []byte) ([]byte, error) {
	stream, stop, err := p.sendPeerRequest(ctx, addr, method, body)
	if err != nil {
		return nil, err
	}
	defer stop()
	a, reply, err := exchange(stream)
	if err != nil {
		stream.Abort()
		return nil, newCallError(ctx, method, addr, toUnexpectedEOF(err), false)
	}
	if err := stream.Close(); err != nil { // of both directions, which have ended
		p.cfg.Log.Debug("stream not closed", "method", method, "error", err)
	}
	if a.Err != nil {
		return nil, a.Err
	}
	return reply, nil
}

// exchange reads the answer to a request. The end of the stream goes with the request, and the handler's with the
// answer: otherwise each side has to tell the other to stop, which takes two more packets than the call itself. If the
// handler answered before it read that end, sending it fails, and only the answer counts.
func exchange(stream *transport.Stream) (a answer, reply []byte, err error) {
	closed := stream.CloseWrite()
	size, err := readHeader(stream, &a)
	if err == nil && a.Err == nil {
		reply, err = readBody(stream, size)
	}
	if err != nil && closed != nil {
		err = errors.Join(toUnexpectedEOF(err), closed)
	}
	return a, reply, err
}

// Stream calls a method that answers with a stream. ctx bounds the call until the answer begins; after that the
// caller must Close the stream. Errors are those of Call; Read ends with io.EOF or the handler's error.
func (p *Peers) Stream(ctx context.Context, addr, method string, body []byte) (io.ReadCloser, error) {
	answer, err := p.openAnswer(ctx, addr, method, body)
	if err != nil {
		return nil, err // a nil *streamAnswer in the interface would not be nil
	}
	return answer, nil
}

// openAnswer calls a method and waits until its answer begins.
func (p *Peers) openAnswer(ctx context.Context, addr, method string, body []byte) (*streamAnswer, error) {
	stream, stop, err := p.sendPeerRequest(ctx, addr, method, body)
	if err != nil {
		return nil, err
	}
	var a answer
	_, err = readHeader(stream, &a)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		stream.Abort()
		return nil, newCallError(ctx, method, addr, toUnexpectedEOF(err), false)
	}
	if a.Err != nil {
		stream.Abort()
		return nil, a.Err
	}
	return &streamAnswer{chunkReader{r: stream}, stream}, nil
}

// sendPeerRequest opens a stream to addr and sends a request. If ctx ends before stop is called, the stream is aborted.
func (p *Peers) sendPeerRequest(ctx context.Context, addr, method string, body []byte) (*transport.Stream, func() bool, error) {
	req := request{Method: method}
	if deadline, ok := ctx.Deadline(); ok {
		req.Timeout = max(time.Until(deadline), 1)
	}
	stream, err := p.cfg.Pool.Open(ctx, addr)
	if err != nil {
		return nil, nil, newCallError(ctx, method, addr, err, true)
	}
	stop := context.AfterFunc(ctx, stream.Abort)
	if err := writeMessage(stream, req, body); err != nil {
		stop()
		stream.Abort()
		// The handler runs only with the whole body, and a part of it was not sent.
		return nil, nil, newCallError(ctx, method, addr, err, true)
	}
	return stream, stop, nil
}

// newCallError returns the error of a failed call, with a code and with NotSent as notSent says.
func newCallError(ctx context.Context, method, addr string, cause error, notSent bool) error {
	code := fleet.CodeUnavailable
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		code, cause = fleet.CodeTimeout, ctx.Err()
	case ctx.Err() != nil:
		cause = ctx.Err()
	case fleet.CodeOf(cause) == fleet.CodeFrameTooLarge:
		code = fleet.CodeFrameTooLarge
	}
	return &callError{
		failure: fleet.Errorf(code, "call %s at %s: %v", method, addr, cause),
		cause:   fmt.Errorf("call %s at %s: %w", method, addr, cause),
		notSent: notSent,
	}
}

// streamAnswer is the reader's side of a streamed answer.
type streamAnswer struct {
	chunkReader
	stream *transport.Stream
}

// Close may be called at any time; it tells the handler.
func (s *streamAnswer) Close() error {
	s.stream.Abort()
	return nil
}
