package rpc

import (
	"fmt"

	"skerry/fleet"
	"skerry/internal/codec"
)

// bodies decodes what hubs say to each other: CBOR by field name, so that hubs of two
// releases understand each other during an upgrade: a field that one does not know is
// skipped. A job's specification, which nests 48 deep, is within a plan.
var bodies = codec.NewDecoder(codec.Limits{Nesting: 96, Elements: 1 << 20, Pairs: 1 << 20})

// Encode encodes the body of a call. It leaves zero values out of a plan, which may have
// tens of thousands of allocations.
func Encode(v any) ([]byte, error) {
	if plan, ok := v.(fleet.Plan); ok {
		return codec.AppendLean(nil, plan), nil
	}
	b, err := codec.MarshalUnsorted(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

// Decode decodes the body of a call.
func Decode[T any](b []byte) (T, error) {
	var v T
	if err := bodies.Unmarshal(b, &v); err != nil {
		return v, fleet.Errorf(fleet.CodeInvalid, "decode %T from another hub: %v", v, err)
	}
	return v, nil
}
