package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"skerry/fleet"
)

const (
	// runKey is where the journal keeps a runRecord: no task has such a name.
	runKey = "/run"
	// maxRunNote bounds how much of an allocation's time a reboot may make forgotten;
	// it is a tenth of its max_run_duration where that is less.
	maxRunNote = 10 * time.Minute
	// maxRunRecord bounds what is decoded as a runRecord, in bytes.
	maxRunRecord = 1 << 10
)

// runRecord is how long an allocation had run by the monotonic time of a boot.
type runRecord struct {
	Version int           `json:"version"`
	BootID  fleet.BootID  `json:"boot_id"`
	Mono    time.Duration `json:"mono"`  // when it was written
	Begun   time.Duration `json:"begun"` // when the first task was started
}

// longestRun bounds what is believed of how long an allocation ran.
const longestRun = 100 * 365 * 24 * time.Hour

func decodeRun(b []byte) (runRecord, error) {
	var r runRecord
	if len(b) > maxRunRecord {
		return r, fmt.Errorf("decode record of a run: %d bytes are too many", len(b))
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("decode record of a run: %w", err)
	}
	switch {
	case r.Version != recordVersion:
		return r, fmt.Errorf("decode record of a run: version %d is not known", r.Version)
	case r.Mono < 0 || r.Begun > r.Mono || r.Mono > longestRun || r.Begun < -longestRun:
		return r, fmt.Errorf("decode record of a run: it began at %s, and that was written at %s after the boot", r.Begun, r.Mono)
	}
	return r, nil
}

// expiry is when an allocation has run for its group's max_run_duration. It counts
// from the first start of any of its tasks, by monotonic time and without the time
// that the machine was off. All of it is owned by Run.
type expiry struct {
	begun *time.Duration // nil: nothing was started yet
	noted time.Duration  // when that was written last
	timer *time.Timer    // nil: nothing is to come
	why   string         // it has come
}

// timerChannel is ready when it is time to look; nil where it never is.
func (e *expiry) timerChannel() <-chan time.Time {
	if e.timer == nil {
		return nil
	}
	return e.timer.C
}

func (e *expiry) stopTimer() {
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// maxRun is the group's max_run_duration by its newest version, or 0.
func (r *Runner) maxRun() time.Duration {
	a := r.currentAlloc()
	if g := a.Group(); g != nil && g.MaxRunDuration != nil {
		return *g.MaxRunDuration
	}
	return 0
}

// resumeRun goes on where an earlier life of the agent was. Where that left no record and
// tasks run, their time begins with their start in this boot, or now.
func (r *Runner) resumeRun(b []byte) {
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
		r.log.Error("time that the allocation ran begins anew", "error", err)
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

// noteFirstStart notes that a task was started at a monotonic time of this boot. On a slow disk a
// start is journaled seconds after it.
func (r *Runner) noteFirstStart(at time.Duration) {
	if e := &r.expiry; e.begun == nil || at < *e.begun {
		e.begun, e.noted = &at, -maxRunNote
	}
}

// enforceMaxRun stops the allocation where its time is over, and says when to look again
// where it is not. Meanwhile it journals, now and then, how long the allocation ran.
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
			return fmt.Errorf("encode how long the allocation ran: %w", err)
		}
		if err := r.putHandle(ctx, runKey, b); err != nil {
			return err
		}
		e.noted = now
	}
	e.timer = time.NewTimer(min(left, note))
	return nil
}
