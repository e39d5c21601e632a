package allocs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/internal/codec"
)

// An allocation of a periodic job with run_at_edge stays running from its arrival until it is stopped. Each launch runs
// its tasks once, from the beginning, in its folder. A launch is journaled before a runner is made, under the
// allocation's name, so that a replacement knows which times are settled. When the tasks have ended, the end of the
// launch is journaled in place of the end of the allocation, and the tasks are pending again. Launch times come from the
// edge's own clock, but never from a time before the one that hubs are known to have reached.

const (
	launchPrefix        = "launch/" // begins the journal's keys of launch records. They belong to no allocation.
	launchRecordVersion = 1
	maxLaunchRecord     = 8 << 10
	// launchPollInterval is how often the clock is read while launches are to come: it may be set.
	launchPollInterval = time.Minute
	// lateLaunch is how much later than its time a launch is called late.
	lateLaunch = time.Minute
)

// launchRecord is what the journal holds of the launches of one name.
type launchRecord struct {
	Version int           `cbor:"1,keyasint"`
	Settled []cron.Span   `cbor:"2,keyasint"`
	Alloc   fleet.AllocID `cbor:"3,keyasint,omitempty"` // whose launch is not over; "": none's
	Time    int64         `cbor:"4,keyasint,omitempty"` // of that launch, Unix seconds
}

var launchDecoder = codec.NewDecoder(codec.Limits{Nesting: 4, Elements: 1000, Pairs: 100})

// decodeLaunch decodes a launchRecord.
func decodeLaunch(b []byte) (launchRecord, error) {
	var r launchRecord
	if len(b) > maxLaunchRecord {
		return r, fmt.Errorf("decode the launches of an allocation: %d bytes", len(b))
	}
	if err := launchDecoder.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("decode the launches of an allocation: %w", err)
	}
	if r.Version != launchRecordVersion || !cron.ValidSpans(r.Settled) {
		return launchRecord{}, fmt.Errorf("decode the launches of an allocation: version %d with %d spans", r.Version, len(r.Settled))
	}
	return r, nil
}

// launchKey returns the journal's key of an allocation's launches: its name within its namespace.
func launchKey(a *fleet.Alloc) string { return launchPrefix + a.Namespace + "/" + a.Name }

// launches are the records of all names.
type launches struct {
	writing sync.Mutex // held from reading a record until its successor is journaled
	mu      sync.Mutex
	records map[string]launchRecord // by key; nil: not read yet
}

func (l *launches) recordFor(a *fleet.Alloc) launchRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[launchKey(a)]
}

// runsAtEdge reports whether an allocation is launched here at times.
func runsAtEdge(w *journal.DesiredAlloc) bool { return w.Alloc.Job.RunsAtEdge() }

// readLaunches reads the records of all names, once, and removes those of names that are not here any more.
func (a *Allocs) readLaunches(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc) error {
	l := &a.launches
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.records == nil {
		handles, err := a.cfg.Journal.Handles(ctx, "")
		if err != nil {
			return fmt.Errorf("read which launches are settled: %w", err)
		}
		records := map[string]launchRecord{}
		for key, raw := range handles {
			if !strings.HasPrefix(key, launchPrefix) {
				continue
			}
			if records[key], err = decodeLaunch(raw); err != nil {
				a.log.Error("record of launches not readable: launches begin now", "key", key, "error", err)
			}
		}
		l.mu.Lock()
		l.records = records
		l.mu.Unlock()
	}
	if len(l.records) == 0 {
		return nil
	}
	here := map[string]bool{}
	for _, w := range desired {
		here[launchKey(&w.Alloc)] = true
	}
	var failed []error
	for key := range l.records {
		if here[key] {
			continue
		}
		if err := a.cfg.Journal.PutHandle(ctx, "", key, nil); err != nil {
			failed = append(failed, fmt.Errorf("forget the launches of a name: %w", err))
			continue
		}
		l.mu.Lock()
		delete(l.records, key)
		l.mu.Unlock()
	}
	return errors.Join(failed...)
}

// putLaunch journals a record with rows, and then stores it. writing is locked.
func (a *Allocs) putLaunch(ctx context.Context, of *fleet.Alloc, r launchRecord, ts ...fleet.Transition) error {
	r.Version = launchRecordVersion
	b, err := codec.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the launches of allocation %s: %w", fleet.Short(of.ID), err)
	}
	if err := a.cfg.Journal.PutHandle(ctx, "", launchKey(of), b, ts...); err != nil {
		return fmt.Errorf("record the launches of allocation %s: %w", fleet.Short(of.ID), err)
	}
	a.launches.mu.Lock()
	defer a.launches.mu.Unlock()
	a.launches.records[launchKey(of)] = r
	return nil
}

// launchClock returns the time by which launches are due.
func (a *Allocs) launchClock() time.Time {
	now := a.cfg.Now()
	if floor := time.Unix(0, a.cfg.Journal.TimeFloor()); floor.After(now) {
		return floor
	}
	return now
}

// followLaunches begins the launch of an allocation that is due, or settles it if another one is not over. It returns
// why nothing of the allocation is to run now, and how long until it must be called again. "": its tasks are to run, or
// to end with it.
func (a *Allocs) followLaunches(ctx context.Context, w journal.DesiredAlloc) (why string, again time.Duration, err error) {
	if !runsAtEdge(&w) {
		return "", time.Hour, nil
	}
	of := &w.Alloc
	a.launches.writing.Lock()
	defer a.launches.writing.Unlock()
	r, s := a.launches.recordFor(of), a.cfg.Journal.States()[of.ID]
	switch {
	case s.Terminal():
		return "", time.Hour, nil
	case w.Stop && r.Alloc != of.ID && a.activeAllocOf(of.ID) == nil:
		return whyNot(a.clearLastLaunch(ctx, of.ID), time.Hour)
	case w.Stop:
		return "", time.Hour, nil
	case s.Held != nil && r.Alloc != of.ID:
		return s.Held.String(), time.Hour, nil
	case s.ClientStatus == "":
		return a.beginToWait(ctx, of, r)
	}
	due, next, known, err := cron.Due(*of.Job.Periodic, r.Settled, a.launchClock())
	switch {
	case err != nil:
		return whyNot(fmt.Errorf("find the next launch of allocation %s: %w", fleet.Short(of.ID), err), time.Hour)
	case !known:
		return a.beginToWait(ctx, of, r)
	}
	return a.settleLaunch(ctx, of, r, due, next)
}

// whyNot returns an error as the reason why nothing of an allocation is to run, too.
func whyNot(err error, again time.Duration) (string, time.Duration, error) {
	if err != nil {
		return err.Error(), again, err
	}
	return "", again, nil
}

// settleLaunch begins or settles the launch that is due, if one is. Its results are those of followLaunches.
func (a *Allocs) settleLaunch(ctx context.Context, of *fleet.Alloc, r launchRecord, due, next time.Time) (why string, again time.Duration, err error) {
	again = launchPollInterval
	if !next.IsZero() {
		again = min(again, max(next.Sub(a.launchClock()), time.Millisecond))
	}
	if !of.Job.Periodic.Enabled {
		due, next = time.Time{}, time.Time{}
	}
	if r.Alloc != "" && r.Alloc != of.ID && a.activeAllocOf(r.Alloc) == nil && a.cfg.Journal.States()[r.Alloc].Terminal() {
		r.Alloc = "" // it was stopped during its launch
	}
	if r.Alloc != "" && !due.IsZero() {
		err = a.skipLaunch(ctx, of, r, due)
	}
	switch {
	case r.Alloc == of.ID:
		return "", again, err
	case r.Alloc != "":
		return fmt.Sprintf("waits for the end of allocation %s, whose launch is not over", fleet.Short(r.Alloc)), again, err
	case !due.IsZero() && a.activeAllocOf(of.ID) != nil: // its runner has journaled the end, and returns soon
		return "waits until the launch before it has cleaned up", again, nil
	case !due.IsZero():
		return whyNot(a.beginLaunch(ctx, of, r, due), again)
	case !of.Job.Periodic.Enabled:
		return "its periodic block is not enabled", time.Hour, nil
	case next.IsZero():
		const over = "it has no launch time any more"
		return over, time.Hour, a.recordAllocEnd(ctx, of.ID, fleet.ClientComplete, over)
	}
	a.keepSpec(*of)
	return "waits for its launch at " + formatLaunch(next), again, nil
}

// formatLaunch writes a launch time for people.
func formatLaunch(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// launchRow returns a row that says something of an allocation's launches. The allocation is running after it.
func launchRow(id fleet.AllocID, message string) fleet.Transition {
	return fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning, ClientDescription: message, Message: message}
}

// beginToWait journals that launches begin with the first time after now: the allocation is new, or its clock was set
// back behind every time that is settled.
func (a *Allocs) beginToWait(ctx context.Context, of *fleet.Alloc, r launchRecord) (why string, again time.Duration, err error) {
	now := a.launchClock()
	missed, _, _, err := cron.Due(*of.Job.Periodic, r.Settled, now)
	if err != nil {
		return whyNot(fmt.Errorf("find the next launch of allocation %s: %w", fleet.Short(of.ID), err), time.Hour)
	}
	if r.Settled = cron.SettleUpTo(r.Settled, now); !missed.IsZero() {
		r.Settled = cron.Settle(*of.Job.Periodic, r.Settled, missed)
	}
	const message = "waits for its next launch"
	if r.Alloc == of.ID {
		return whyNot(a.putLaunch(ctx, of, r), time.Millisecond)
	}
	return message, time.Millisecond, a.putLaunch(ctx, of, r, launchRow(of.ID, message))
}

// beginLaunch journals a launch, after what is left of the one before is removed.
func (a *Allocs) beginLaunch(ctx context.Context, of *fleet.Alloc, r launchRecord, due time.Time) error {
	if err := a.clearLastLaunch(ctx, of.ID); err != nil {
		return err
	}
	message := "launched for " + formatLaunch(due)
	if late := a.launchClock().Sub(due); late > lateLaunch {
		message += fmt.Sprintf(", %s late", late.Round(time.Second))
	}
	r.Settled = cron.Settle(*of.Job.Periodic, r.Settled, due)
	r.Alloc, r.Time = of.ID, due.Unix()
	return a.putLaunch(ctx, of, r, launchRow(of.ID, message))
}

// skipLaunch journals that a launch time passes because the launch before it is not over.
func (a *Allocs) skipLaunch(ctx context.Context, of *fleet.Alloc, r launchRecord, due time.Time) error {
	r.Settled = cron.Settle(*of.Job.Periodic, r.Settled, due)
	message := fmt.Sprintf("not launched for %s: the launch for %s is not over", formatLaunch(due), formatLaunch(time.Unix(r.Time, 0)))
	return a.putLaunch(ctx, of, r, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: of.ID, Message: message})
}

// clearLastLaunch removes what the tasks of the last launch left in the journal and in the folder of their state, so
// that they begin again. It may be repeated.
func (a *Allocs) clearLastLaunch(ctx context.Context, id fleet.AllocID) error {
	handles, err := a.cfg.Journal.Handles(ctx, id)
	if err != nil {
		return fmt.Errorf("find what the last launch of allocation %s left: %w", fleet.Short(id), err)
	}
	if a.cfg.TasksDir != "" {
		if err := os.RemoveAll(filepath.Join(a.cfg.TasksDir, string(id))); err != nil {
			return fmt.Errorf("remove the tasks' folder of the last launch of allocation %s: %w", fleet.Short(id), err)
		}
	}
	for key := range handles {
		if key == dataKey {
			continue
		}
		if err := a.cfg.Journal.PutHandle(ctx, id, key, nil); err != nil {
			return fmt.Errorf("forget the last launch of allocation %s: %w", fleet.Short(id), err)
		}
	}
	return nil
}

// isBetweenLaunches reports whether an active allocation is launched at times, and no launch of it is journaled as not
// over.
func (a *Allocs) isBetweenLaunches(id fleet.AllocID) bool {
	u := a.activeAllocOf(id)
	return u != nil && u.launch != nil && a.launches.recordFor(&u.launch.alloc).Alloc != id
}

// recorderOf returns the recorder for the runner of an allocation, and the same as a launchRecorder if the allocation
// is launched at times.
func (a *Allocs) recorderOf(w *journal.DesiredAlloc) (contract.Recorder, *launchRecorder) {
	if !runsAtEdge(w) {
		return a.watch, nil
	}
	l := &launchRecorder{Recorder: a.watch, allocs: a, alloc: w.Alloc}
	if w.Stop {
		l.endAlloc()
	}
	return l, l
}

// launchRecorder is the Recorder of the runner that runs one launch. It journals the end of the launch in place of the
// end of the allocation.
type launchRecorder struct {
	contract.Recorder
	allocs *Allocs
	alloc  fleet.Alloc
	ends   atomic.Bool // the allocation itself ends
}

// endAlloc makes the end of the tasks the end of the allocation. The receiver may be nil.
func (l *launchRecorder) endAlloc() {
	if l != nil {
		l.ends.Store(true)
	}
}

// Record implements contract.Recorder.
func (l *launchRecorder) Record(ctx context.Context, ts ...fleet.Transition) error {
	if l.endOfLaunch(ts) == nil {
		return l.Recorder.Record(ctx, ts...)
	}
	return l.recordLaunchEnd(ctx, ts)
}

// PutHandle implements contract.Recorder. What a task leaves at the end of a launch is not stored: the next one begins
// without it.
func (l *launchRecorder) PutHandle(ctx context.Context, id fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	if l.endOfLaunch(ts) == nil {
		return l.Recorder.PutHandle(ctx, id, key, handle, ts...)
	}
	return l.recordLaunchEnd(ctx, ts)
}

// endOfLaunch returns the row that ends the launch; nil: none does.
func (l *launchRecorder) endOfLaunch(ts []fleet.Transition) *fleet.Transition {
	if l.ends.Load() {
		return nil
	}
	for i := range ts {
		if s := (journal.State{ClientStatus: ts[i].ClientStatus}); s.Terminal() {
			return &ts[i]
		}
	}
	return nil
}

// recordLaunchEnd journals the end of the launch with the rows of the runner. All tasks are pending after it.
func (l *launchRecorder) recordLaunchEnd(ctx context.Context, ts []fleet.Transition) error {
	a := l.allocs
	a.launches.writing.Lock()
	defer a.launches.writing.Unlock()
	r := a.launches.recordFor(&l.alloc)
	rows := append([]fleet.Transition(nil), ts...)
	end := l.endOfLaunch(rows)
	if end == nil { // it is to stop since
		return l.Recorder.Record(ctx, ts...)
	}
	message := fmt.Sprintf("the launch for %s is over: %s (%s)", formatLaunch(time.Unix(r.Time, 0)), end.ClientStatus, end.ClientDescription)
	end.ClientStatus, end.ClientDescription = "", ""
	rows = append(rows, launchRow(l.alloc.ID, message))
	if g := l.alloc.Group(); g != nil {
		for _, t := range g.Tasks {
			rows = append(rows, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: l.alloc.ID, Task: t.Name, TaskState: &fleet.TaskState{State: fleet.TaskPending}})
		}
	}
	r.Alloc, r.Time = "", 0
	return a.putLaunch(ctx, &l.alloc, r, rows...)
}
