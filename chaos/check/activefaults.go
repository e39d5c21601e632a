package check

import (
	"slices"
	"strconv"
	"time"
)

// everyone is the target under which the times of faults without targets are recorded.
const everyone = ""

// activeFaults records which faults hold, and when the last fault of each target and effect began and ended.
// Checkers ask it whether a fault excuses what they see.
type activeFaults struct {
	active map[string]*Fault                   // by id, or "process NAME" for a process that does not run
	ended  map[string]map[Effect]time.Duration // by target and effect: the end of the last fault
	begun  map[string]map[Effect]time.Duration // by target and effect: the beginning of the last fault
	hubs   map[string]bool                     // names of the hubs that were observed
}

// newActiveFaults returns a record without faults.
func newActiveFaults() activeFaults {
	return activeFaults{
		active: map[string]*Fault{}, hubs: map[string]bool{},
		ended: map[string]map[Effect]time.Duration{}, begun: map[string]map[Effect]time.Duration{},
	}
}

// recordFault records the beginning or the end of a fault. It returns a copy; that of an end has also the kind,
// targets and effects of the beginning.
func (w *activeFaults) recordFault(f *Fault, now time.Duration) *Fault {
	return w.recordNamedFault(strconv.Itoa(f.ID), f, now)
}

// recordNamedFault does the work of recordFault under a name that is unique among active faults.
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

// recordProcessState records a fault with the effect Halts for a process that ends, whatever ended it, until it starts
// again.
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

// hasBeenRewound reports whether hubs were ever restored from an older copy.
func (w *activeFaults) hasBeenRewound() bool {
	for _, effects := range w.begun {
		if _, ok := effects[Rewinds]; ok {
			return true
		}
	}
	return false
}

// hasRewindEffect reports whether a fault restores hubs from an older copy. It is false for nil.
func (f *Fault) hasRewindEffect() bool { return f != nil && slices.Contains(f.Effects, Rewinds) }

// isRewindActive reports whether hubs are being restored from an older copy now.
func (w *activeFaults) isRewindActive() bool {
	for _, f := range w.active {
		if f.hasRewindEffect() {
			return true
		}
	}
	return false
}

// hasEffectOn reports whether a fault has one of these effects (none given: any effect) on a member.
func (f *Fault) hasEffectOn(who string, effects []Effect) bool {
	if len(f.Targets) > 0 && !slices.Contains(f.Targets, who) {
		return false
	}
	return len(effects) == 0 || slices.ContainsFunc(f.Effects, func(e Effect) bool { return slices.Contains(effects, e) })
}

// hasFaultNow reports whether an active fault has one of these effects (none given: any effect) on a member.
func (w *activeFaults) hasFaultNow(who string, effects ...Effect) bool {
	for _, f := range w.active {
		if f.hasEffectOn(who, effects) {
			return true
		}
	}
	return false
}

// lastFaultTime returns when a fault with one of these effects (none given: any) last held on a member: now if one is
// active, else the end of the last one. ok is false if there was none.
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

// hasEverHadFault reports whether a fault with one of these effects holds or ever held on a member.
func (w *activeFaults) hasEverHadFault(who string, effects ...Effect) bool {
	_, ok := w.lastFaultTime(0, who, effects...)
	return ok
}

// hasFaultSince reports whether a fault with one of these effects held on a member at any time from then to
// now.
func (w *activeFaults) hasFaultSince(now, then time.Duration, who string, effects ...Effect) bool {
	at, ok := w.lastFaultTime(now, who, effects...)
	return ok && at >= then
}

// hasHubFaultSince reports whether hasFaultSince is true for any hub.
func (w *activeFaults) hasHubFaultSince(now, then time.Duration, effects ...Effect) bool {
	for hub := range w.hubs {
		if w.hasFaultSince(now, then, hub, effects...) {
			return true
		}
	}
	return false
}

// hasFaultAt reports whether a fault with one of these effects held on a member at the time then. It knows only
// the last fault of each target and effect.
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

// beganAfter reports whether the last fault with an effect on a member began after then.
func (w *activeFaults) beganAfter(then time.Duration, who string, e Effect) bool {
	return max(w.begun[who][e], w.begun[everyone][e]) > then
}

// disturbing are the effects that keep a fleet from settling. MovesTime is not among them: a wrong wall clock
// must not.
var disturbing = []Effect{Severs, Impairs, Halts, Reboots, Damages, Chokes, Rewinds, Clones, EndsTasks}

// memberCalmSince returns since when no fault with a disturbing effect has held on a member or on any hub. ok
// is false while one holds.
func (w *activeFaults) memberCalmSince(who string) (since time.Duration, ok bool) {
	return w.targetsCalmSince(func(target string) bool { return target == who || w.hubs[target] })
}

// fleetCalmSince returns since when no fault with a disturbing effect has held on any member. ok is false while
// one holds.
func (w *activeFaults) fleetCalmSince() (since time.Duration, ok bool) {
	return w.targetsCalmSince(func(string) bool { return true })
}

// targetsCalmSince returns since when no fault with a disturbing effect has held on the targets for which
// concern is true (0: never). ok is false while one holds.
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

// hasDisturbingEffect reports whether one of the fault's effects is disturbing.
func (f *Fault) hasDisturbingEffect() bool {
	return slices.ContainsFunc(f.Effects, func(e Effect) bool { return slices.Contains(disturbing, e) })
}

// isOverdue reports whether more than bound has passed since then, and since the last disturbing fault on a
// member or a hub ended. It is false while such a fault holds.
func (s *runContext) isOverdue(who string, then, bound time.Duration) bool {
	return s.wasOverdue(who, then, bound, s.now)
}

// wasOverdue is isOverdue for a fact that is known until a time.
func (s *runContext) wasOverdue(who string, then, bound, until time.Duration) bool {
	fair, ok := s.faults.memberCalmSince(who)
	return ok && until-max(then, fair) > bound
}

// overdueEverywhere is isOverdue for a fact of the whole fleet: faults on any member count.
func (s *runContext) overdueEverywhere(then, bound time.Duration) bool {
	return s.wasOverdueEverywhere(then, bound, s.now)
}

// wasOverdueEverywhere is overdueEverywhere for a fact that is known until a time.
func (s *runContext) wasOverdueEverywhere(then, bound, until time.Duration) bool {
	calm, ok := s.faults.fleetCalmSince()
	return ok && until-max(then, calm) > bound
}
