// Package codec is the one place that configures CBOR. Callers choose an encoding, and
// give their decoder its bounds; nothing else of the library is seen outside.
//
// It has no goroutines and keeps nothing but what it learned about types.
package codec

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

var (
	deterministic = mustEncoding(func(*cbor.EncOptions) {})
	unsorted      = mustEncoding(func(o *cbor.EncOptions) {
		o.Sort, o.ShortestFloat, o.Time = cbor.SortNone, cbor.ShortestFloatNone, cbor.TimeRFC3339Nano
	})
)

func mustEncoding(change func(*cbor.EncOptions)) cbor.EncMode {
	options := cbor.CoreDetEncOptions()
	change(&options)
	mode, err := options.EncMode()
	if err != nil {
		panic(fmt.Sprintf("set up CBOR: %v", err)) // constant options
	}
	return mode
}

// Marshal encodes v in the core deterministic encoding (RFC 8949, 4.2.1): equal values
// are equal bytes.
func Marshal(v any) ([]byte, error) { return deterministic.Marshal(v) }

// MarshalUnsorted encodes v for a reader that compares no bytes: keys are in no order,
// times are RFC 3339 text.
func MarshalUnsorted(v any) ([]byte, error) { return unsorted.Marshal(v) }

// Marshaler is a type that encodes itself as one CBOR item.
type Marshaler = cbor.Marshaler

// Unmarshaler is a type that decodes itself from one CBOR item.
type Unmarshaler = cbor.Unmarshaler

// Limits bound what a decoder takes. 0 is the library's own bound.
type Limits struct {
	Nesting  int // lists and maps within each other; 0: 32
	Elements int // of one list; 0: 131,072
	Pairs    int // of one map; 0: 131,072
	Items    int // of all lists and maps together; 0: no bound

	RefuseUnknown bool // a struct has no field of a key's name: see IsUnknownField
	AnyText       bool // text need not be UTF-8
}

// Decoder decodes one CBOR item within its limits. It takes nothing that could be read in
// two ways: no duplicate keys, no indefinite lengths, no tags.
type Decoder struct {
	mode   cbor.DecMode
	limits Limits
}

// NewDecoder makes a decoder; it panics where the library does not know such limits.
func NewDecoder(l Limits) Decoder {
	options := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		IntDec:            cbor.IntDecConvertSignedOrFail,
		DefaultMapType:    reflect.TypeFor[map[string]any](),
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		MaxNestedLevels:   l.Nesting,
		MaxArrayElements:  l.Elements,
		MaxMapPairs:       l.Pairs,
	}
	if l.RefuseUnknown {
		options.ExtraReturnErrors = cbor.ExtraDecErrorUnknownField
	}
	if l.AnyText {
		options.UTF8 = cbor.UTF8DecodeInvalid
	}
	mode, err := options.DecMode()
	if err != nil {
		panic(fmt.Sprintf("set up CBOR: %v", err)) // limits are constants
	}
	return Decoder{mode, l}
}

// Unmarshal decodes b, which is one item, into v.
func (d Decoder) Unmarshal(b []byte, v any) error {
	if d.limits.Items > 0 {
		if err := CheckBounds(b, d.limits.Items, d.limits.Nesting); err != nil {
			return err
		}
	}
	return d.mode.Unmarshal(b, v)
}

// IsUnknownField reports whether a decoder with RefuseUnknown met an unknown field.
func IsUnknownField(err error) bool {
	var unknown *cbor.UnknownFieldError
	return errors.As(err, &unknown)
}
