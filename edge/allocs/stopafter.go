package allocs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// Bounds of the journal's checkpoint interval. A short stop_on_client_after needs a short one.
const (
	finestCheckpoint   = time.Second
	coarsestCheckpoint = 10 * time.Minute
	// checkpointsPerLimit is the number of checkpoints within a time that an allocation may be without a hub. A loss of power
	// makes uncertain what ran since the newest one, and a heartbeat that came after it.
	checkpointsPerLimit = 20
)

// MaxSilence returns the longest allowed time between two heartbeats: a third of the shortest
// stop_on_client_after, so that one lost heartbeat stops nothing. 0: no limit.
func (a *Allocs) MaxSilence() time.Duration {
	d, _ := a.silence.currentLimit()
	return d
}

// SilenceShortened returns a channel that is closed when MaxSilence next becomes shorter, so that a heartbeat
// is due earlier.
func (a *Allocs) SilenceShortened() <-chan struct{} {
	_, shorter := a.silence.currentLimit()
	return shorter
}

// heartbeatsPerLimit is the number of heartbeats that are due within a stop_on_client_after.
const heartbeatsPerLimit = 3

// silenceFor returns the longest allowed time between two heartbeats for one stop_on_client_after.
func silenceFor(after time.Duration) time.Duration {
	return max(after, fleet.MinStopOnClientAfter) / heartbeatsPerLimit
}

// silenceLimit is the value of MaxSilence. It may be used from any goroutine.
type silenceLimit struct {
	mu      sync.Mutex
	limit   time.Duration // 0: no limit
	shorter chan struct{} // closed when limit becomes shorter, then replaced
}

func newSilenceLimit() *silenceLimit { return &silenceLimit{shorter: make(chan struct{})} }

func (s *silenceLimit) currentLimit() (time.Duration, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit, s.shorter
}

// updateLimit sets the limit, and closes the channel shorter if the new limit is shorter than the old one.
func (s *silenceLimit) updateLimit(most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most > 0 && (s.limit == 0 || most < s.limit) {
		close(s.shorter)
		s.shorter = make(chan struct{})
	}
	s.limit = most
}

// noteRunDelivered remembers that a hub has just delivered an allocation that does not run here: its time without a hub starts
// now, even if the last heartbeat is older. For one that runs, a delivery is no contact: the hub may not hear this edge.
func (a *Allocs) noteRunDelivered(id fleet.AllocID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runDeliveredAt[id] = time.Now()
}

// timeWithoutHub returns how long an allocation has had no contact with a hub. away is the time since the last
// answered heartbeat, with all that losses of power may have taken from it: a replacement elsewhere must not run beside it.
func (a *Allocs) timeWithoutHub(id fleet.AllocID, away time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.runDeliveredAt[id]
	if !ok {
		return away
	}
	since := time.Since(at)
	if away <= since { // a heartbeat was answered after the delivery
		delete(a.runDeliveredAt, id)
		return away
	}
	return since
}

// stopOverdue journals a stop for each allocation whose stop_on_client_after has passed, marks it as stopped in desired, and
// returns how long until the next stop may be due, an hour at most. It sets MaxSilence, and how often the running time is
// saved: only that time counts, so a wrong clock stops nothing.
func (a *Allocs) stopOverdue(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc) (next time.Duration, err error) {
	var failed []error
	next = time.Hour
	away, mark, most := a.cfg.Journal.AwayAtMost(), coarsestCheckpoint, time.Duration(0)
	states := a.cfg.Journal.States()
	for _, id := range sortedKeys(desired) {
		w := desired[id]
		alone := a.timeWithoutHub(id, away)
		if w.Alloc.Job == nil { // the body of its newest version is not here yet
			if u := a.activeAllocOf(id); u != nil {
				w.Alloc.Job = u.alloc.Job
			}
		}
		if w.Stop || states[id].Terminal() || states[id].Held != nil { // a held one has no running tasks
			continue
		}
		mark = min(mark, checkpointFor(w))
		after, ok := stopAfter(w)
		if !ok {
			continue
		}
		if most == 0 || silenceFor(after) < most {
			most = silenceFor(after)
		}
		if alone < after {
			next = min(next, after-alone, reconcileRetry)
			continue
		}
		why := fmt.Sprintf("no hub for %s (stop_on_client_after)", after)
		row := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, Message: why, StoppedOnEdge: true}
		if err := a.cfg.Journal.Stop(ctx, syncproto.DesiredStop{ID: id, Reason: why}, row); err != nil {
			failed = append(failed, fmt.Errorf("stop allocation %s: %w", id, err))
			continue
		}
		a.log.Warn("stopping allocation: no hub for too long", "alloc_id", string(id), "after", after)
		w.Stop, w.StopReason = true, why
		desired[id] = w
	}
	a.cfg.Journal.SetCheckpointInterval(mark)
	a.silence.updateLimit(most)
	return next, errors.Join(failed...)
}

// checkpointFor returns how often the running time must be saved for an allocation, for the shortest time that it may be
// without a hub, by stop_on_client_after and by max_age of templates.
func checkpointFor(w journal.DesiredAlloc) time.Duration {
	interval := coarsestCheckpoint
	shortenFor := func(limit time.Duration) {
		interval = min(interval, max(finestCheckpoint, min(limit/checkpointsPerLimit, coarsestCheckpoint/2)))
	}
	if after, ok := stopAfter(w); ok {
		shortenFor(after)
	}
	g := w.Alloc.Group()
	if g == nil {
		return interval
	}
	for i := range g.Tasks {
		for _, t := range g.Tasks[i].Templates {
			if t.MaxAge > 0 {
				shortenFor(t.MaxAge)
			}
		}
	}
	return interval
}

// stopAfter returns the stop_on_client_after of an allocation; false: it has none.
func stopAfter(w journal.DesiredAlloc) (time.Duration, bool) {
	g := w.Alloc.Group()
	if g == nil || g.Disconnect == nil || g.Disconnect.StopOnClientAfter == nil {
		return 0, false
	}
	return *g.Disconnect.StopOnClientAfter, true
}
