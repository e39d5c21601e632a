package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
)

// Talk is a handler's side of a stream that goes both ways. A write of nothing
// tells the caller that the stream is open.
type Talk interface {
	io.ReadWriter
	SetReadDeadline(t time.Time) error
}

// TalkHandler serves one method whose caller goes on writing, too. ctx ends when
// the caller closes the stream; reading must have ended when it returns. Its
// error reaches the caller as a StreamHandler's does.
type TalkHandler func(ctx context.Context, from string, body []byte, talk Talk) error

// HandleTalk registers a method that goes both ways.
func (p *Peers) HandleTalk(method string, h TalkHandler) { p.talks[method] = h }

// talk is a stream as its handler has it: what it writes goes out in chunks, what
// it reads is as the caller wrote it.
type talk struct {
	chunkWriter
	stream *transport.Stream
}

func (t *talk) Read(b []byte) (int, error)         { return t.stream.Read(b) }
func (t *talk) SetReadDeadline(at time.Time) error { return t.stream.SetReadDeadline(at) }

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
	stop := context.AfterFunc(stream.Writing(), cancel) // the caller closed it
	defer stop()
	err = t.endAnswer(boundErrorSize(fleet.AsError(h(ctx, s.from, body, t))))
	return errors.Join(err, stream.Close())
}

// Talk calls a method that goes both ways. ctx bounds the call up to the handler's
// first write; then Close does. Errors are those of Stream; what is written after
// the handler has returned is lost.
func (p *Peers) Talk(ctx context.Context, addr, method string, body []byte) (io.ReadWriteCloser, error) {
	answer, err := p.openAnswer(ctx, addr, method, body)
	if err != nil {
		return nil, err
	}
	return &talkAnswer{answer}, nil
}

// talkAnswer is a stream that goes both ways as its caller has it.
type talkAnswer struct{ *streamAnswer }

func (t *talkAnswer) Write(b []byte) (int, error) { return t.stream.Tell(b) }
