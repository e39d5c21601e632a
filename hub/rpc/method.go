package rpc

import (
	"context"
	"io"
	"time"

	"skerry/fleet"
)

// CallTimeout bounds a call to another hub, unless its caller chooses another time.
const CallTimeout = 10 * time.Second

// Method is the name of a call with a request and an answer. A name is never used
// again for something else.
type Method[Req, Resp any] string

// Handle registers the handler of the method, before the first Serve. from is the caller's hub name.
func (m Method[Req, Resp]) Handle(p *Peers, serve func(ctx context.Context, from string, req Req) (Resp, error)) {
	p.Handle(string(m), func(ctx context.Context, from string, body []byte) ([]byte, error) {
		req, err := Decode[Req](body)
		if err != nil {
			return nil, err
		}
		resp, err := serve(ctx, from, req)
		if err != nil {
			return nil, err
		}
		return Encode(resp)
	})
}

// Call calls the method on the hub at addr and returns its answer. Errors are those of Peers.Call.
func (m Method[Req, Resp]) Call(ctx context.Context, p *Peers, addr string, req Req) (resp Resp, err error) {
	body, err := Encode(req)
	if err != nil {
		return resp, err
	}
	b, err := p.Call(ctx, addr, string(m), body)
	if err != nil {
		return resp, err
	}
	return Decode[Resp](b)
}

// OnLeader calls local if this hub leads, and otherwise the method on the leader. It returns NoLeader if no leader is
// known.
func (m Method[Req, Resp]) OnLeader(ctx context.Context, p *Peers, req Req, local func(context.Context, Req) (Resp, error)) (Resp, error) {
	if p.cfg.Leadership.IsLeader() {
		return local(ctx, req)
	}
	id, addr, ok := p.cfg.Leadership.Leader()
	if !ok || id == p.cfg.Self {
		var none Resp
		return none, NoLeader()
	}
	return m.Call(ctx, p, addr, req)
}

// NoLeader returns the CodeUnavailable error of a call to the leader while no leader is known.
func NoLeader() *fleet.Error {
	return fleet.Errorf(fleet.CodeUnavailable, "no hub leads the cluster at the moment").
		WithHint("an election is in progress, or most hubs are unreachable")
}

// IsNoLeader reports whether err is NoLeader, also if another hub returned it.
func IsNoLeader(err error) bool {
	return err != nil && fleet.CodeOf(err) == fleet.CodeUnavailable && fleet.AsError(err).Message == NoLeader().Message
}

// StreamMethod is the name of a call that is answered with a stream of bytes.
type StreamMethod[Req any] string

// Handle registers the handler of the method, before the first Serve.
func (m StreamMethod[Req]) Handle(p *Peers, serve func(ctx context.Context, req Req, w io.Writer) error) {
	p.HandleStream(string(m), func(ctx context.Context, _ string, body []byte, w io.Writer) error {
		req, err := Decode[Req](body)
		if err != nil {
			return err
		}
		return serve(ctx, req, w)
	})
}

// Open calls the method on the hub at addr and returns the answer. The end of ctx closes it.
func (m StreamMethod[Req]) Open(ctx context.Context, p *Peers, addr string, req Req) (io.ReadCloser, error) {
	body, err := Encode(req)
	if err != nil {
		return nil, err
	}
	stream, err := p.Stream(ctx, addr, string(m), body)
	if err != nil {
		return nil, err
	}
	return &contextStream{ReadCloser: stream, stop: context.AfterFunc(ctx, func() { stream.Close() })}, nil
}

// TalkMethod is the name of a call with a stream in both directions.
type TalkMethod[Req any] string

// Handle registers the handler of the method, before the first Serve.
func (m TalkMethod[Req]) Handle(p *Peers, serve func(ctx context.Context, req Req, talk Talk) error) {
	p.HandleTalk(string(m), func(ctx context.Context, _ string, body []byte, talk Talk) error {
		req, err := Decode[Req](body)
		if err != nil {
			return err
		}
		return serve(ctx, req, talk)
	})
}

// Open calls the method on the hub at addr and returns the stream in both directions. The end of ctx closes it.
func (m TalkMethod[Req]) Open(ctx context.Context, p *Peers, addr string, req Req) (io.ReadWriteCloser, error) {
	body, err := Encode(req)
	if err != nil {
		return nil, err
	}
	talk, err := p.Talk(ctx, addr, string(m), body)
	if err != nil {
		return nil, err
	}
	return &contextTalk{contextStream{ReadCloser: talk, stop: context.AfterFunc(ctx, func() { talk.Close() })}, talk}, nil
}

// contextStream is a stream that a context closes, if nobody else does.
type contextStream struct {
	io.ReadCloser
	stop func() bool
}

func (s *contextStream) Close() error {
	s.stop()
	return s.ReadCloser.Close()
}

// contextTalk is a contextStream that is written to as well.
type contextTalk struct {
	contextStream
	io.Writer
}
