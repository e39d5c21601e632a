package check

import (
	"slices"
	"strconv"
	"time"
)

// everyone stands for all members as the target of a fault.
const everyone = ""

// activeFaults is which faults hold, and when the last ones ended: what excuses whom.
type activeFaults struct {
	active map[string]*Fault
	ended  map[string]map[Effect]time.Duration // by target and effect: the end of the last one
	begun  map[string]map[Effect]time.Duration // and the beginning
	hubs   map[string]bool
}

func newActiveFaults() activeFaults {
	return activeFaults{
		active: map[string]*Fault{}, hubs: map[string]bool{},
		ended: map[string]map[Effect]time.Duration{}, begun: map[string]map[Effect]time.Duration{},
	}
}

// recordFault takes the beginning or the end of a fault, and returns it with all that is
// known of it.
func (w *activeFaults) recordFault(f *Fault, now time.Duration) *Fault {
	return w.recordNamedFault(strconv.Itoa(f.ID), f, now)
}

func (w *activeFaults) recordNamedFault(name string, f *Fault, now time.Duration) *Fault {
	kept := *f
	times := w.begun
	if f.End {
		if began := w.active[name]; began != nil {
			kept = *began
			kept.End, kept.Hits = true, f.Hits
		}
		delete(w.active, name)
		times = w.ended
	} else {
		w.active[name] = &kept
	}
	targets := kept.Targets
	if len(targets) == 0 {
		targets = []string{everyone}
	}
	for _, target := range targets {
		if times[target] == nil {
			times[target] = map[Effect]time.Duration{}
		}
		for _, e := range kept.Effects {
			times[target][e] = now
		}
	}
	return &kept
}

// recordProcessState takes a process that starts or ends, whatever fault that was: as long as it
// does not run it is halted.
func (w *activeFaults) recordProcessState(p *Process, now time.Duration) {
	if !p.Edge {
		w.hubs[p.Name] = true
	}
	name, starts := "process "+p.Name, p.What == ProcessStart
	if starts && w.active[name] == nil {
		return
	}
	w.recordNamedFault(name, &Fault{Targets: []string{p.Name}, Effects: []Effect{Halts}, End: starts}, now)
}

// hasBeenRewound reports whether hubs were ever put back.
func (w *activeFaults) hasBeenRewound() bool {
	for _, effects := range w.begun {
		if _, ok := effects[Rewinds]; ok {
			return true
		}
	}
	return false
}

// hasRewindEffect reports whether a fault (nil: none) puts hubs back.
func (f *Fault) hasRewindEffect() bool { return f != nil && slices.Contains(f.Effects, Rewinds) }

// isRewindActive reports whether hubs are being put back just now.
func (w *activeFaults) isRewindActive() bool {
	for _, f := range w.active {
		if f.hasRewindEffect() {
			return true
		}
	}
	return false
}

func (f *Fault) hasEffectOn(who string, effects []Effect) bool {
	if len(f.Targets) > 0 && !slices.Contains(f.Targets, who) {
		return false
	}
	return len(effects) == 0 || slices.ContainsFunc(f.Effects, func(e Effect) bool { return slices.Contains(effects, e) })
}

// hasFaultNow reports whether who is under a fault with one of these effects (none:
// any) just now.
func (w *activeFaults) hasFaultNow(who string, effects ...Effect) bool {
	for _, f := range w.active {
		if f.hasEffectOn(who, effects) {
			return true
		}
	}
	return false
}

// lastFaultTime is when who was last under one of these effects: now, where it still is; ok
// is false where it never was.
func (w *activeFaults) lastFaultTime(now time.Duration, who string, effects ...Effect) (at time.Duration, ok bool) {
	if w.hasFaultNow(who, effects...) {
		return now, true
	}
	for _, target := range []string{who, everyone} {
		for e, t := range w.ended[target] {
			if len(effects) == 0 || slices.Contains(effects, e) {
				at, ok = max(at, t), true
			}
		}
	}
	return at, ok
}

// hasEverHadFault reports whether who was under one of these effects at all.
func (w *activeFaults) hasEverHadFault(who string, effects ...Effect) bool {
	_, ok := w.lastFaultTime(0, who, effects...)
	return ok
}

// hasFaultSince reports whether who was under one of these effects at any time from then
// on.
func (w *activeFaults) hasFaultSince(now, then time.Duration, who string, effects ...Effect) bool {
	at, ok := w.lastFaultTime(now, who, effects...)
	return ok && at >= then
}

// hasHubFaultSince reports it of any hub.
func (w *activeFaults) hasHubFaultSince(now, then time.Duration, effects ...Effect) bool {
	for hub := range w.hubs {
		if w.hasFaultSince(now, then, hub, effects...) {
			return true
		}
	}
	return false
}

// hasFaultAt reports whether who was under one of these effects at some time of late: the
// last fault of each is remembered.
func (w *activeFaults) hasFaultAt(who string, then time.Duration, effects ...Effect) bool {
	for _, target := range []string{who, everyone} {
		for _, e := range effects {
			began, was := w.begun[target][e]
			if ended, over := w.ended[target][e]; was && began <= then && (!over || ended < began || then <= ended) {
				return true
			}
		}
	}
	return false
}

// beganAfter reports whether the last fault with an effect on who began after then.
func (w *activeFaults) beganAfter(then time.Duration, who string, e Effect) bool {
	return max(w.begun[who][e], w.begun[everyone][e]) > then
}

// disturbing are the effects that keep a fleet from settling. A wall clock that is
// wrong must not.
var disturbing = []Effect{Severs, Impairs, Halts, Reboots, Damages, Chokes, Rewinds, Clones, EndsTasks}

// memberCalmSince is since when nothing has disturbed who, nor any hub; ok is false while
// something does.
func (w *activeFaults) memberCalmSince(who string) (since time.Duration, ok bool) {
	return w.targetsCalmSince(func(target string) bool { return target == who || w.hubs[target] })
}

// fleetCalmSince is since when nothing has disturbed anybody.
func (w *activeFaults) fleetCalmSince() (since time.Duration, ok bool) {
	return w.targetsCalmSince(func(string) bool { return true })
}

// targetsCalmSince is since when nothing has disturbed those who concern.
func (w *activeFaults) targetsCalmSince(concern func(target string) bool) (since time.Duration, ok bool) {
	for _, f := range w.active {
		if f.hasDisturbingEffect() && (len(f.Targets) == 0 || slices.ContainsFunc(f.Targets, concern)) {
			return 0, false
		}
	}
	for target, effects := range w.ended {
		if target != everyone && !concern(target) {
			continue
		}
		for e, at := range effects {
			if slices.Contains(disturbing, e) {
				since = max(since, at)
			}
		}
	}
	return since, true
}

func (f *Fault) hasDisturbingEffect() bool {
	return slices.ContainsFunc(f.Effects, func(e Effect) bool { return slices.Contains(disturbing, e) })
}

// isOverdue reports whether something that began then, and concerns who, has had
// bound of time without faults at a stretch.
func (s *runContext) isOverdue(who string, then, bound time.Duration) bool {
	fair, ok := s.faults.memberCalmSince(who)
	return ok && s.now-max(then, fair) > bound
}

// overdueEverywhere is overdue for what concerns the whole fleet.
func (s *runContext) overdueEverywhere(then, bound time.Duration) bool {
	calm, ok := s.faults.fleetCalmSince()
	return ok && s.now-max(then, calm) > bound
}
