package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"skerry/fleet"
)

const (
	// runKey is the journal's key of a runRecord. No task can have this name.
	runKey = "/run"
	// maxRunNote bounds the running time that a reboot may lose, together with a tenth of max_run_duration.
	maxRunNote = 10 * time.Minute
	// maxRunRecord bounds an encoded runRecord, in bytes.
	maxRunRecord = 1 << 10
)

// runRecord stores how long an allocation had run, in monotonic time of a boot.
type runRecord struct {
	Version int           `json:"version"`
	BootID  fleet.BootID  `json:"boot_id"`
	Mono    time.Duration `json:"mono"`  // when it was written
	Begun   time.Duration `json:"begun"` // when the first task started
}

// longestRun is the longest running time that a runRecord may have.
const longestRun = 100 * 365 * 24 * time.Hour

// decodeRun decodes a runRecord. It returns an error for times that cannot be true.
func decodeRun(b []byte) (runRecord, error) {
	var r runRecord
	if len(b) > maxRunRecord {
		return r, fmt.Errorf("decode running time: %d bytes are too many", len(b))
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("decode running time: %w", err)
	}
	switch {
	case r.Version != recordVersion:
		return r, fmt.Errorf("decode running time: version %d is not known", r.Version)
	case r.Mono < 0 || r.Begun > r.Mono || r.Mono > longestRun || r.Begun < -longestRun:
		return r, fmt.Errorf("decode running time: it began at %s and was written at %s after the boot", r.Begun, r.Mono)
	}
	return r, nil
}

// expiry measures for how long an allocation has run, from the first start of a task, for its group's
// max_run_duration. It uses monotonic time, without the time that the machine was off. Runner.Run owns it.
type expiry struct {
	begun *time.Duration // nil: no task has started
	noted time.Duration  // when begun was last journaled
	timer *time.Timer    // nil: no deadline
	why   string         // reason, once the time is over
}

// timerChannel returns the channel that fires when enforceMaxRun is due; nil: never.
func (e *expiry) timerChannel() <-chan time.Time {
	if e.timer == nil {
		return nil
	}
	return e.timer.C
}

// stopTimer removes the timer, if there is one.
func (e *expiry) stopTimer() {
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// maxRun returns the max_run_duration in the newest version of the allocation; 0: it has none.
func (r *Runner) maxRun() time.Duration {
	a := r.currentAlloc()
	if g := a.Group(); g != nil && g.MaxRunDuration != nil {
		return *g.MaxRunDuration
	}
	return 0
}

// restoreRunTime restores expiry.begun after a restart of the agent, from the encoded runRecord b. Without a
// readable record, the time of running tasks begins with their start in this boot, or now.
func (r *Runner) restoreRunTime(b []byte) {
	f := &r.factory
	rec, err := decodeRun(b)
	switch {
	case b != nil && err == nil:
		if rec.BootID != f.BootID {
			rec.Begun = f.Mono() - (rec.Mono - rec.Begun)
		}
		r.expiry.begun = &rec.Begun
		return
	case b != nil:
		r.log.Error("running time of an allocation is lost: counting it again", "error", err)
	}
	for _, t := range r.tasks {
		switch {
		case t.state.State != fleet.TaskRunning:
		case t.rec.BootID == f.BootID:
			r.noteFirstStart(t.rec.Started)
		default:
			r.noteFirstStart(f.Mono())
		}
	}
}

// noteFirstStart remembers the earliest start of a task, at a monotonic time of this boot, as the begin of the
// allocation's running time. On a slow disk, a start is journaled seconds after it.
func (r *Runner) noteFirstStart(at time.Duration) {
	if e := &r.expiry; e.begun == nil || at < *e.begun {
		e.begun, e.noted = &at, -maxRunNote
	}
}

// enforceMaxRun stops the allocation if it has run for its max_run_duration. Otherwise it sets the timer of the
// next check and, when due, journals the running time. An error means that ctx has ended.
func (r *Runner) enforceMaxRun(ctx context.Context) error {
	e, limit := &r.expiry, r.maxRun()
	e.stopTimer()
	if limit == 0 || e.begun == nil || r.isStopped() {
		return nil
	}
	now, note := r.factory.Mono(), min(maxRunNote, limit/10)
	left := *e.begun + limit - now
	if left <= 0 {
		e.why = fmt.Sprintf("Stopped after max_run_duration, %s", limit)
		r.Stop(e.why)
		return nil
	}
	if now-e.noted >= note {
		b, err := json.Marshal(runRecord{Version: recordVersion, BootID: r.factory.BootID, Mono: now, Begun: *e.begun})
		if err != nil {
			return fmt.Errorf("encode the running time of an allocation: %w", err)
		}
		if err := r.putHandle(ctx, runKey, b); err != nil {
			return err
		}
		e.noted = now
	}
	e.timer = time.NewTimer(min(left, note))
	return nil
}
