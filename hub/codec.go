package hub

import (
	"fmt"

	"skerry/fleet"
	"skerry/internal/codec"
)

// decoder reads what hubs say to each other: CBOR by field name, so that hubs of two
// releases understand each other during an upgrade: a field that one does not know is
// skipped. A job's specification, which nests 48 deep, is within a plan.
var decoder = codec.NewDecoder(codec.Limits{Nesting: 96, Elements: 1 << 20, Pairs: 1 << 20})

// encode leaves zero values out of a plan: it may have tens of thousands of allocations.
func encode(v any) ([]byte, error) {
	if plan, ok := v.(fleet.Plan); ok {
		return codec.AppendLean(nil, plan), nil
	}
	b, err := codec.MarshalUnsorted(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

func decode[T any](b []byte) (T, error) {
	var v T
	if err := decoder.Unmarshal(b, &v); err != nil {
		return v, fleet.Errorf(fleet.CodeInvalid, "decode %T from another hub: %v", v, err)
	}
	return v, nil
}
