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

// Bounds of one record, in map entries and list elements, and in maps and lists within
// each other: they make decoding take not much more memory than the bytes that it reads.
// What is read may be larger than what is written, so that nothing that a hub has written
// can be unreadable. An entry of 1,000 placements has 20,000 items.
const (
	maxItems     = 1 << 17 // of a command that is written
	maxReadItems = 1 << 19
	maxNesting   = 64
)

// Bounds of a job's specification: it is a part of other records.
const (
	maxSpecItems   = 1 << 16
	maxSpecNesting = 48
)

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
		MaxArrayElements:  maxReadItems,
		MaxMapPairs:       maxReadItems,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("set up the decoder: %v", err)) // constant options
	}
	return m
}

// decode reads one value into v, which must be empty. It takes no more memory
// than a small multiple of maxReadItems structs, whatever b claims.
func decode(b []byte, v any) error {
	if err := checkBounds(b, maxReadItems, maxNesting); err != nil {
		return err
	}
	return decoding.Unmarshal(b, v)
}

// checkBounds walks b without decoding it and refuses more items, or deeper nesting, than
// are allowed. What is malformed is left for the decoder to name.
func checkBounds(b []byte, maxItems uint64, maxNesting int) error {
	items := uint64(0)
	var open []uint64 // how many values the maps and lists around still lack
	for len(b) > 0 {
		major, n, size := readHead(b)
		if size == 0 {
			return nil
		}
		b = b[size:]
		values := uint64(0)
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
			if values = n; major == majorMap {
				values = 2 * n
			}
		}
		if values > 0 {
			if open = append(open, values); len(open) > maxNesting {
				return fmt.Errorf("nested more than %d deep", maxNesting)
			}
			continue
		}
		for len(open) > 0 {
			last := &open[len(open)-1]
			if *last--; *last > 0 {
				break
			}
			open = open[:len(open)-1]
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
