package state

import (
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// What lies in the log and in snapshots is CBOR by field names: the names are
// those of the HTTP API, which never change. Zero values are left out, so that a
// field added later changes no byte of what was written before, and no hash. The
// encoding is deterministic: definite lengths, shortest integers, 64-bit floats,
// keys in the order of their encoded bytes, times as RFC 3339 text in UTC.

// CBOR's major types.
const (
	majorUint  = 0
	majorInt   = 1
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
	majorTag   = 6
	majorOther = 7
)

// maxItems bounds maps and list elements of one record: what makes decoding take
// more memory than the bytes it reads. An entry of 1,000 placements has 20,000.
const maxItems = 1 << 17

const maxNesting = 64

var decoding = mustDecMode()

func mustDecMode() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		IntDec:            cbor.IntDecConvertSignedOrFail,
		DefaultMapType:    reflect.TypeFor[map[string]any](),
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		MaxNestedLevels:   maxNesting,
		MaxArrayElements:  maxItems,
		MaxMapPairs:       maxItems,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("set up the decoder: %v", err)) // constant options
	}
	return m
}

// decode reads one value into v, which must be empty. It takes no more memory
// than a small multiple of maxItems structs, whatever b claims.
func decode(b []byte, v any) error {
	if err := bound(b); err != nil {
		return err
	}
	return decoding.Unmarshal(b, v)
}

// bound walks b without decoding it and refuses more than maxItems. What is
// malformed is left for the decoder to name.
func bound(b []byte) error {
	items := uint64(0)
	for len(b) > 0 {
		major, n, size := readHead(b)
		if size == 0 {
			return nil
		}
		b = b[size:]
		switch major {
		case majorBytes, majorText:
			if n > uint64(len(b)) {
				return nil
			}
			b = b[n:]
		case majorArray, majorMap:
			if items += 1 + n; n > maxItems || items > maxItems {
				return fmt.Errorf("more than %d items", maxItems)
			}
		}
	}
	return nil
}

// readHead reads what b begins with, and how many bytes that takes; 0: it is no head.
func readHead(b []byte) (major byte, n uint64, size int) {
	major, n, size = b[0]>>5, uint64(b[0]&0x1f), 1
	if n < 24 {
		return major, n, size
	}
	if n > 27 {
		return 0, 0, 0 // indefinite or reserved
	}
	size += 1 << (n - 24)
	if len(b) < size {
		return 0, 0, 0
	}
	n = 0
	for _, c := range b[1:size] {
		n = n<<8 | uint64(c)
	}
	return major, n, size
}
