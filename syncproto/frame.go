package syncproto

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"skerry/fleet"
)

// A frame is its type (one byte), its body's length (unsigned varint, at most
// three bytes), and its body.

// readBuffer is the size of a Reader's buffer. A hub has three Readers for every edge.
const readBuffer = 256

// bodyChunk is how much of a body a Reader allocates before it has arrived.
const bodyChunk = 16 << 10

// Reader reads frames from a stream. Only one goroutine may use it.
type Reader struct{ r *bufio.Reader }

// NewReader returns a Reader of r. It may read ahead of the frames it returns; Rest returns what follows them.
func NewReader(r io.Reader) *Reader { return &Reader{bufio.NewReaderSize(r, readBuffer)} }

// Read waits for the next frame and decodes it. io.EOF: the stream ended between two frames. After CodeFrameBad or
// CodeFrameTooLarge the stream must be closed. Memory grows with the bytes that arrived, not with an announced
// length.
func (r *Reader) Read() (Message, error) {
	f, err := r.Next()
	if err != nil {
		return nil, err
	}
	return f.Decode()
}

// Next waits for the next frame, and leaves decoding to the caller. It needs far less stack than Read: a hub has
// three goroutines for every edge that wait for a frame.
func (r *Reader) Next() (Frame, error) {
	b, err := r.r.ReadByte()
	if err != nil {
		return Frame{}, err
	}
	t := FrameType(b)
	if _, ok := decoders[t]; !ok {
		return Frame{}, fleet.Errorf(fleet.CodeFrameBad, "read a frame: type %d is not known", b)
	}
	n, err := r.readLength(t)
	if err != nil {
		return Frame{}, err
	}
	body, err := r.readBody(t, n)
	if err != nil {
		return Frame{}, err
	}
	return Frame{Type: t, Body: body}, nil
}

// Frame is a frame that is not decoded yet.
type Frame struct {
	Type FrameType
	Body []byte
}

// Decode decodes the frame, as DecodeMessage does.
func (f Frame) Decode() (Message, error) { return DecodeMessage(f.Type, f.Body) }

// Rest returns a reader of the bytes that follow the last frame that was read.
func (r *Reader) Rest() io.Reader { return r.r }

// readLength reads the length of a body of a frame of type t: a varint of at most three bytes, in its shortest
// form. It fails if the length is above the type's bound.
func (r *Reader) readLength(t FrameType) (int, error) {
	var n uint64
	for i := range 3 {
		b, err := r.r.ReadByte()
		if err != nil {
			return 0, truncated(t, err)
		}
		n |= uint64(b&0x7f) << (7 * i)
		if b&0x80 != 0 {
			continue
		}
		if b == 0 && i > 0 {
			return 0, fleet.Errorf(fleet.CodeFrameBad, "read %s: its length is not in the shortest form", t)
		}
		if n > uint64(t.maxBody()) {
			return 0, tooLarge(t, n)
		}
		return int(n), nil
	}
	return 0, fleet.Errorf(fleet.CodeFrameTooLarge, "read %s: a length of more than three bytes, at most %d are allowed", t, MaxFrame)
}

// readBody reads n bytes, and allocates memory as they arrive.
func (r *Reader) readBody(t FrameType, n int) ([]byte, error) {
	body := make([]byte, min(n, bodyChunk))
	read := 0
	for {
		k, err := io.ReadFull(r.r, body[read:])
		read += k
		if err != nil {
			return nil, truncated(t, err)
		}
		if read == n {
			return body, nil
		}
		grown := make([]byte, min(n, 2*read))
		copy(grown, body)
		body = grown
	}
}

// truncated turns an end of the stream within a frame of type t into CodeFrameBad, and wraps other errors.
func truncated(t FrameType, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fleet.Errorf(fleet.CodeFrameBad, "read %s: the stream ended within the frame", t)
	}
	return fmt.Errorf("read %s: %w", t, err)
}

// Writer writes frames to a stream, each with one call of Write. Only one goroutine may use it.
type Writer struct{ w io.Writer }

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w} }

// Write encodes and writes a message. If it cannot be encoded, nothing is written.
func (w *Writer) Write(m Message) error {
	f, err := AppendFrame(nil, m)
	if err != nil {
		return err
	}
	if _, err := w.w.Write(f); err != nil {
		return fmt.Errorf("write %s: %w", m.FrameType(), err)
	}
	return nil
}

// AppendFrame appends m's frame (type, length, body) to b. If m cannot be encoded, it returns b unchanged with the
// error.
func AppendFrame(b []byte, m Message) ([]byte, error) {
	body, err := EncodeMessage(m)
	if err != nil {
		return b, err
	}
	b = append(b, byte(m.FrameType()))
	b = binary.AppendUvarint(b, uint64(len(body)))
	return append(b, body...), nil
}

var frameNames = map[FrameType]string{
	FrameHello: "Hello", FrameWelcome: "Welcome", FrameHeartbeat: "Heartbeat", FrameHeartbeatAck: "HeartbeatAck",
	FrameUpdates: "Updates", FrameApplied: "Applied", FrameDesired: "Desired", FrameReceived: "Received",
	FrameRefused: "Refused", FrameHoldings: "Holdings", FrameProbe: "Probe", FrameProbeAck: "ProbeAck",
	FrameRequest: "Request", FrameReply: "Reply", FrameEnroll: "Enroll", FrameEnrolled: "Enrolled", FrameResync: "Resync",
	FrameExecInput: "ExecInput", FrameExecOutput: "ExecOutput", FrameLogPiece: "LogPiece",
}

// String returns the frame's name, or its number where this release does not know it.
func (t FrameType) String() string {
	if s, ok := frameNames[t]; ok {
		return s
	}
	return fmt.Sprintf("frame type %d", uint8(t))
}

// WriteStream writes the first byte of a stream that the edge has opened: the stream's number. Frames follow.
func WriteStream(w io.Writer, s Stream) error {
	if _, err := w.Write([]byte{byte(s)}); err != nil {
		return fmt.Errorf("open the %s stream: %w", s, err)
	}
	return nil
}

// ReadStream reads the number that WriteStream wrote; CodeFrameBad: no such stream. A hub accepts a session's
// streams in any order, each at most once.
func ReadStream(r io.Reader) (Stream, error) {
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, fmt.Errorf("read a stream's name: %w", err)
	}
	if int(b[0]) >= len(streamNames) {
		return 0, fleet.Errorf(fleet.CodeFrameBad, "read a stream's name: %d is not known", b[0])
	}
	return Stream(b[0]), nil
}

var streamNames = [...]string{StreamControl: "control", StreamUpdates: "updates", StreamDesired: "desired"}

// String returns the stream's name, or its number where this release does not know it.
func (s Stream) String() string {
	if int(s) < len(streamNames) {
		return streamNames[s]
	}
	return fmt.Sprintf("stream %d", uint8(s))
}
