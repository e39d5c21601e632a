package reconcile_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/reconcile"
)

func TestAbsenceOf(t *testing.T) {
	no, yes := false, true
	minute, zero := time.Minute, time.Duration(0)
	const (
		original = fleet.ReconcileKeepOriginal
		best     = fleet.ReconcileBestScore
	)
	for _, tc := range []struct {
		name        string
		block       *fleet.Disconnect
		keep, nomad reconcile.Absence
	}{
		{"no block", nil,
			reconcile.Absence{Tolerated: true, Reconcile: original},
			reconcile.Absence{PendingLost: true, Reconcile: original}},
		{"lost_after", &fleet.Disconnect{LostAfter: &minute},
			reconcile.Absence{Tolerated: true, LostAfter: minute, Replace: true, PendingLost: true, Reconcile: best},
			reconcile.Absence{Tolerated: true, LostAfter: minute, Replace: true, PendingLost: true, Reconcile: best}},
		{"lost_after, not replaced", &fleet.Disconnect{LostAfter: &minute, Replace: &no, Reconcile: original},
			reconcile.Absence{Tolerated: true, LostAfter: minute, PendingLost: true, Reconcile: original},
			reconcile.Absence{Tolerated: true, LostAfter: minute, PendingLost: true, Reconcile: original}},
		{"lost_after 0 is none", &fleet.Disconnect{LostAfter: &zero, Replace: &yes},
			reconcile.Absence{Tolerated: true, Replace: true, PendingLost: true, Reconcile: best},
			reconcile.Absence{Replace: true, PendingLost: true, Reconcile: best}},
		{"neither, not replaced", &fleet.Disconnect{Replace: &no},
			reconcile.Absence{Tolerated: true, Reconcile: best},
			reconcile.Absence{Tolerated: true, Reconcile: best}},
		{"stop_on_client_after", &fleet.Disconnect{StopOnClientAfter: &minute},
			reconcile.Absence{Tolerated: true, LostAfter: 67 * time.Second, Hold: 67 * time.Second, Reconcile: best},
			reconcile.Absence{PendingLost: true, LostAfter: 67 * time.Second, Hold: 67 * time.Second, Reconcile: best}},
		{"stop_on_client_after, not replaced", &fleet.Disconnect{StopOnClientAfter: &minute, Replace: &no},
			reconcile.Absence{Tolerated: true, Reconcile: best},
			reconcile.Absence{Tolerated: true, Reconcile: best}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &fleet.TaskGroup{Disconnect: tc.block, Tasks: []fleet.Task{
				{Name: "quick", KillTimeout: time.Second}, {Name: "slow", KillTimeout: 7 * time.Second},
			}}
			if got := reconcile.AbsenceOf(g, fleet.DisconnectKeep); got != tc.keep {
				t.Errorf("pool keep: %+v, want %+v", got, tc.keep)
			}
			tc.nomad.Nomad = true
			if got := reconcile.AbsenceOf(g, fleet.DisconnectNomad); got != tc.nomad {
				t.Errorf("pool nomad: %+v, want %+v", got, tc.nomad)
			}
		})
	}
	// Nothing may take its place before the last of its tasks can have ended: after the
	// group's delay the leader's, and then the longest of the others', 5 + 3 + 1 + 4 + 7 s.
	delay := 5 * time.Second
	g := &fleet.TaskGroup{Disconnect: &fleet.Disconnect{StopOnClientAfter: &minute}, ShutdownDelay: &delay, Tasks: []fleet.Task{
		{Name: "leader", Leader: true, ShutdownDelay: 3 * time.Second, KillTimeout: time.Second},
		{Name: "slow", ShutdownDelay: 4 * time.Second, KillTimeout: 7 * time.Second}, {Name: "quick", KillTimeout: 8 * time.Second},
	}}
	if got := reconcile.AbsenceOf(g, fleet.DisconnectKeep).Hold; got != minute+20*time.Second {
		t.Errorf("with delays: held for %v", got)
	}
	if got := reconcile.AbsenceOf(nil, ""); got != (reconcile.Absence{Tolerated: true, Reconcile: original}) {
		t.Errorf("unknown group: %+v", got)
	}
}
