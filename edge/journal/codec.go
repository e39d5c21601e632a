package journal

import "skerry/internal/codec"

// What lies in the journal beside its rows is CBOR with integer keys, in core
// deterministic encoding; a field is never given another meaning. Texts may hold
// any bytes: what was written is read.
var decoder = codec.NewDecoder(codec.Limits{Nesting: 16, Elements: 1 << 16, Pairs: 1 << 16, AnyText: true})

func encode(v any) ([]byte, error) { return codec.Marshal(v) }

func decode(b []byte, into any) error { return decoder.Unmarshal(b, into) }
