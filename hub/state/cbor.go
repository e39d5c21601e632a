package state

import "skerry/internal/codec"

// Entries of the log and records of snapshots are CBOR maps by field names: the names are
// those of the HTTP API, which never change. Zero values are left out, so that a
// field added later changes no byte of what was written before, and no hash. The
// encoding is deterministic: see codec.AppendLean.

// Bounds of one record, in map entries and list elements, and in maps and lists within
// each other: they make decoding take not much more memory than the bytes that it reads.
// The bounds for reading are larger than those for writing, so that a hub can read every
// record that it wrote. An entry of 1,000 placements has 20,000 items.
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

var decoder = codec.NewDecoder(codec.Limits{
	Nesting: maxNesting, Elements: maxReadItems, Pairs: maxReadItems, Items: maxReadItems, RefuseUnknown: true,
})

// encode returns v as deterministic CBOR without zero values.
func encode(v any) []byte { return codec.AppendLean(nil, v) }

// decode reads one value into v, which must be empty. An unknown field is an error. It takes no more
// memory than a small multiple of maxReadItems structs, whatever lengths b claims.
func decode(b []byte, v any) error { return decoder.Unmarshal(b, v) }
