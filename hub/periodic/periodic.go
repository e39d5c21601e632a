// Package periodic launches the children of periodic jobs when their time comes: the
// leader's component for cron.
//
// hub.Open runs Lead on leadership; it is one goroutine, which blocks on the state and
// on time. Up to when a job is launched is in the state, noted in the same entry that
// makes the child: a new leader goes on where the last one was, launches once what was
// missed while nobody led, and nothing twice. The package persists nothing itself.
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

// What paces the launches.
const (
	gatherFor    = 200 * time.Millisecond // between two looks at the state
	retryAfter   = time.Second            // after a launch that was not committed
	applyTimeout = 10 * time.Second
	// maxSleep is how long the leader sleeps at most: a wall clock may be set.
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

// Lead launches until ctx ends.
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

// Launch is a job whose time has come.
type Launch struct {
	Job  *fleet.Job
	Time time.Time // that it is launched for
	// Upto is up to when it is then launched: of several times that were missed, one
	// is made up for.
	Upto time.Time
}

// Due lists the jobs whose time has come, by namespace and id, and when the next
// one's comes (zero: never).
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

// lastLaunchTime is the time after which a job is next: when it was last launched, or when it
// became what it is.
func lastLaunchTime(v *state.View, j *fleet.Job) time.Time {
	return time.Unix(0, max(v.Launched(j.Namespace, j.ID), j.SubmitTime))
}

func launchedUpTo(j *fleet.Job, at, now time.Time) time.Time {
	if next, err := cron.Next(*j.Periodic, at); err == nil && !next.IsZero() && !next.After(now) {
		return now
	}
	return at
}

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
		l.cfg.Log.Info("periodic job not launched: a child of it is not over", "job", d.Job.ID, "time", d.Time)
	default:
		l.cfg.Log.Info("periodic job launched", "job", d.Job.ID, "child", res.Child)
	}
	return true
}

// Child makes the job that is launched for a time, and its evaluation.
func Child(j *fleet.Job, at, now time.Time, evalID string) (*fleet.Job, *fleet.Evaluation) {
	child := j.Child(fleet.LaunchID(j.ID, at), now)
	return child, &fleet.Evaluation{
		ID: fleet.EvalID(evalID), Namespace: child.Namespace, Priority: child.Priority, Type: child.Type,
		TriggeredBy: fleet.TriggerPeriodicJob, JobID: child.ID, Status: fleet.EvalPending,
	}
}
