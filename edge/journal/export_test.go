package journal

// DecodeState decodes a state as Open does.
var DecodeState = decodeState

// DecodeHighWater decodes the high-water mark: generation and newest row.
func DecodeHighWater(b []byte) (generation uint64, seq uint64) {
	w := decodeHighWater(b)
	return w.Generation, uint64(w.Seq)
}

// Steps returns the labels that writes to a sound journal pass.
func Steps() []string {
	return []string{
		StepBegin, StepInsertRow, StepDesired, StepStop, StepHandle, StepLink, StepRemove, StepCompact,
		StepUpdateState, StepWriteCheckpoint, StepCommit, StepAfterCommit, StepCheckpoint,
	}
}
