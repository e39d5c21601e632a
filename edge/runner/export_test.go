package runner

import (
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// Decide applies a restart policy for its table test. The window is passed as start and count.
func Decide(p fleet.RestartPolicy, start time.Duration, count int, startErr error, exit drivers.Exit, always bool, now time.Duration, jitter float64) (what string, delay, newStart time.Duration, newCount int) {
	v, w := decideRestart(p, restartWindow{Start: start, Count: count}, outcome{startErr: startErr, exit: exit}, always, now, jitter)
	names := map[action]string{actionRestart: "restart", actionComplete: "complete", actionFail: "fail"}
	return names[v.action], v.delay, w.Start, w.Count
}

// Rebase moves a window into another boot.
func Rebase(start, then, now time.Duration) time.Duration {
	return restartWindow{Start: start}.rebaseStart(then, now).Start
}

// RoundTripRecord decodes a record and encodes it again.
func RoundTripRecord(b []byte) ([]byte, error) {
	r, err := decodeRecord(b)
	if err != nil {
		return nil, err
	}
	return r.encodeRecord()
}

// DecodeRun returns the running time of an encoded runRecord.
func DecodeRun(b []byte) (ran time.Duration, err error) {
	r, err := decodeRun(b)
	return r.Mono - r.Begun, err
}
