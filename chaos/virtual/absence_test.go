package virtual_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/virtual"
	"skerry/fleet"
)

// mustReturn plays an absence in which nothing may go wrong.
func mustReturn(t *testing.T, a virtual.Absence) virtual.AbsenceOutcome {
	t.Helper()
	a.Dir = mustMemory(t)
	var o virtual.AbsenceOutcome
	var err error
	synctest.Test(t, func(t *testing.T) { o, err = a.Run(t.Context(), wallClock()) })
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range o.Found {
		t.Error(v)
	}
	if o.Run.Outcome != history.Pass {
		t.Errorf("the run's outcome is %s: %v", o.Run.Outcome, o.Run.Reasons)
	}
	for _, v := range o.Verdicts {
		if v.Judged == 0 && slices.Contains(judgedInAbsence, v.Invariant) {
			t.Errorf("%s was never looked at", v.Invariant)
		}
	}
	t.Logf("alone for %s in %s: %d boots, off for %s, %d rows, %d dropped, journal %d KiB at most, %d KiB written a day, back within %s",
		o.Alone.Round(time.Hour), o.AloneWall.Round(time.Millisecond), o.Boots, o.Off, o.Rows, o.Dropped, o.JournalBytes>>10,
		o.Written>>10/uint64(o.Alone/day), o.Rejoin.Round(time.Second))
	return o
}

// judgedInAbsence are the invariants that an absence has something to say of.
var judgedInAbsence = []check.Invariant{
	check.ExactlyOnce, check.HeartbeatFirst, check.AbsenceStopsNothing, check.RebootBringsBack, check.Settled, check.NoOvercommit,
	check.OncePerDisconnect, check.Bounded, check.LegalHistory, check.Sequence, check.NeverBack, check.SameEverywhere,
}

// TestFourHundredDays has an edge away for 400 days, and for nearly all of them alone in
// the world. It comes back by itself, and has forgotten nothing.
func TestFourHundredDays(t *testing.T) {
	a := virtual.Absence{Seed: 1, Days: 400, Together: time.Hour, FailEvery: 6 * time.Hour, BackoffCap: 2 * time.Hour}
	if !whole() {
		a.Days, a.Together, a.FailEvery, a.BackoffCap = 10, 5*time.Minute, time.Hour, 30*time.Minute
	}
	o := mustReturn(t, a)
	if length := time.Duration(a.Days) * day; o.Away < length || o.Alone < length-day {
		t.Errorf("away for %s, alone for %s", o.Away, o.Alone)
	}
	if whole() {
		metEverything(t, o)
	}
	if o.Dropped != 0 || o.Rows < uint64(10*a.Days) || o.JournalBytes > 64<<20 {
		t.Errorf("%d rows and %d dropped, in %d bytes", o.Rows, o.Dropped, o.JournalBytes)
	}
	if limit := uint64(5 << 20); o.Written == 0 || o.Written/uint64(o.Alone/day) > limit {
		t.Errorf("%d bytes written in %s, more than %d a day", o.Written, o.Alone, limit)
	}
	tasksRan(t, o)
}

// metEverything checks that the ship had every trouble, that what ended before the first
// one never began again, and that its certificate had ended long before it was back.
func metEverything(t *testing.T, o virtual.AbsenceOutcome) {
	t.Helper()
	for _, name := range []string{"power cut", "agent killed", "reboot into 1970", "reboot into 2100", "reboot after 5 days"} {
		if !slices.Contains(o.Troubles, name) {
			t.Errorf("it saw no %s: %v", name, o.Troubles)
		}
	}
	if o.Up["survey"] > 5*day || o.Up["pump"] > 8*day {
		t.Errorf("ran again after their ends: survey for %s, pump for %s", o.Up["survey"], o.Up["pump"])
	}
	if o.Back.Sub(o.CertificateAtFirst) < 300*day || !o.CertificateAtLast.After(o.Back) {
		t.Errorf("its certificate ended at %s, it was back at %s, with one until %s", o.CertificateAtFirst, o.Back, o.CertificateAtLast)
	}
}

// tasksRan checks that the ship's tasks ran for all the time that they could: the whole
// time that the machine was on, but for what a boot and a restart take.
func tasksRan(t *testing.T, o virtual.AbsenceOutcome) {
	t.Helper()
	on := o.Alone - o.Off - time.Duration(o.Boots)*10*time.Second
	const restart = 20 * time.Second // the delay of 15 s, and what is added by chance
	for job, atLeast := range map[fleet.JobID]time.Duration{
		"engine": on, "relay": on, "sensor": on - time.Duration(o.Failures)*restart, "survey": min(on, 4*day), "pump": min(on, 7*day),
	} {
		if up := o.Up[job]; up < atLeast {
			t.Errorf("%s ran for %s of %s that the machine was on, want %s", job, up, o.Alone-o.Off, atLeast)
		}
	}
}

// TestAbsenceThatFillsTheJournal has more happen than there is room for. What is dropped
// is counted, and is of low priority; nothing stops for it.
func TestAbsenceThatFillsTheJournal(t *testing.T) {
	const bound = 64 << 10 // a quarter of it holds the status rows of these days, which are never dropped
	o := mustReturn(t, virtual.Absence{
		Seed: 2, Days: 12, Together: 5 * time.Minute, FailEvery: 20 * time.Minute, BackoffCap: 30 * time.Minute, JournalMaxBytes: bound,
	})
	if o.Dropped < 1000 || o.JournalBytes > bound {
		t.Errorf("%d rows dropped, %d bytes held of %d", o.Dropped, o.JournalBytes, bound)
	}
	tasksRan(t, o)
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

// wallClock is the time outside of bubbles, where package time does not look.
func wallClock() func() time.Duration {
	now := func() time.Duration {
		var tv syscall.Timeval
		if err := syscall.Gettimeofday(&tv); err != nil {
			return 0
		}
		return time.Duration(tv.Nano())
	}
	began := now()
	return func() time.Duration { return now() - began }
}
