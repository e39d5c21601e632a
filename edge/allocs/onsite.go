package allocs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// A stop on site holds: its row has a fleet.Hold, which the journal keeps in the allocation's state, also over
// reboots. The tasks end but the allocation does not, so no hub replaces it. A new allocation of the same name that a
// hub delivers is held as well. Start releases all holds of a name.

// StopOnSite says how and why an operator on site stops an allocation.
type StopOnSite struct {
	Person Person
	// NoDelay skips every shutdown_delay, also one that has begun.
	NoDelay bool
	// MayReturn ends the allocation for good instead of holding it: the hubs replace it.
	MayReturn bool
}

// Person is an operator on site, with the reason of the action.
type Person struct {
	By     string // the unix user, or "" if unknown
	Reason string
}

// describeAction returns the text of a row about a person's action and its reason.
func (p Person) describeAction(what string) string {
	if p.By != "" && !strings.Contains(what, " by ") {
		what += " by " + p.By
	}
	if p.Reason != "" {
		what += ": " + p.Reason
	}
	return what
}

// Stop stops an allocation for an operator on site, and holds it until Start. The stop is journaled when Stop returns;
// the tasks end later. A second stop is a fleet.CodeConflict, unless only the second one skips the shutdown_delay.
func (a *Allocs) Stop(ctx context.Context, id fleet.AllocID, how StopOnSite) error {
	w, err := a.findUnfinishedAlloc(ctx, id)
	if err != nil {
		return err
	}
	if err := checkAllowed(&w.Alloc, fleet.LocalStop); err != nil {
		return err
	}
	held := a.cfg.Journal.States()[id].Held
	switch {
	case w.Stop && (!how.NoDelay || w.NoDelay):
		return fleet.Errorf(fleet.CodeConflict, "allocation %s is already stopping: %s", fleet.Short(id), w.StopReason)
	case w.Stop || how.MayReturn:
		return a.stopForGood(ctx, id, how)
	case held != nil && (!how.NoDelay || held.NoDelay):
		return fleet.Errorf(fleet.CodeConflict, "allocation %s is already %s", fleet.Short(id), held)
	}
	hold := &fleet.Hold{By: how.Person.By, Reason: how.Person.Reason, Since: time.Now().UnixNano(), JobVersion: w.Alloc.JobVersion, NoDelay: how.NoDelay}
	row := fleet.Transition{Kind: fleet.TransitionOperator, Alloc: id, Hold: hold, Message: hold.String()}
	if err := a.cfg.Journal.Record(ctx, row); err != nil {
		return fmt.Errorf("stop allocation %s: %w", fleet.Short(id), err)
	}
	a.TriggerReconcile()
	return nil
}

// stopForGood journals a stop that ends the allocation.
func (a *Allocs) stopForGood(ctx context.Context, id fleet.AllocID, how StopOnSite) error {
	what := "stopped on site"
	if how.NoDelay {
		what = "stopped on site without its shutdown_delay"
	}
	why := how.Person.describeAction(what)
	row := fleet.Transition{Kind: fleet.TransitionOperator, Alloc: id, Message: why, StoppedOnEdge: true}
	if err := a.cfg.Journal.Stop(ctx, syncproto.DesiredStop{ID: id, Reason: why, NoDelay: how.NoDelay}, row); err != nil {
		return fmt.Errorf("stop allocation %s: %w", fleet.Short(id), err)
	}
	a.TriggerReconcile()
	return nil
}

// Start releases the hold on an allocation's name, after Stop, so that this edge runs it again. It returns that name
// and how many allocations of the name start now. It returns fleet.CodeConflict if the name is not held.
func (a *Allocs) Start(ctx context.Context, id fleet.AllocID, who Person) (called string, waiting int, err error) {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return "", 0, err
	}
	of := desired[id].Alloc
	if err := checkAllowed(&of, fleet.LocalStart); err != nil {
		return "", 0, err
	}
	var kept []fleet.AllocID // stopped by an older release
	var rows []fleet.Transition
	states := a.cfg.Journal.States()
	for _, other := range sortedKeys(desired) {
		w, s := desired[other], states[other]
		if nameOf(&w.Alloc) != nameOf(&of) {
			continue
		}
		if w.KeptStopped {
			kept = append(kept, other)
		}
		if s.Held != nil {
			rows = append(rows, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: other, Released: true, Message: who.describeAction("started on site")})
		}
		if !w.Stop && !s.Terminal() {
			waiting++
		}
	}
	if len(kept)+len(rows) == 0 {
		return "", 0, fleet.Errorf(fleet.CodeConflict, "start %s: it is not stopped on site", of.Name)
	}
	if len(rows) == 0 {
		rows = append(rows, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: id, Message: who.describeAction("started on site")})
	}
	if err := a.cfg.Journal.KeepStopped(ctx, kept, false, rows...); err != nil {
		return "", 0, fmt.Errorf("start %s: %w", of.Name, err)
	}
	a.TriggerReconcile()
	return of.Name, waiting, nil
}

// Restart restarts one task of an allocation, or all running ones for "", for an operator on site. The restart is
// journaled when Restart returns.
func (a *Allocs) Restart(ctx context.Context, id fleet.AllocID, task string, who Person) error {
	return a.Order(ctx, Order{Alloc: id, Task: task, OnSite: true, Why: who.describeAction("restarted on site")})
}

// checkAllowed returns a fleet.CodeForbidden if the job does not let people on site do an action.
func checkAllowed(of *fleet.Alloc, action string) error {
	c := of.Job.LocalControlOf(of.TaskGroup)
	if c.Allows(action) {
		return nil
	}
	return fleet.Errorf(fleet.CodeForbidden, "%s allocation %s: job %s does not allow that on site", action, fleet.Short(of.ID), of.JobID).
		WithHint("its local_control block allows %s; ask the people who run the hubs", strings.Join(c.Allow, ", "))
}

// settleHolds extends the hold of a name to its new allocations, and ends a hold that a newer version of the job
// overrules. It returns the journal's states after that.
func (a *Allocs) settleHolds(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc) (map[fleet.AllocID]journal.State, error) {
	states := a.cfg.Journal.States()
	holders := map[allocName][]fleet.AllocID{}
	for id, w := range desired {
		if states[id].Held != nil {
			holders[nameOf(&w.Alloc)] = append(holders[nameOf(&w.Alloc)], id)
		}
	}
	if len(holders) == 0 {
		return states, nil
	}
	var rows []fleet.Transition
	for _, id := range sortedKeys(desired) {
		w, s := desired[id], states[id]
		of := holders[nameOf(&w.Alloc)]
		if len(of) == 0 || w.Stop || w.Alloc.Job == nil || s.Terminal() || s.Held == nil && s.Seq > 0 {
			continue
		}
		hold := newestHold(states, of)
		switch {
		case w.Alloc.Job.Overrules(hold, w.Alloc.TaskGroup, w.Alloc.JobVersion):
			for _, holder := range of {
				if waits := desired[holder]; !waits.Stop && len(waits.Windows) > 0 {
					continue // it stays stopped until its window: the newer version runs in its place
				}
				rows = append(rows, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: holder, Released: true,
					Message: fmt.Sprintf("version %d of the job overrules the stop on site", w.Alloc.JobVersion)})
			}
			delete(holders, nameOf(&w.Alloc))
		case s.Held == nil:
			rows = append(rows, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: id, Hold: hold, Message: "not started: " + hold.String()})
		}
	}
	if len(rows) == 0 {
		return states, nil
	}
	if err := a.cfg.Journal.Record(ctx, rows...); err != nil {
		return nil, fmt.Errorf("record which allocations are held: %w", err)
	}
	return a.cfg.Journal.States(), nil
}

// newestHold returns the hold on the newest job version among allocations of one name: it is the last one requested.
func newestHold(states map[fleet.AllocID]journal.State, of []fleet.AllocID) *fleet.Hold {
	var newest *fleet.Hold
	for _, id := range sortIDs(of) {
		if h := states[id].Held; newest == nil || h.JobVersion > newest.JobVersion {
			newest = h
		}
	}
	return newest
}

// updateHold tells an allocation's runner, once each, that it is held, and that the hold skips the shutdown_delay.
func (u *activeAlloc) updateHold(hold *fleet.Hold) {
	if hold == nil {
		return
	}
	if d, ok := u.runner.(contract.DelaySkipper); ok && hold.NoDelay && !u.delaySkipped {
		u.delaySkipped = true
		d.SkipDelay()
	}
	if h, ok := u.runner.(contract.Holder); ok && !u.held {
		u.held = true
		h.Hold(hold.String())
	}
}

// noteParked records whether a held allocation has no running task, so that it gets no runner until its release.
func (a *Allocs) noteParked(id fleet.AllocID, parked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if parked {
		a.parked[id] = true
	} else {
		delete(a.parked, id)
	}
}

// isParked reports whether a held allocation has no running task.
func (a *Allocs) isParked(id fleet.AllocID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parked[id]
}

// heldNote returns why a held allocation does not run, and how to start it; "": it is not held.
func heldNote(w journal.DesiredAlloc, s journal.State) string {
	if s.Held == nil || w.Stop {
		return ""
	}
	return fmt.Sprintf("%s: start it with 'skerry local start %s'", s.Held, fleet.Short(w.Alloc.ID))
}
