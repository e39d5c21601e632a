package syncproto

import (
	"encoding/hex"
	"errors"
	"maps"
	"slices"

	"skerry/fleet"
	"skerry/internal/codec"
)

// words are texts that occur in many rows; a row has a text's index here instead. Indexes are frozen: append only.
var words = []string{
	0:  "",
	1:  string(fleet.TransitionAlloc),
	2:  string(fleet.TransitionTask),
	3:  string(fleet.TransitionHealth),
	4:  string(fleet.TransitionCheck),
	5:  string(fleet.TransitionOperator),
	6:  string(fleet.TransitionDisconnect),
	7:  string(fleet.TransitionReconnect),
	8:  string(fleet.TransitionAgent),
	9:  string(fleet.TransitionGap),
	10: fleet.ClientPending,
	11: fleet.ClientRunning,
	12: fleet.ClientComplete,
	13: fleet.ClientFailed,
	14: fleet.ClientLost,
	15: fleet.ClientUnknown,
	16: fleet.TaskDead,
	17: fleet.TaskReceived,
	18: fleet.TaskSetup,
	19: fleet.TaskStarted,
	20: fleet.TaskDriverFailure,
	21: fleet.TaskTerminated,
	22: fleet.TaskRestarting,
	23: fleet.TaskNotRestarting,
	24: fleet.TaskRestartSignal,
	25: fleet.TaskKilling,
	26: fleet.TaskKilled,
	27: fleet.TaskRestored,
	28: fleet.TaskLostAtReboot,
	29: fleet.TaskReconnected,
	30: string(fleet.TransitionVolume),
	31: string(fleet.TransitionPrefetch),
}

// wordNumbers is the inverse of words.
var wordNumbers = func() map[string]uint64 {
	m := make(map[string]uint64, len(words))
	for i, w := range words {
		m[w] = uint64(i)
	}
	return m
}()

// word is a text that is encoded as its index in words, if it is one of them, and else as text.
type word string

// Every hub decodes all rows, thousands at a time when edges reconnect, and a row is mostly words and identifiers.
// So their usual forms are encoded and decoded here, without the CBOR library.

func (w word) MarshalCBOR() ([]byte, error) {
	n, ok := wordNumbers[string(w)]
	switch {
	case ok && n < inHead:
		return []byte{byte(n)}, nil
	case ok:
		return codec.Marshal(n)
	}
	return codec.Marshal(string(w))
}

func (w *word) UnmarshalCBOR(b []byte) error {
	if len(b) == 1 && b[0] < inHead && int(b[0]) < len(words) {
		*w = word(words[b[0]])
		return nil
	}
	if len(b) > 0 && b[0]>>5 == majorUnsigned {
		var n uint64
		if err := frameDecoder.Unmarshal(b, &n); err != nil {
			return err
		}
		if n >= uint64(len(words)) {
			return errors.New("a word's number is of a newer release")
		}
		*w = word(words[n])
		return nil
	}
	var s string
	if err := frameDecoder.Unmarshal(b, &s); err != nil {
		return err
	}
	*w = word(s)
	return nil
}

// Major types of CBOR (the top three bits of an item's first byte).
const (
	majorUnsigned = 0
	majorBytes    = 2
)

const (
	inHead    = 24                   // CBOR writes smaller numbers in an item's first byte
	bytesOf16 = majorBytes<<5 | 0x10 // CBOR's first byte of a string of 16 bytes
)

// uid is an identifier. A lower-case UUID with dashes is encoded as 16 bytes, any other text as text.
type uid string

func (u uid) MarshalCBOR() ([]byte, error) {
	if b, ok := parseUUID(string(u)); ok {
		return append([]byte{bytesOf16}, b[:]...), nil
	}
	return codec.Marshal(string(u))
}

func (u *uid) UnmarshalCBOR(b []byte) error {
	if len(b) == 17 && b[0] == bytesOf16 {
		*u = uid(formatUUID([16]byte(b[1:])))
		return nil
	}
	if len(b) > 0 && b[0]>>5 == majorBytes {
		var raw []byte
		if err := frameDecoder.Unmarshal(b, &raw); err != nil {
			return err
		}
		if len(raw) != 16 {
			return errors.New("an identifier's bytes are not 16")
		}
		*u = uid(formatUUID([16]byte(raw)))
		return nil
	}
	var s string
	if err := frameDecoder.Unmarshal(b, &s); err != nil {
		return err
	}
	*u = uid(s)
	return nil
}

// uuidDashes are the positions of the dashes in a UUID.
var uuidDashes = [...]int{8, 13, 18, 23}

// parseUUID parses a lower-case UUID with dashes; ok is false for any other text.
func parseUUID(s string) (b [16]byte, ok bool) {
	if len(s) != 36 {
		return b, false
	}
	var digits [32]byte
	n := 0
	for i := range len(s) {
		if i == uuidDashes[0] || i == uuidDashes[1] || i == uuidDashes[2] || i == uuidDashes[3] {
			if s[i] != '-' {
				return b, false
			}
			continue
		}
		if s[i] >= 'A' && s[i] <= 'F' {
			return b, false
		}
		digits[n] = s[i]
		n++
	}
	_, err := hex.Decode(b[:], digits[:])
	return b, err == nil
}

// formatUUID is the inverse of parseUUID.
func formatUUID(b [16]byte) string {
	var digits [32]byte
	hex.Encode(digits[:], b[:])
	s := make([]byte, 0, 36)
	s = append(append(s, digits[:8]...), '-')
	s = append(append(s, digits[8:12]...), '-')
	s = append(append(s, digits[12:16]...), '-')
	s = append(append(s, digits[16:20]...), '-')
	return string(append(s, digits[20:]...))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

var (
	_ codec.Marshaler   = word("")
	_ codec.Unmarshaler = (*word)(nil)
	_ codec.Marshaler   = uid("")
	_ codec.Unmarshaler = (*uid)(nil)
)
