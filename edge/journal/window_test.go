package journal_test

import (
	"context"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

var nightly = []syncproto.DesiredWindow{{Cron: "0 2 * * *", Duration: time.Hour, TimeZone: "Europe/Oslo"}}

// The windows of a stop stay, also if the allocation is delivered again, until a stop without windows arrives.
func TestStopsInWindowsAreKept(t *testing.T) {
	ctx := context.Background()
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	run := []syncproto.DesiredAlloc{{ID: allocID(1), JobID: "shop", Name: "shop.g[0]"}}
	deliver := func(d syncproto.Desired) {
		t.Helper()
		if _, err := j.PutDesired(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	check := func(windows int, reason string) {
		t.Helper()
		want, err := j.Desired(ctx)
		if err != nil {
			t.Fatal(err)
		}
		a := want.Allocs[allocID(1)]
		if !a.Stop || len(a.Windows) != windows || a.StopReason != reason || a.Alloc.Name != "shop.g[0]" {
			t.Fatalf("%d windows, %q, wanted %d, %q: %+v", len(a.Windows), a.StopReason, windows, reason, a)
		}
		if windows > 0 && a.Windows[0] != (fleet.UpdateWindow{Cron: "0 2 * * *", Duration: time.Hour, TimeZone: "Europe/Oslo"}) {
			t.Fatalf("windows: %+v", a.Windows)
		}
	}
	stop := func(reason string, windows []syncproto.DesiredWindow) []syncproto.DesiredStop {
		return []syncproto.DesiredStop{{ID: allocID(1), Reason: reason, Windows: windows}}
	}
	deliver(syncproto.Desired{Index: 1, Run: run})
	deliver(syncproto.Desired{Index: 2, Stop: stop("version 2", nightly)})
	check(1, "version 2")
	mustClose(t, j)
	m.rebootMachine(boot2, time.Unix(0, 0))
	j = mustOpen(t, m.journalConfig(path))
	check(1, "version 2")
	deliver(syncproto.Desired{Index: 3, Full: true, Run: run, Stop: stop("version 2", nightly)})
	check(1, "version 2")
	deliver(syncproto.Desired{Index: 4, Stop: stop("the job was stopped", nil)})
	check(0, "the job was stopped")
	deliver(syncproto.Desired{Index: 5, Stop: stop("version 3", nightly)})
	check(0, "the job was stopped")
}

// Skipping the shutdown_delay survives a reboot, and nothing later takes it back.
func TestStopsWithoutTheirDelayAreKept(t *testing.T) {
	ctx := context.Background()
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	run := []syncproto.DesiredAlloc{{ID: allocID(1), Name: "shop.g[0]"}, {ID: allocID(2), Name: "shop.g[1]"}}
	deliver := func(index fleet.Index, id fleet.AllocID, noDelay bool, windows []syncproto.DesiredWindow) {
		t.Helper()
		d := syncproto.Desired{Index: index, Run: run, Stop: []syncproto.DesiredStop{{ID: id, Reason: "r", NoDelay: noDelay, Windows: windows}}}
		if _, err := j.PutDesired(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	check := func(first, second bool) {
		t.Helper()
		want, err := j.Desired(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := want.Allocs[allocID(1)], want.Allocs[allocID(2)]; a.NoDelay != first || b.NoDelay != second {
			t.Fatalf("without delay: %t, %t; wanted %t, %t", a.NoDelay, b.NoDelay, first, second)
		}
	}
	deliver(1, allocID(1), false, nil)
	check(false, false)
	deliver(2, allocID(1), true, nil)
	check(true, false)
	mustClose(t, j)
	m.rebootMachine(boot2, time.Unix(0, 0))
	j = mustOpen(t, m.journalConfig(path))
	check(true, false)
	deliver(3, allocID(1), false, nil)
	deliver(4, allocID(2), true, nightly)
	check(true, true)
	if err := j.Stop(ctx, syncproto.DesiredStop{ID: allocID(2), Reason: "its window is open"}); err != nil { // as the edge itself begins it
		t.Fatal(err)
	}
	check(true, true)
}

// The time by the hub's clock is known until the next boot.
func TestHubNow(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	hub := m.wall.Add(time.Hour)
	j := mustOpen(t, m.journalConfig(path))
	check := func(j *journal.Journal, want time.Time) {
		t.Helper()
		switch now, ok := j.HubNow(); {
		case ok != !want.IsZero():
			t.Fatalf("known %t: %s", ok, now)
		case ok && !now.Equal(want):
			t.Fatalf("it is %s, not %s", now, want)
		}
	}
	check(j, time.Time{})
	m.advanceClocks(time.Minute)
	if err := noteHeartbeat(j, 0, hub.UnixNano()); err != nil {
		t.Fatal(err)
	}
	m.advanceClocks(time.Minute)
	m.wall = time.Unix(0, 0) // the machine's own clock is reset
	check(j, hub.Add(time.Minute))
	mustClose(t, j)
	m.advanceClocks(time.Minute) // the agent is down, the machine is not
	j = mustOpen(t, m.journalConfig(path))
	check(j, hub.Add(2*time.Minute))
	mustClose(t, j)
	m.rebootMachine(boot2, time.Unix(0, 0))
	m.advanceClocks(time.Minute)
	j = mustOpen(t, m.journalConfig(path))
	check(j, time.Time{}) // how long it was off is not known
	if err := noteHeartbeat(j, 0, hub.Add(-time.Hour).UnixNano()); err != nil {
		t.Fatal(err)
	}
	m.advanceClocks(time.Second)
	check(j, hub.Add(-time.Hour).Add(time.Second)) // a corrected clock of a hub is accepted
}
