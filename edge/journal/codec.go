package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/fxamacker/cbor/v2"
)

// What lies in the journal beside its rows is CBOR with integer keys, in core
// deterministic encoding; a field is never given another meaning. Texts may hold
// any bytes: what was written is read.
//
// A checksum stands behind each: SQLite's own check looks at the structure of its
// pages, and a bit that flips in a value makes another value. The chain of hashes
// does the same for rows. Where nothing stands behind one, it is of a release that
// wrote none.
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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errChecksum = errors.New("its checksum does not fit")

func encode(v any) ([]byte, error) {
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// decode leaves into as it is where the checksum does not fit.
func decode(b []byte, into any) error {
	var item cbor.RawMessage
	sum, err := decMode.UnmarshalFirst(b, &item)
	if err != nil {
		return err
	}
	if len(sum) > 0 && (len(sum) != crc32.Size || binary.BigEndian.Uint32(sum) != crc32.Checksum(item, castagnoli)) {
		return errChecksum
	}
	return decMode.Unmarshal(item, into)
}
