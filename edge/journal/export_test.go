package journal

// DecodeState decodes a state as Open does.
var DecodeState = decodeState

// DecodeHighWater decodes the high-water mark: generation and newest row.
func DecodeHighWater(b []byte) (generation uint64, seq uint64) {
	w := decodeHighWater(b)
	return w.Generation, uint64(w.Seq)
}
