package rpc

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
)

// A message is the lengths of its header and its body (4 bytes each, big
// endian), the header as CBOR, and the body. An answer that is a stream has an
// empty body and is followed by chunks: a length (4 bytes, not 0) and that many
// bytes each. A length of 0 is the end: a message without a body follows, whose
// header says how it ended.
const (
	maxHeader = 64 << 10
	maxChunk  = 32 << 10
)

// request is a request's header.
type request struct {
	Method  string        `cbor:"1,keyasint"`
	Timeout time.Duration `cbor:"2,keyasint,omitempty"` // left to the caller; 0: no end
}

// answer is an answer's header, and that of a stream's end.
type answer struct {
	Err *fleet.Error `cbor:"1,keyasint,omitempty"`
}

var headerDecoder = codec.NewDecoder(codec.Limits{Nesting: 8, Elements: 1024, Pairs: 1024})

// writeMessage writes a header and a body.
func writeMessage(w io.Writer, header any, body []byte) error {
	if len(body) > MaxBody {
		return fleet.Errorf(fleet.CodeFrameTooLarge, "a body of %d bytes, at most %d are allowed", len(body), MaxBody)
	}
	h, err := codec.Marshal(header)
	if err != nil {
		return fmt.Errorf("encode a header: %w", err)
	}
	if len(h) > maxHeader {
		return fleet.Errorf(fleet.CodeFrameTooLarge, "a header of %d bytes, at most %d are allowed", len(h), maxHeader)
	}
	b := make([]byte, 0, 8+len(h)+len(body))
	b = binary.BigEndian.AppendUint32(b, uint32(len(h)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(append(b, h...), body...)
	_, err = w.Write(b)
	return err
}

// readHeader reads a header and the length of the body that follows it.
func readHeader(r io.Reader, header any) (body int, err error) {
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return 0, err
	}
	n, size := binary.BigEndian.Uint32(lengths[:4]), binary.BigEndian.Uint32(lengths[4:])
	if n > maxHeader || size > MaxBody {
		return 0, fleet.Errorf(fleet.CodeFrameTooLarge, "a message has a header of %d bytes and a body of %d, at most %d and %d are allowed", n, size, maxHeader, MaxBody)
	}
	h, err := readBody(r, int(n))
	if err != nil {
		return 0, err
	}
	if err := headerDecoder.Unmarshal(h, header); err != nil {
		return 0, fleet.Errorf(fleet.CodeFrameBad, "decode a header: %v", err)
	}
	return int(size), nil
}

// readBody reads n bytes. Its buffer grows to four times what has arrived, so that a length alone takes little memory.
func readBody(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, min(n, maxHeader))
	for read := 0; ; {
		got, err := io.ReadFull(r, b[read:])
		if err != nil {
			return nil, toUnexpectedEOF(err)
		}
		if read += got; read == n {
			return b, nil
		}
		larger := make([]byte, min(n, 4*read))
		copy(larger, b)
		b = larger
	}
}

// chunkWriter writes the answer of a StreamHandler. The answer's header is sent with the first byte, so that a handler
// that fails earlier can still send its error in it.
type chunkWriter struct {
	w     io.Writer
	begun bool
}

// Write sends b in chunks of maxChunk bytes at most, each behind its length.
func (c *chunkWriter) Write(b []byte) (int, error) {
	if err := c.beginAnswer(nil); err != nil {
		return 0, err
	}
	written := 0
	for len(b) > written {
		part := b[written:min(len(b), written+maxChunk)]
		frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(part)), uint32(len(part)))
		if _, err := c.w.Write(append(frame, part...)); err != nil {
			return written, err
		}
		written += len(part)
	}
	return written, nil
}

// endAnswer ends the answer: with failure as the handler's error, or successfully if it is nil.
func (c *chunkWriter) endAnswer(failure *fleet.Error) error {
	if !c.begun && failure != nil {
		return c.beginAnswer(failure)
	}
	if err := c.beginAnswer(nil); err != nil {
		return err
	}
	if _, err := c.w.Write(make([]byte, 4)); err != nil {
		return err
	}
	return writeMessage(c.w, answer{Err: failure}, nil)
}

// beginAnswer writes the answer's header with failure, unless it was written before.
func (c *chunkWriter) beginAnswer(failure *fleet.Error) error {
	if c.begun {
		return nil
	}
	c.begun = true
	return writeMessage(c.w, answer{Err: failure}, nil)
}

// chunkReader reads the chunks after the answer's header.
type chunkReader struct {
	r    io.Reader
	left uint32
	err  error
}

func (c *chunkReader) Read(b []byte) (int, error) {
	if c.err != nil || len(b) == 0 {
		return 0, c.err
	}
	if c.left == 0 {
		if c.err = c.readChunkHeader(); c.err != nil {
			return 0, c.err
		}
	}
	n, err := c.r.Read(b[:min(len(b), int(c.left))])
	c.left -= uint32(n)
	if err != nil {
		c.err = toUnexpectedEOF(err)
	}
	return n, c.err
}

func (c *chunkReader) readChunkHeader() error {
	var length [4]byte
	if _, err := io.ReadFull(c.r, length[:]); err != nil {
		return toUnexpectedEOF(err)
	}
	c.left = binary.BigEndian.Uint32(length[:])
	if c.left > maxChunk {
		return fleet.Errorf(fleet.CodeFrameTooLarge, "a chunk of %d bytes, at most %d are allowed", c.left, maxChunk)
	}
	if c.left > 0 {
		return nil
	}
	var end answer
	switch _, err := readHeader(c.r, &end); {
	case err != nil:
		return toUnexpectedEOF(err)
	case end.Err != nil:
		return end.Err
	}
	return io.EOF
}

// toUnexpectedEOF returns io.ErrUnexpectedEOF for io.EOF, and other errors unchanged.
func toUnexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
