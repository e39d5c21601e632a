package syncproto

import (
	"skerry/fleet"
	"skerry/internal/codec"
)

// maxItems bounds the items of a variable, whose keys and values have at most 64 KiB together.
const maxItems = 1 << 16

var itemsDecoder = codec.NewDecoder(codec.Limits{Nesting: 4, Elements: maxItems, Pairs: maxItems, Items: maxItems})

// EncodeItems encodes the items of a variable.
func EncodeItems(items map[string]string) ([]byte, error) { return codec.Marshal(items) }

// DecodeItems reverses EncodeItems. A failure is a fleet.CodeInvalid.
func DecodeItems(b []byte) (map[string]string, error) {
	var items map[string]string
	if err := itemsDecoder.Unmarshal(b, &items); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode the items of a variable: %v", err)
	}
	return items, nil
}
