package journal

// DecodeState is what Open reads states with.
var DecodeState = decodeState

// DecodeHighWater is what Open reads the witness with: generation and newest row.
func DecodeHighWater(b []byte) (generation uint64, seq uint64) {
	w := decodeHighWater(b)
	return w.Generation, uint64(w.Seq)
}
