package journal

import "github.com/fxamacker/cbor/v2"

// What lies in the journal beside its rows is CBOR with integer keys, in core
// deterministic encoding; a field is never given another meaning. Texts may hold
// any bytes: what was written is read.
var (
	encMode = mustMode(cbor.CoreDetEncOptions().EncMode())
	decMode = mustMode(cbor.DecOptions{
		MaxNestedLevels: 16, MaxArrayElements: 1 << 16, MaxMapPairs: 1 << 16, DupMapKey: cbor.DupMapKeyEnforcedAPF,
		UTF8: cbor.UTF8DecodeInvalid,
	}.DecMode())
)

func mustMode[T any](mode T, err error) T {
	if err != nil {
		panic("set up CBOR: " + err.Error()) // the options are constants
	}
	return mode
}

func encode(v any) ([]byte, error) { return encMode.Marshal(v) }

func decode(b []byte, into any) error { return decMode.Unmarshal(b, into) }
