package syncproto

import (
	"skerry/fleet"
	"skerry/internal/codec"
)

// Bounds of what is decoded, besides the size of a frame.
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

// EncodeMessage returns a frame's body. Errors are of values that no frame may
// carry (CodeFrameTooLarge, CodeInvalid).
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

// DecodeMessage is the inverse of EncodeMessage: body is what followed a frame's
// type and length. The Message is a value, not a pointer. It never panics, keeps
// nothing of body, and allocates no more than a small multiple of its length.
// Errors are *fleet.Error with CodeFrameBad or CodeFrameTooLarge.
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

func decodeAs[M Message](body []byte) (Message, error) {
	var m M
	if err := frameDecoder.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	return m, nil
}

// EncodeJob returns a job as the body that travels in Desired.Bodies and that an
// edge journals: a map by field name, which readers of other releases can read.
func EncodeJob(j *fleet.Job) ([]byte, error) {
	b, err := codec.Marshal(j)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "encode job %s: %v", j.ID, err)
	}
	return b, nil
}

// DecodeJob is the inverse of EncodeJob. Numbers in a task's Config come out as
// int64 or float64, lists as []any, blocks as map[string]any.
func DecodeJob(b []byte) (*fleet.Job, error) {
	j := new(fleet.Job)
	if err := jobDecoder.Unmarshal(b, j); err != nil {
		return nil, fleet.Errorf(fleet.CodeFrameBad, "decode a job: %v", err)
	}
	return j, nil
}

func tooLarge(t FrameType, n uint64) *fleet.Error {
	return fleet.Errorf(fleet.CodeFrameTooLarge, "read %s: a body of %d bytes, at most %d are allowed", t, n, t.maxBody())
}

// maxBody is how long the body of such a frame may be. Each description in a heartbeat is
// committed by the cluster.
func (t FrameType) maxBody() int {
	if t == FrameHeartbeat {
		return MaxHeartbeat
	}
	return MaxFrame
}
