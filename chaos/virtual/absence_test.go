package virtual_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/virtual"
)

// judgedInAbsence are the invariants that an absence has something to say of.
var judgedInAbsence = []check.Invariant{
	check.ExactlyOnce, check.HeartbeatFirst, check.AbsenceStopsNothing, check.RebootBringsBack, check.Settled, check.NoOvercommit,
	check.OncePerDisconnect, check.Bounded, check.LegalHistory, check.Sequence, check.NeverBack, check.SameEverywhere,
	check.SecretsSealed, check.NewestVariables, check.IdentitiesRenewed,
}

// TestFourHundredDays has an edge away for 400 days, and for nearly all of them alone in
// the world. It comes back by itself, and has forgotten nothing.
func TestFourHundredDays(t *testing.T) {
	s, err := virtual.ReadSchedule("../scenarios/long/four-hundred-days.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !whole() {
		t.Skip("it takes two minutes")
	}
	dir := mustMemory(t)
	var o virtual.Outcome
	virtual.Bubble(t, func() {
		o, err = virtual.Play{
			Schedule: s, Dir: dir, Name: "four hundred days", Tuning: virtual.Stretched, Strict: true,
		}.Run(context.Background())
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Run.Outcome != history.Pass || len(o.Found) > 0 {
		t.Errorf("%s: %v %v", o.Run.Outcome, o.Run.Reasons, o.Found)
	}
	for _, v := range o.Verdicts {
		if v.Judged == 0 && slices.Contains(judgedInAbsence, v.Invariant) {
			t.Errorf("%s was never looked at", v.Invariant)
		}
	}
}

// mustMemory is a folder in memory, where the system has one: 60,000 commits that wait
// for a disk take minutes.
func mustMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "absence")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
