package journal

import "context"

// IsDamageCode reports whether an extended result code of SQLite means damage.
var IsDamageCode = isDamageCode

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

// Execute runs SQL in the open database, as a flipped bit could change it.
func (j *Journal) Execute(ctx context.Context, statement string) error {
	return j.submitOp(ctx, &op{read: func(d *database) error { return d.execStatement(statement) }})
}

// VerifyIntegrity checks the open database as Config.Paranoid does after each commit.
func (j *Journal) VerifyIntegrity(ctx context.Context) error {
	return j.submitOp(ctx, &op{read: func(d *database) error { return d.verifyIntegrity() }})
}
