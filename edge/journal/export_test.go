package journal

// DecodeState is what Open reads states with.
var DecodeState = decodeState

// DecodeWitness is what Open reads the witness with: generation and newest row.
func DecodeWitness(b []byte) (generation uint64, seq uint64) {
	w := decodeWitness(b)
	return w.Generation, uint64(w.Seq)
}
