package reconcile

import (
	"time"

	"skerry/fleet"
)

// Absence has the rules for a group's allocations while their node is away.
//
//	disconnect block        pool "keep"                      pool "nomad"
//	none                    unknown, never lost, not         lost and replaced at once
//	                        replaced, keep_original
//	lost_after T            unknown for T, then lost; replaced meanwhile where replace
//	stop_on_client_after S  unknown until S and the time     lost at once, replaced when S and
//	                        to stop are over, then lost      the time to stop are over
//	                        and replaced
//	  and replace = false   unknown, never lost, not replaced
//	neither of the two      unknown, never lost, replaced    lost and replaced at once
//	                        meanwhile
//	  and replace = false   unknown, never lost, not replaced
//
// A pending allocation under a block that replaces, or under pool "nomad", is
// lost and replaced at once: nothing of it has run. That of a system or sysbatch job
// is left alone in a pool "nomad" until its node is down.
type Absence struct {
	Tolerated   bool          // it becomes unknown; false: lost
	LostAfter   time.Duration // after this time it is lost; 0: never
	Replace     bool          // it is replaced while unknown, if the reschedule policy allows that
	PendingLost bool          // a pending allocation is lost at once
	// Hold is how long after the beginning of the absence it must not be replaced, because the edge
	// may still run it.
	Hold      time.Duration
	Reconcile string // the reconcile strategy: which allocation stays when the original is back
	Nomad     bool   // the pool follows Nomad's rules: a stop does not change the client status
}

// AbsenceOf returns the rules for a group in a node pool with the default poolDefault. g is nil if the
// group is not known.
func AbsenceOf(g *fleet.TaskGroup, poolDefault string) Absence {
	nomad := poolDefault == fleet.DisconnectNomad
	if g == nil || g.Disconnect == nil {
		return Absence{Tolerated: !nomad, PendingLost: nomad, Reconcile: fleet.ReconcileKeepOriginal, Nomad: nomad}
	}
	block := g.Disconnect
	replace := block.Replace == nil || *block.Replace
	p := Absence{Tolerated: true, PendingLost: replace, Reconcile: block.Reconcile, Nomad: nomad}
	if p.Reconcile == "" {
		p.Reconcile = fleet.ReconcileBestScore
	}
	switch {
	case block.LostAfter != nil && *block.LostAfter > 0:
		p.LostAfter, p.Replace, p.PendingLost = *block.LostAfter, replace, true
	case block.StopOnClientAfter != nil:
		p.Tolerated = !nomad || !replace
		p.PendingLost = nomad && replace
		if replace {
			p.Hold = g.RunsAloneFor()
			p.LostAfter = p.Hold
		}
	default:
		p.Tolerated, p.Replace = !nomad || !replace, replace
	}
	return p
}

// isPastLostAfter reports whether an absence since that time has lasted for LostAfter.
func (p Absence) isPastLostAfter(since, now time.Time) bool {
	return p.LostAfter > 0 && !now.Before(since.Add(p.LostAfter))
}

// lengthenHold returns the rules for an allocation that its edge may run for so long without a hub, because it may have
// another version. Without an end it is not replaced.
func (p Absence) lengthenHold(alone time.Duration) Absence {
	switch {
	case alone <= p.Hold || p.Hold == 0: // with a hold of 0, it is never replaced, or two at once are wanted
	case alone == fleet.RunsOn: // what ends or is given up all the same waits for as long as by its own version
		p.Tolerated, p.PendingLost, p.LostAfter = true, false, 0
	default:
		p.Hold, p.LostAfter = alone, alone
	}
	return p
}

// awaySince returns since when the allocation has been away, but not before its edge was last heard of, from when that
// counts stop_on_client_after: the edge may have been back for a while, and its history was not in.
func (m *member) awaySince() time.Time {
	since, recorded := awaySince(m.a)
	if m.heard.After(since) || !recorded && !m.heard.IsZero() {
		return m.heard
	}
	return since
}

// awaySince returns when an allocation became unknown, or lost without being unknown before, by the hub's
// clock. That is later than the edge lost its link. recorded is false for one that was told to stop before: that has no
// record, and since is its last change.
func awaySince(a *fleet.Alloc) (since time.Time, recorded bool) {
	since = time.Unix(0, a.ModifyTime)
	for i := len(a.AllocStates) - 1; i >= 0; i-- {
		s := a.AllocStates[i]
		if s.Field != fleet.AllocStateClientStatus || s.Value == "" {
			continue
		}
		if s.Value != fleet.ClientUnknown && s.Value != fleet.ClientLost {
			break
		}
		since, recorded = s.Time, true
	}
	return since, recorded
}
