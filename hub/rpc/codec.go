package rpc

import (
	"fmt"

	"skerry/fleet"
	"skerry/internal/codec"
)

// bodies decodes the messages between hubs: CBOR by field name. Unknown fields are skipped, so that hubs of two
// releases understand each other during an upgrade. A job's specification, which nests 48 deep, is within a plan.
var bodies = codec.NewDecoder(codec.Limits{Nesting: 96, Elements: 1 << 20, Pairs: 1 << 20})

// Encode returns the body of a call for v. Of a fleet.Plan, which may have tens of thousands of allocations, it
// omits zero values.
func Encode(v any) ([]byte, error) {
	if plan, ok := v.(fleet.Plan); ok {
		return codec.AppendLean(nil, plan), nil
	}
	b, err := codec.MarshalUnsorted(v)
	if err != nil {
		return nil, fmt.Errorf("encode a message for another hub: %w", err)
	}
	return b, nil
}

// Decode decodes the body of a call. CodeInvalid: it is damaged, too large, or of another type.
func Decode[T any](b []byte) (T, error) {
	var v T
	if err := bodies.Unmarshal(b, &v); err != nil {
		return v, fleet.Errorf(fleet.CodeInvalid, "decode a message from another hub: %v", err)
	}
	return v, nil
}
