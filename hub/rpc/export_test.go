package rpc

import (
	"context"
	"io"

	"skerry/fleet"
)

// The decoders of the wire, for the fuzz tests.

func ReadRequest(r io.Reader) (method string, body []byte, err error) {
	var req request
	size, err := readHeader(r, &req)
	if err == nil {
		body, err = readBody(r, size)
	}
	return req.Method, body, err
}

func WriteRequest(w io.Writer, method string, body []byte) error {
	return writeMessage(w, request{Method: method}, body)
}

func NewChunkReader(r io.Reader) io.Reader { return &chunkReader{r: r} }

// WriteChunks writes an answer without its header.
func WriteChunks(w io.Writer, b []byte, failure *fleet.Error) error {
	c := &chunkWriter{w: w, begun: true}
	if _, err := c.Write(b); err != nil {
		return err
	}
	return c.endAnswer(failure)
}

// CallLate is Call, but for the end of the request: that goes out when the handler has
// answered and stopped reading, as it may when it is fast.
func (p *Peers) CallLate(ctx context.Context, addr, method string, body []byte) ([]byte, error) {
	stream, stop, err := p.sendPeerRequest(ctx, addr, method, body)
	if err != nil {
		return nil, err
	}
	defer stop()
	select {
	case <-stream.Writing().Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	_, reply, err := exchange(stream)
	return reply, err
}
