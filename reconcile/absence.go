package reconcile

import (
	"time"

	"skerry/fleet"
)

// Absence is what a group's allocations do while their node is away.
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
	Tolerated   bool          // it becomes unknown; else lost
	LostAfter   time.Duration // 0: never, for being away alone
	Replace     bool          // replaced while unknown, by the group's reschedule policy
	PendingLost bool
	// Hold is how long after the beginning of the absence nothing may take its
	// place, because the edge may still be running it.
	Hold      time.Duration
	Reconcile string
	Nomad     bool // the pool's default is Nomad's: a stop says nothing of the client status
}

// AbsenceOf returns the rules of a group (nil: not known) in a pool whose
// default is poolDefault.
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
			p.Hold = *block.StopOnClientAfter + timeToStop(g)
			p.LostAfter = p.Hold
		}
	default:
		p.Tolerated, p.Replace = !nomad || !replace, replace
	}
	return p
}

// isPastLostAfter reports whether the window of an absence since then is over.
func (p Absence) isPastLostAfter(since, now time.Time) bool {
	return p.LostAfter > 0 && !now.Before(since.Add(p.LostAfter))
}

// timeToStop is the longest that the tasks of a group may take to end: after the group's
// shutdown_delay a leader does, and then all others at once, each after its own delay.
func timeToStop(g *fleet.TaskGroup) time.Duration {
	var group, leader, others time.Duration
	if g.ShutdownDelay != nil {
		group = *g.ShutdownDelay
	}
	for _, t := range g.Tasks {
		if took := t.ShutdownDelay + t.KillTimeout; t.Leader {
			leader = max(leader, took)
		} else {
			others = max(others, took)
		}
	}
	return group + leader + others
}

// awaySince is when the hub lost sight of an allocation that is unknown, or lost
// for that: by the hub's clock, which is later than when the edge did.
func awaySince(a *fleet.Alloc) time.Time {
	since := time.Unix(0, a.ModifyTime)
	for i := len(a.AllocStates) - 1; i >= 0; i-- {
		s := a.AllocStates[i]
		if s.Field != fleet.AllocStateClientStatus || s.Value == "" {
			continue
		}
		if s.Value != fleet.ClientUnknown && s.Value != fleet.ClientLost {
			break
		}
		since = s.Time
	}
	return since
}
