package allocs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/syncproto"
)

// A stop for a newer version may have update windows. It begins only inside one of them, by the hub's clock plus the
// machine time since, and never while that clock is unknown. Until then the allocation runs and its replacement waits.
// The beginning is journaled first: after that, the end of the window does not matter.

// heldStops says which stops and starts are held back, by update windows or by an operator on site, and why.
type heldStops struct {
	stops         map[fleet.AllocID]string // why a stop has not begun
	windowOpen    map[fleet.AllocID]bool   // stops whose window is open
	names         map[allocName]string     // why a name's replacement waits for its predecessor
	stoppedOnSite map[allocName]string     // reason of names that an operator on site stopped
	next          time.Duration            // until the first window opens; 0: not known
}

// allocName is the name of an allocation within its job.
type allocName struct {
	namespace string
	job       fleet.JobID
	name      string
}

// nameOf returns the name of an allocation, which its replacement has too.
func nameOf(a *fleet.Alloc) allocName { return allocName{a.Namespace, a.JobID, a.Name} }

// How often the clock is checked while something waits for a window: a hub may correct its clock, or
// become reachable.
const (
	clockPollInterval  = 5 * time.Second
	windowPollInterval = time.Minute
)

// desiredAllocs reads the desired allocations. A running allocation whose stop waits for an update window gets
// Stop = false in the result, and heldStops says so.
func (a *Allocs) desiredAllocs(ctx context.Context) (map[fleet.AllocID]journal.DesiredAlloc, *heldStops, error) {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return nil, nil, err
	}
	h := &heldStops{stops: map[fleet.AllocID]string{}, windowOpen: map[fleet.AllocID]bool{}, names: map[allocName]string{}, stoppedOnSite: map[allocName]string{}}
	var states map[fleet.AllocID]journal.State
	for _, id := range sortedKeys(desired) {
		w := desired[id]
		if w.Stop && w.KeptStopped {
			h.stoppedOnSite[nameOf(&w.Alloc)] = fmt.Sprintf("%s was stopped on site: 'skerry local start %s' lets it run", w.Alloc.Name, fleet.Short(id))
		}
		if !w.Stop || len(w.Windows) == 0 {
			continue
		}
		if states == nil {
			states = a.cfg.Journal.States()
		}
		if s := states[id]; s.ClientStatus == "" || s.Terminal() || w.Alloc.Job == nil || s.Held != nil && a.isParked(id) {
			continue // it does not run, so its stop may begin outside of a window
		}
		why, opens := a.windowClosedReason(w.Windows)
		if why == "" {
			h.windowOpen[id] = true
			continue
		}
		h.addHeldStop(&w.Alloc, why, opens)
		w.Stop = false
		desired[id] = w
	}
	return desired, h, nil
}

// windowClosedReason returns why a stop may not begin now ("": it may), and how long until a window
// opens (0: not known).
func (a *Allocs) windowClosedReason(windows []fleet.UpdateWindow) (why string, opens time.Duration) {
	now, ok := a.cfg.Journal.HubNow()
	if !ok {
		return "waits for an update window, and for the time from a hub", 0
	}
	s, err := cron.WindowStateAt(windows, a.cfg.TimeZone, now)
	switch {
	case err != nil:
		return fmt.Sprintf("waits for an update window that cannot be parsed: %v", err), 0
	case s.Open:
		return "", 0
	case s.Next.IsZero():
		return "waits for an update window, but none will open again", 0
	}
	return "waits for its update window, which opens at " + s.Next.UTC().Format(time.RFC3339), s.Next.Sub(now)
}

// addHeldStop adds a stop that waits, with the reason and how long until its window opens (0: not known).
func (h *heldStops) addHeldStop(a *fleet.Alloc, why string, opens time.Duration) {
	h.stops[a.ID] = why
	h.names[nameOf(a)] = why
	if opens > 0 && (h.next == 0 || opens < h.next) {
		h.next = opens
	}
}

// heldStopReason returns why an allocation still runs although it must stop, or "" if its stop does not wait.
func (h *heldStops) heldStopReason(id fleet.AllocID) string {
	if why := h.stops[id]; why != "" {
		return "will be replaced: " + why
	}
	return ""
}

// predecessorReason returns why a new allocation must not start yet: the running one of its name waits for an update
// window. It returns "" if none does.
func (h *heldStops) predecessorReason(w journal.DesiredAlloc, s journal.State) string {
	if len(h.names) == 0 || h.stops[w.Alloc.ID] != "" || w.Stop || s.ClientStatus != "" {
		return ""
	}
	return h.names[nameOf(&w.Alloc)]
}

// stoppedOnSiteReason returns why a new allocation must not start: an operator on site holds its name. It returns ""
// if the name is not held.
func (h *heldStops) stoppedOnSiteReason(w journal.DesiredAlloc, s journal.State) string {
	if len(h.stoppedOnSite) == 0 || w.Stop || s.ClientStatus != "" {
		return ""
	}
	return h.stoppedOnSite[nameOf(&w.Alloc)]
}

// nextWindowCheck returns how long until the held stops must be checked again.
func (h *heldStops) nextWindowCheck() time.Duration {
	switch {
	case len(h.stops) == 0:
		return time.Hour
	case h.next == 0:
		return clockPollInterval
	}
	return min(h.next, windowPollInterval)
}

// beginStops journals, for each stop whose update window is open, that it begins now, and removes its windows
// in desired. If that fails, the allocation runs on, and the stop waits.
func (a *Allocs) beginStops(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc, h *heldStops) error {
	var failed []error
	for _, id := range sortedKeys(desired) {
		if !h.windowOpen[id] {
			continue
		}
		w := desired[id]
		row := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, Message: "its update window is open: " + w.StopReason}
		if err := a.cfg.Journal.Stop(ctx, syncproto.DesiredStop{ID: id, Reason: w.StopReason}, row); err != nil {
			failed = append(failed, fmt.Errorf("begin to stop allocation %s: %w", fleet.Short(id), err))
			w.Stop = false
			h.addHeldStop(&w.Alloc, "its beginning cannot be journaled", 0)
		}
		w.Windows = nil
		desired[id] = w
	}
	return errors.Join(failed...)
}
