package syncproto

import (
	"skerry/fleet"
	"skerry/internal/codec"
)

// Bounds of a decoded frame, besides its size.
const (
	maxNesting  = 16      // arrays and maps within each other
	maxElements = 1 << 14 // of one array
	maxPairs    = 1 << 12 // of one map
)

// Bounds of a job's body. They are not below what a hub registers (hub/state.CheckSpec).
const (
	maxJobNesting = 64
	maxJobItems   = 1 << 16 // of one array or map
)

// Unknown keys are skipped, so a newer release of the same protocol version may add some.
var (
	frameDecoder = codec.NewDecoder(codec.Limits{Nesting: maxNesting, Elements: maxElements, Pairs: maxPairs})
	jobDecoder   = codec.NewDecoder(codec.Limits{Nesting: maxJobNesting, Elements: maxJobItems, Pairs: maxJobItems})
)

// EncodeMessage returns the body of m's frame, without type and length. It fails with CodeInvalid if m cannot be
// encoded, and with CodeFrameTooLarge if the body is longer than a frame of this type may be.
func EncodeMessage(m Message) ([]byte, error) {
	b, err := codec.Marshal(m)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "encode %s: %v", m.FrameType(), err)
	}
	if limit := m.FrameType().maxBody(); len(b) > limit {
		return nil, fleet.Errorf(fleet.CodeFrameTooLarge, "encode %s: %d bytes, at most %d are allowed", m.FrameType(), len(b), limit)
	}
	return b, nil
}

// DecodeMessage decodes the body of a frame of type t. The Message is a value, not a pointer, and shares no memory
// with body. It allocates at most a small multiple of len(body). Errors have CodeFrameBad or CodeFrameTooLarge.
func DecodeMessage(t FrameType, body []byte) (Message, error) {
	if len(body) > t.maxBody() {
		return nil, tooLarge(t, uint64(len(body)))
	}
	decode, ok := decoders[t]
	if !ok {
		return nil, fleet.Errorf(fleet.CodeFrameBad, "decode a frame: type %d is not known", uint8(t))
	}
	m, err := decode(body)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeFrameBad, "decode %s: %v", t, err)
	}
	if v, ok := m.(interface{ checkBounds() error }); ok {
		if err := v.checkBounds(); err != nil {
			return nil, fleet.Errorf(fleet.CodeFrameBad, "decode %s: %v", t, err)
		}
	}
	return m, nil
}

// decoders has the decoder of each known frame type. None of them checks bounds.
var decoders = map[FrameType]func([]byte) (Message, error){
	FrameHello:        decodeAs[Hello],
	FrameWelcome:      decodeAs[Welcome],
	FrameHeartbeat:    decodeAs[Heartbeat],
	FrameHeartbeatAck: decodeAs[HeartbeatAck],
	FrameUpdates:      decodeAs[Updates],
	FrameApplied:      decodeAs[Applied],
	FrameDesired:      decodeAs[Desired],
	FrameReceived:     decodeAs[Received],
	FrameRefused:      decodeAs[Refused],
	FrameHoldings:     decodeAs[Holdings],
	FrameProbe:        decodeAs[Probe],
	FrameProbeAck:     decodeAs[ProbeAck],
	FrameRequest:      decodeAs[Request],
	FrameReply:        decodeAs[Reply],
	FrameEnroll:       decodeAs[Enroll],
	FrameEnrolled:     decodeAs[Enrolled],
	FrameResync:       decodeAs[Resync],
	FrameExecInput:    decodeAs[ExecInput],
	FrameExecOutput:   decodeAs[ExecOutput],
	FrameLogPiece:     decodeAs[LogPiece],
}

// decodeAs decodes body as a message of type M, without checking its bounds.
func decodeAs[M Message](body []byte) (Message, error) {
	var m M
	if err := frameDecoder.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	return m, nil
}

// EncodeJob encodes a job as CBOR, as Desired.Bodies and the edge's journal have it: a map by field name, so that
// other releases can read it.
func EncodeJob(j *fleet.Job) ([]byte, error) {
	b, err := codec.Marshal(j)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "encode job %s: %v", j.ID, err)
	}
	return b, nil
}

// DecodeJob is the inverse of EncodeJob. Values in a task's Config become int64, float64, []any or map[string]any.
// It fails with CodeFrameBad.
func DecodeJob(b []byte) (*fleet.Job, error) {
	j := new(fleet.Job)
	if err := jobDecoder.Unmarshal(b, j); err != nil {
		return nil, fleet.Errorf(fleet.CodeFrameBad, "decode a job: %v", err)
	}
	return j, nil
}

// tooLarge returns the error for a frame of type t whose body of n bytes is longer than allowed.
func tooLarge(t FrameType, n uint64) *fleet.Error {
	return fleet.Errorf(fleet.CodeFrameTooLarge, "read %s: a body of %d bytes, at most %d are allowed", t, n, t.maxBody())
}

// maxBody returns how many bytes the body of a frame of this type may have. Heartbeats have a lower bound, because
// the cluster commits the node in them.
func (t FrameType) maxBody() int {
	if t == FrameHeartbeat {
		return MaxHeartbeat
	}
	return MaxFrame
}
