package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
)

// Talk is a handler's side of a stream in both directions. An empty Write tells the caller that the stream is open.
type Talk interface {
	io.ReadWriter
	SetReadDeadline(t time.Time) error
}

// TalkHandler serves a method whose caller keeps writing. ctx ends when the caller closes the stream. The handler
// must have stopped reading when it returns. Its error reaches the caller, as that of a StreamHandler does.
type TalkHandler func(ctx context.Context, from string, body []byte, talk Talk) error

// HandleTalk registers the handler of a method with a stream in both directions.
func (p *Peers) HandleTalk(method string, h TalkHandler) { p.talks[method] = h }

// talk implements Talk: writes are sent in chunks, reads return the caller's bytes unchanged.
type talk struct {
	chunkWriter
	stream *transport.Stream
}

func (t *talk) Read(b []byte) (int, error)         { return t.stream.Read(b) }
func (t *talk) SetReadDeadline(at time.Time) error { return t.stream.SetReadDeadline(at) }

// handleTalk reads the body of size bytes, runs the handler, and closes the stream with the handler's error. It
// refuses the stream if the caller has too many open ones.
func (s *session) handleTalk(ctx context.Context, stream *transport.Stream, size int, h TalkHandler) error {
	t := &talk{chunkWriter: chunkWriter{w: stream}, stream: stream}
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		return t.endAnswer(s.tooManyStreamsError())
	}
	body, err := readBody(stream, size)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(stream.Writing(), cancel) // the caller closed the stream
	defer stop()
	err = t.endAnswer(boundErrorSize(fleet.AsError(h(ctx, s.from, body, t))))
	return errors.Join(err, stream.Close())
}

// Talk calls a method with a stream in both directions. ctx bounds the call until the handler's first write; after
// that Close ends it. Errors are those of Stream. Writes after the handler has returned are lost.
func (p *Peers) Talk(ctx context.Context, addr, method string, body []byte) (io.ReadWriteCloser, error) {
	answer, err := p.openAnswer(ctx, addr, method, body)
	if err != nil {
		return nil, err
	}
	return &talkAnswer{answer}, nil
}

// talkAnswer is the caller's side of a stream in both directions.
type talkAnswer struct{ *streamAnswer }

func (t *talkAnswer) Write(b []byte) (int, error) { return t.stream.Tell(b) }
