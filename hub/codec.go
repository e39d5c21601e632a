package hub

import (
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"

	"skerry/fleet"
	"skerry/hub/state"
)

// What hubs say to each other is CBOR by field name, so that hubs of two releases
// understand each other during an upgrade: a field that one does not know is
// skipped.
var (
	encMode = mustMode(cbor.EncOptions{Time: cbor.TimeRFC3339Nano, Sort: cbor.SortNone}.EncMode())
	decMode = mustMode(cbor.DecOptions{
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  96, // a job's specification, which has 48, within a plan
		MaxArrayElements: 1 << 20,
		MaxMapPairs:      1 << 20,
		// A task's Config comes out as it is in the state.
		IntDec:         cbor.IntDecConvertSignedOrFail,
		DefaultMapType: reflect.TypeFor[map[string]any](),
	}.DecMode())
)

func mustMode[M any](m M, err error) M {
	if err != nil {
		panic(fmt.Sprintf("set up CBOR: %v", err)) // the options above are wrong
	}
	return m
}

// encode leaves zero values out of a plan: it may have tens of thousands of allocations.
func encode(v any) ([]byte, error) {
	if plan, ok := v.(fleet.Plan); ok {
		return state.EncodeLean(plan), nil
	}
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

func decode[T any](b []byte) (T, error) {
	var v T
	if err := decMode.Unmarshal(b, &v); err != nil {
		return v, fleet.Errorf(fleet.CodeInvalid, "decode %T from another hub: %v", v, err)
	}
	return v, nil
}
