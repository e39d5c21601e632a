package journal

import "skerry/internal/codec"

// decoder reads every stored value except rows: CBOR with integer keys, in core deterministic encoding. A field
// never gets another meaning. Texts may hold any bytes.
var decoder = codec.NewDecoder(codec.Limits{Nesting: 16, Elements: 1 << 16, Pairs: 1 << 16, AnyText: true})

func encode(v any) ([]byte, error) { return codec.Marshal(v) }

func decode(b []byte, into any) error { return decoder.Unmarshal(b, into) }
