// Package periodic launches the child jobs of periodic jobs at their times, on the leader.
//
// hub.Open runs Lead on leadership; it is one goroutine, which waits for the state and for time. The
// entry that registers a child also records up to which time its parent is launched. So a new leader
// continues, launches a parent once for all times that were missed without a leader, and no time twice.
// The package itself persists nothing.
package periodic

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/hub/state"
	"skerry/internal/pace"
)

// Pauses and bounds of the launcher.
const (
	gatherFor    = 200 * time.Millisecond // between two reads of the state
	retryAfter   = time.Second            // after a launch that was not committed
	applyTimeout = 10 * time.Second
	// maxSleep bounds a wait for a launch time, as somebody may set the wall clock meanwhile.
	maxSleep = time.Minute
)

// Config of a Launcher. State and Apply are required.
type Config struct {
	State *state.Store
	Apply state.Applier
	Now   func() time.Time // the wall clock; nil: time.Now
	NewID func() string    // nil: random
	Log   *slog.Logger
}

// Launcher launches periodic jobs.
type Launcher struct {
	cfg Config
}

// New checks the configuration.
func New(cfg Config) (*Launcher, error) {
	if cfg.State == nil || cfg.Apply == nil {
		return nil, errors.New("make the periodic launcher: state and applier are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return fleet.NewUUID(nil) }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Launcher{cfg: cfg}, nil
}

// Lead launches due jobs until ctx ends.
func (l *Launcher) Lead(ctx context.Context) error {
	for ctx.Err() == nil {
		view := l.cfg.State.Watch()
		due, again := Due(view, l.cfg.Now())
		wait := gatherFor
		for _, d := range due {
			if !l.launchChild(ctx, d) {
				wait = retryAfter
			}
		}
		if len(due) > 0 {
			pace.Rest(ctx, wait)
			continue
		}
		sleep := maxSleep
		if !again.IsZero() {
			sleep = min(sleep, max(0, again.Sub(l.cfg.Now())))
		}
		woken, cancel := context.WithTimeout(ctx, sleep)
		changed := view.Changed(woken) == nil
		cancel()
		if changed {
			pace.Rest(ctx, gatherFor)
		}
	}
	return nil
}

// Launch is a periodic job that is due.
type Launch struct {
	Job  *fleet.Job
	Time time.Time // the time of its schedule that the child is for
	// Upto is the time up to which the job then counts as launched: of several missed times only the first one gets a
	// child.
	Upto time.Time
}

// Due returns the due jobs, ordered by namespace and id, and when the next other job is due (zero: never).
func Due(v *state.View, now time.Time) (due []Launch, again time.Time) {
	for j := range v.PeriodicJobs() {
		if j.Stop || !j.Periodic.Enabled || j.IsParameterized() {
			continue
		}
		at, err := cron.Next(*j.Periodic, lastLaunchTime(v, j))
		switch {
		case err != nil || at.IsZero(): // it was checked when it was registered
		case at.After(now):
			if again.IsZero() || at.Before(again) {
				again = at
			}
		default:
			due = append(due, Launch{Job: j, Time: at, Upto: launchedUpTo(j, at, now)})
		}
	}
	return due, again
}

// lastLaunchTime is the time after which a job's next launch comes: its last launch, or its last
// registration if that is later.
func lastLaunchTime(v *state.View, j *fleet.Job) time.Time {
	return time.Unix(0, max(v.Launched(j.Namespace, j.ID), j.SubmitTime))
}

// launchedUpTo is the Upto of a launch for the time at: now if later times of the schedule have passed too.
func launchedUpTo(j *fleet.Job, at, now time.Time) time.Time {
	if next, err := cron.Next(*j.Periodic, at); err == nil && !next.IsZero() && !next.After(now) {
		return now
	}
	return at
}

// launchChild commits the child job of a launch and logs the outcome. false: not committed. A job that
// prohibits overlap and has a running child gets none, and counts as launched.
func (l *Launcher) launchChild(ctx context.Context, d Launch) bool {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	child, eval := Child(d.Job, d.Time, l.cfg.Now(), l.cfg.NewID())
	res, err := l.cfg.Apply.Apply(ctx, state.PeriodicLaunch{
		Namespace: d.Job.Namespace, ID: d.Job.ID, JobModifyIndex: d.Job.JobModifyIndex, Launched: d.Upto.UnixNano(),
		Child: child, Eval: eval, Now: l.cfg.Now().UnixNano(),
	})
	err = res.Failure(err)
	switch {
	case err != nil:
		l.cfg.Log.Warn("periodic job not launched", "job", d.Job.ID, "time", d.Time, "error", err)
		return false
	case res.Child == "":
		l.cfg.Log.Info("periodic job not launched: one of its children has not ended", "job", d.Job.ID, "time", d.Time)
	default:
		l.cfg.Log.Info("periodic job launched", "job", d.Job.ID, "child", res.Child)
	}
	return true
}

// Child returns the child job of a periodic job for a launch time, and its evaluation.
func Child(j *fleet.Job, at, now time.Time, evalID string) (*fleet.Job, *fleet.Evaluation) {
	child := j.Child(fleet.LaunchID(j.ID, at), now)
	return child, &fleet.Evaluation{
		ID: fleet.EvalID(evalID), Namespace: child.Namespace, Priority: child.Priority, Type: child.Type,
		TriggeredBy: fleet.TriggerPeriodicJob, JobID: child.ID, Status: fleet.EvalPending,
	}
}
