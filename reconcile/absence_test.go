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
			if got := reconcile.AbsenceOf(g, fleet.DisconnectNomad); got != tc.nomad {
				t.Errorf("pool nomad: %+v, want %+v", got, tc.nomad)
			}
		})
	}
	if got := reconcile.AbsenceOf(nil, ""); got != (reconcile.Absence{Tolerated: true, Reconcile: original}) {
		t.Errorf("unknown group: %+v", got)
	}
}
