package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

func TestDroppableRowsAreCountedAtTheBound(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	cfg := m.journalConfig(path)
	cfg.Paranoid = false
	cfg.MaxBytes = 16 << 10
	j := mustOpen(t, cfg)
	const events, statuses = 200, 100
	for i := range events {
		mustRecord(t, j, taskEvent(1, "t", fleet.TaskRunning, fmt.Sprint(i)))
	}
	dropped := j.Usage().Dropped
	if dropped == 0 || int(dropped) >= events {
		t.Fatalf("%d of %d events were dropped", dropped, events)
	}
	if b := j.Usage().Bytes; b > cfg.MaxBytes {
		t.Fatalf("%d bytes are held, the bound is %d", b, cfg.MaxBytes)
	}
	s, _ := j.State(allocID(1))
	if e := s.TaskStates["t"].Events; e[len(e)-1].Type != fmt.Sprint(events-1) {
		t.Fatal("an event that got no row is missing in the state")
	}
	mustClose(t, j) // the count survives
	j = mustOpen(t, cfg)
	for range statuses {
		mustRecord(t, j, status(1, fleet.ClientRunning))
	}
	var counted uint64
	kinds := map[fleet.TransitionKind]int{}
	for _, tr := range mustReadAll(t, j) {
		kinds[tr.Kind]++
		counted += tr.Dropped
	}
	if kinds[fleet.TransitionAlloc] != statuses || kinds[fleet.TransitionGap] != 1 || counted != dropped || kinds[fleet.TransitionTask]+int(dropped) != events {
		t.Fatalf("rows by kind: %v; dropped %d, counted %d", kinds, dropped, counted)
	}
	// Acknowledged rows make space again.
	j.Acknowledge(j.Head().Last)
	mustRecord(t, j, status(1, fleet.ClientRunning))
	mustRecord(t, j, taskEvent(1, "t", fleet.TaskRunning, "room"))
	ts := mustReadAll(t, j)
	if last := ts[len(ts)-1]; last.Event == nil || last.Event.Type != "room" {
		t.Fatalf("the newest row is %+v", last)
	}
	if h := j.Head(); h.First == 1 || h.Acknowledged < h.First-1 {
		t.Fatalf("head after a compaction: %+v", h)
	}
}

// The row that says after an absence that a task runs is stored beyond the bound for events: the start
// itself may have been dropped, and nothing repeats it.
func TestWhatRunsIsToldAtTheBound(t *testing.T) {
	cfg := newMachine().journalConfig(dbPath(t))
	cfg.Paranoid = false
	cfg.MaxBytes = 16 << 10
	j := mustOpen(t, cfg)
	for range 200 {
		mustRecord(t, j, taskEvent(1, "t", fleet.TaskRunning, fleet.TaskStarted))
	}
	dropped := j.Usage().Dropped
	mustRecord(t, j, taskEvent(1, "t", fleet.TaskRunning, fleet.TaskReconnected))
	ts := mustReadAll(t, j)
	if last := ts[len(ts)-1]; dropped == 0 || j.Usage().Dropped != dropped || last.Event.Type != fleet.TaskReconnected {
		t.Fatalf("%d rows were dropped, then %d; the newest row is %+v", dropped, j.Usage().Dropped, last)
	}
}

// An agent that is restarted again and again without a hub does not fill the disk.
func TestAgentsThatStartOverStayWithinTheBound(t *testing.T) {
	cfg := newMachine().journalConfig(dbPath(t))
	cfg.Paranoid = false
	cfg.MaxBytes = 16 << 10
	j := mustOpen(t, cfg)
	for range 300 {
		mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "agent started, version test"})
	}
	if u := j.Usage(); u.Bytes > cfg.MaxBytes || u.Dropped == 0 {
		t.Fatalf("%d bytes are held, %d rows dropped; the bound is %d", u.Bytes, u.Dropped, cfg.MaxBytes)
	}
}

func TestAcknowledgedRowsGoAfterTheRetention(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	cfg := m.journalConfig(path)
	cfg.Retention = time.Hour
	cfg.CheckpointEvery = 10 * time.Millisecond // also how often the writer checks
	j := mustOpen(t, cfg)
	mustRecord(t, j, status(1, fleet.ClientPending), status(1, fleet.ClientRunning), status(2, fleet.ClientPending))
	j.Acknowledge(2)
	m.advanceClocks(2 * time.Hour)
	mustWait(t, "rows 1 and 2 compacted", func() (bool, string) {
		h := j.Head()
		return h.First == 3, fmt.Sprintf("%+v", h)
	})
	mustClose(t, j)
	j = mustOpen(t, cfg)
	if h := j.Head(); h.First != 3 || h.Last != 3 || h.Acknowledged != 2 {
		t.Fatalf("head: %+v", h)
	}
	mustReadAll(t, j)
	if s, ok := j.State(allocID(1)); !ok || s.ClientStatus != fleet.ClientRunning {
		t.Fatalf("the state of a compacted allocation: %+v", s)
	}
	first, _, rows, err := j.Rows(context.Background(), 1, 10, 1000)
	if err != nil || first != 3 || len(rows) != 1 {
		t.Fatalf("rows from 1: first %d, %d rows, %v", first, len(rows), err)
	}
	mustRecord(t, j, status(2, fleet.ClientRunning))
}

// An idle journal writes only the time. SQLite's log does not grow by it: a longer file costs an idle machine's flash
// twice as many blocks.
func TestIdleJournalDoesNotGrow(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	cfg := m.journalConfig(path)
	cfg.CheckpointEvery = 10 * time.Millisecond // also how often the writer checks
	var times atomic.Int64
	cfg.Step = func(label string) error {
		if label == journal.StepWriteCheckpoint {
			times.Add(1)
		}
		return nil
	}
	j := mustOpen(t, cfg)
	for range 32 {
		mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "agent started, version test"})
	}
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	for i := range 64 {
		want := times.Load() + 1
		m.advanceClocks(time.Second)
		if i%2 == 0 { // connected: the time is written with an acknowledged heartbeat
			if err := noteHeartbeat(j, 0, m.wall.UnixNano()); err != nil {
				t.Fatal(err)
			}
		}
		mustWait(t, "the time written", func() (bool, string) { return times.Load() >= want, fmt.Sprintf("%d of %d times", times.Load(), want) })
		if after := size(); after > before+2*(24+4096) {
			t.Fatalf("the log has %d bytes after the time was written %d times, before it had %d", after, i+1, before)
		}
	}
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "agent started, version test"})
}

func mustWait(t testing.TB, what string, done func() (bool, string)) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := done()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s: %s", what, state)
		}
	}
}

// mustCopyDatabase copies the files of an open journal, as a crash leaves them.
func mustCopyDatabase(t testing.TB, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", ".seen"} {
		mustWrite(t, to+suffix, mustRead(t, from+suffix))
	}
}

// The next commit writes a heartbeat that was not written on its own, so that a crash after it does not
// lose the heartbeat.
func TestBeatGoesAlongWithACommit(t *testing.T) {
	m := newMachine()
	cfg, crashed := m.journalConfig(dbPath(t)), m.journalConfig(dbPath(t))
	j := mustOpen(t, cfg)
	for range 2 { // the first one is written at once
		m.advanceClocks(30 * time.Second)
		if err := noteHeartbeat(j, 0, m.wall.UnixNano()); err != nil {
			t.Fatal(err)
		}
	}
	m.advanceClocks(time.Second)
	mustRecord(t, j, status(1, fleet.ClientPending))
	mustCopyDatabase(t, cfg.Path, crashed.Path)
	if away := mustOpen(t, crashed).Away(); away != time.Second {
		t.Errorf("the last beat was %s ago, want 1s", away)
	}
}

// A heartbeat that is due to be written is in the next commit, and needs none of its own then.
func TestADueBeatNeedsNoCommitOfItsOwn(t *testing.T) {
	m, commits := newMachine(), 0
	cfg, crashed := m.journalConfig(dbPath(t)), m.journalConfig(dbPath(t))
	cfg.Step = func(label string) error {
		if label == journal.StepCommit {
			commits++
		}
		return nil
	}
	j := mustOpen(t, cfg)
	mustRecord(t, j, status(1, fleet.ClientPending))
	for want := 2; want <= 3; want++ { // the first heartbeat, and one after the interval
		j.NoteHeartbeat(0, m.wall.UnixNano())
		m.advanceClocks(time.Second)
		mustRecord(t, j, status(want, fleet.ClientPending))
		if err := j.SaveHeartbeat(t.Context()); err != nil || commits != want {
			t.Errorf("%d commits (%v), want %d", commits, err, want)
		}
		m.advanceClocks(journal.DefaultCheckpointEvery)
	}
	mustCopyDatabase(t, cfg.Path, crashed.Path)
	if away := mustOpen(t, crashed).Away(); away != journal.DefaultCheckpointEvery+time.Second {
		t.Errorf("the last beat was %s ago, want the interval and 1s", away)
	}
	j.NoteHeartbeat(0, m.wall.UnixNano())
	if err := j.SaveHeartbeat(t.Context()); err != nil || commits != 4 {
		t.Errorf("%d commits (%v), want 4: no other one has written the heartbeat", commits, err)
	}
	m.advanceClocks(journal.DefaultCheckpointEvery)
	j.Acknowledge(1)
	if err := j.SaveHeartbeat(t.Context()); err != nil || commits != 4 {
		t.Errorf("%d commits (%v), want 4: the heartbeat is written already", commits, err)
	}
}

func TestTimeAcrossReboots(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	hub := m.wall.Add(time.Hour) // the hub's clock is an hour ahead
	j := mustOpen(t, m.journalConfig(path))
	if j.Away() != 0 || j.TimeFloor() != 0 {
		t.Fatalf("before the first beat: away %s, floor %d", j.Away(), j.TimeFloor())
	}
	if err := noteHeartbeat(j, 0, hub.UnixNano()); err != nil {
		t.Fatal(err)
	}
	check := func(j *journal.Journal, away time.Duration) {
		t.Helper()
		if j.Away() != away {
			t.Fatalf("away is %s, not %s", j.Away(), away)
		}
		if floor := time.Unix(0, j.TimeFloor()); !floor.Equal(hub.Add(away)) {
			t.Fatalf("the floor is %s, not %s", floor, hub.Add(away))
		}
	}
	m.advanceClocks(time.Minute)
	check(j, time.Minute)
	mustClose(t, j)
	m.advanceClocks(time.Minute) // the agent is down, the machine is not
	j = mustOpen(t, m.journalConfig(path))
	check(j, 2*time.Minute)
	m.advanceClocks(time.Minute)
	mustRecord(t, j, status(1, fleet.ClientRunning)) // a row also stores the time
	mustClose(t, j)
	m.rebootMachine(boot2, time.Unix(0, 0)) // the wall clock is reset
	m.advanceClocks(30 * time.Second)
	j = mustOpen(t, m.journalConfig(path))
	check(j, 3*time.Minute+30*time.Second)
	if ts := mustReadAll(t, j); ts[0].Wall < 0 {
		t.Fatalf("rows: %+v", ts)
	}
	// A hub's clock that goes back does not lower the floor.
	if err := noteHeartbeat(j, 0, hub.Add(-time.Hour).UnixNano()); err != nil {
		t.Fatal(err)
	}
	if j.Away() != 0 || j.TimeFloor() < hub.UnixNano() {
		t.Fatalf("away %s, floor %s", j.Away(), time.Unix(0, j.TimeFloor()))
	}
	// A heartbeat that was answered late was sent before.
	if err := noteHeartbeat(j, 7*time.Second, hub.UnixNano()); err != nil {
		t.Fatal(err)
	}
	if j.Away() != 7*time.Second {
		t.Fatalf("away %s, after a heartbeat that was answered after 7s", j.Away())
	}
}

// TestTimeUntilTheEndOfABootCounts turns a machine off a minute after the last beat. That minute counts after the next
// boot: the close of the journal has stored it or, if the power was lost, the newest row has.
func TestTimeUntilTheEndOfABootCounts(t *testing.T) {
	for name, powerLost := range map[string]bool{"closed": false, "power lost": true} {
		t.Run(name, func(t *testing.T) {
			m, path := newMachine(), dbPath(t)
			cfg := m.journalConfig(path)
			var lost atomic.Bool
			cfg.Step = func(label string) error {
				if lost.Load() && label == journal.StepWriteCheckpoint {
					return errors.New("power lost")
				}
				return nil
			}
			j := mustOpen(t, cfg)
			if err := noteHeartbeat(j, 0, m.wall.UnixNano()); err != nil {
				t.Fatal(err)
			}
			m.advanceClocks(time.Minute)
			lost.Store(powerLost)
			if powerLost {
				mustRecord(t, j, status(1, fleet.ClientRunning))
			}
			mustClose(t, j)
			m.rebootMachine(boot2, time.Unix(0, 0))
			m.advanceClocks(30 * time.Second)
			j = mustOpen(t, m.journalConfig(path))
			defer mustClose(t, j)
			if away := j.Away(); away != 90*time.Second {
				t.Errorf("away is %s, want 1m30s", away)
			}
		})
	}
}

// TestALossOfPowerTakesNoTimeFromADeadline loses the power twice, each time shortly before the journal would have written
// the time. AwayAtMost counts all that ran, and at most the interval of the writes too much for each loss.
func TestALossOfPowerTakesNoTimeFromADeadline(t *testing.T) {
	const interval, ran = 72 * time.Second, 70 * time.Second
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	j.SetCheckpointInterval(interval)
	if err := noteHeartbeat(j, 0, m.wall.UnixNano()); err != nil {
		t.Fatal(err)
	}
	away := time.Duration(0)
	for i, boot := range []fleet.BootID{boot2, "6d4f0cfe-53b8-4b5b-9a0a-000000000003"} {
		m.advanceClocks(ran)
		away += ran
		crashed := dbPath(t)
		mustCopyDatabase(t, path, crashed)
		path = crashed
		m.rebootMachine(boot, time.Unix(0, 0))
		j = mustOpen(t, m.journalConfig(path))
		if counted := j.Away(); counted >= away {
			t.Errorf("loss %d: %s count, and %s ran: nothing was lost", i+1, counted, away)
		}
		if most := j.AwayAtMost(); most < away || most > away+time.Duration(i+1)*(interval-ran) {
			t.Errorf("loss %d: at most %s away, and it were %s", i+1, most, away)
		}
		mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAgent, Message: "agent started"}) // also writes the time
		j.SetCheckpointInterval(interval)
	}
	mustClose(t, j)
	if j = mustOpen(t, m.journalConfig(path)); j.AwayAtMost() < away {
		t.Errorf("after a close: at most %s away, and it were %s", j.AwayAtMost(), away)
	}
	if err := noteHeartbeat(j, 0, m.wall.UnixNano()); err != nil {
		t.Fatal(err)
	}
	if most := j.AwayAtMost(); most != 0 {
		t.Errorf("after a heartbeat: at most %s away", most)
	}
}

// TestTheTimeIsWrittenAsOftenAsItWasPromised makes the interval longer: the next write is still due by the interval that the
// last one promised.
func TestTheTimeIsWrittenAsOftenAsItWasPromised(t *testing.T) {
	m := newMachine()
	cfg := m.journalConfig(dbPath(t))
	var times atomic.Int32
	cfg.Step = func(label string) error {
		if label == journal.StepWriteCheckpoint {
			times.Add(1)
		}
		return nil
	}
	j := mustOpen(t, cfg)
	j.SetCheckpointInterval(20 * time.Millisecond)
	if err := noteHeartbeat(j, 0, m.wall.UnixNano()); err != nil {
		t.Fatal(err)
	}
	for _, interval := range []time.Duration{10 * time.Minute, 20 * time.Millisecond} {
		before := times.Load()
		m.advanceClocks(time.Second)
		mustWait(t, "the time written", func() (bool, string) { return times.Load() > before, "it is not" })
		j.SetCheckpointInterval(interval)
	}
}

// TestUpkeepNeedsNoWrite leaves a journal alone: it stores the time by itself, and drops acknowledged rows that take
// more than half of its room.
func TestUpkeepNeedsNoWrite(t *testing.T) {
	m := newMachine()
	cfg := m.journalConfig(dbPath(t))
	cfg.CheckpointEvery = 10 * time.Millisecond // also how often the writer checks
	cfg.Paranoid, cfg.MaxBytes = false, 16<<10
	var stored atomic.Int64
	cfg.Step = func(label string) error {
		if label == journal.StepWriteCheckpoint {
			stored.Add(1)
		}
		return nil
	}
	j := mustOpen(t, cfg)
	defer mustClose(t, j)
	for j.Usage().Bytes < cfg.MaxBytes*2/3 {
		mustRecord(t, j, status(1, fleet.ClientRunning))
	}
	before := stored.Load()
	m.advanceClocks(time.Minute)
	mustWait(t, "the time to be stored", func() (bool, string) { return stored.Load() > before, "nothing was stored" })
	j.Acknowledge(j.Head().Last)
	mustWait(t, "acknowledged rows to go", func() (bool, string) {
		u := j.Usage()
		return u.Bytes <= cfg.MaxBytes/2, fmt.Sprintf("%+v", u)
	})
}

func TestRelativeMonoGoesOn(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	cfg := m.journalConfig(path)
	cfg.MonoRelative = true
	j := mustOpen(t, cfg)
	m.advanceClocks(time.Minute)
	if j.Mono() != time.Minute {
		t.Fatalf("the first life is at %s", j.Mono())
	}
	mustClose(t, j)
	m.mu.Lock()
	m.mono = 0 // another process in the same boot
	m.mu.Unlock()
	j = mustOpen(t, cfg)
	m.advanceClocks(time.Second)
	if j.Mono() != time.Minute+time.Second {
		t.Fatalf("the second life is at %s", j.Mono())
	}
}

func TestDesiredIsJournaled(t *testing.T) {
	ctx := context.Background()
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	d := delivery(7)
	bodies := d.Bodies
	d.Bodies = nil
	missing, err := j.PutDesired(ctx, d)
	if err != nil || len(missing) != 1 || missing[0] != "h" {
		t.Fatalf("missing bodies: %q, %v", missing, err)
	}
	if missing, err = j.PutDesired(ctx, syncproto.Desired{Index: 8, Cluster: "c", Bodies: bodies}); err != nil || len(missing) != 0 {
		t.Fatalf("missing bodies: %q, %v", missing, err)
	}
	late := syncproto.DesiredAlloc{ID: allocID(2), JobHash: "h", JobVersion: 9}
	if _, err := j.PutDesired(ctx, syncproto.Desired{Index: 9, Run: []syncproto.DesiredAlloc{late}}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	j = mustOpen(t, m.journalConfig(path))
	want, err := j.Desired(ctx)
	if err != nil || want.Index != 9 || len(want.Allocs) != 3 {
		t.Fatalf("desired: %+v, %v", want, err)
	}
	if a := want.Allocs[allocID(0)]; a.Stop || a.Alloc.Job == nil || a.Alloc.Job.ID != "shop" || a.Mentioned != 7 || a.Alloc.Group() == nil {
		t.Fatalf("allocation 0: %+v", a)
	}
	if a := want.Allocs[allocID(2)]; !a.Stop || a.StopReason != "scaled down" || a.Mentioned != 9 {
		t.Fatalf("allocation 2 was told to stop: %+v", a)
	}
}

func TestRemoveForgetsOnlyWhatEnded(t *testing.T) {
	ctx := context.Background()
	j := mustOpen(t, newMachine().journalConfig(dbPath(t)))
	if _, err := j.PutDesired(ctx, delivery(1)); err != nil {
		t.Fatal(err)
	}
	mustRecord(t, j, status(0, fleet.ClientRunning))
	if err := j.Remove(ctx, allocID(0)); err == nil {
		t.Fatal("a running allocation was removed")
	}
	if err := j.PutHandle(ctx, allocID(0), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	mustRecord(t, j, status(0, fleet.ClientComplete))
	if err := j.Remove(ctx, allocID(0)); err != nil {
		t.Fatal(err)
	}
	want, err := j.Desired(ctx)
	if _, there := want.Allocs[allocID(0)]; there || err != nil {
		t.Fatalf("it is still desired (%v)", err)
	}
	if h, err := j.Handles(ctx, allocID(0)); len(h) != 0 || err != nil {
		t.Fatalf("handles: %v, %v", h, err)
	}
	if s, ok := j.State(allocID(0)); !ok || !s.Terminal() {
		t.Fatal("its state is gone: it could be started again")
	}
}

func TestOldestStatesOfRemovedAllocationsGo(t *testing.T) {
	ctx := context.Background()
	cfg := newMachine().journalConfig(dbPath(t))
	cfg.Paranoid = false
	j := mustOpen(t, cfg)
	for i := range 1010 {
		mustRecord(t, j, status(i, fleet.ClientComplete))
	}
	if err := j.Remove(ctx, allocID(1009)); err != nil {
		t.Fatal(err)
	}
	if n := len(j.States()); n != 1000 {
		t.Fatalf("%d states are kept", n)
	}
	if _, ok := j.State(allocID(9)); ok {
		t.Fatal("an old state was kept before a newer one")
	}
}

// The running time of tasks survives a restart of the agent, but not a boot.
func TestSinceWhenTasksRun(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	start := taskEvent(0, "main", fleet.TaskRunning, fleet.TaskStarted)
	start.TaskState.RunningFor = 10 * time.Second
	mustRecord(t, j, start, taskEvent(0, "gone", fleet.TaskRunning, fleet.TaskStarted), taskEvent(0, "gone", fleet.TaskDead, fleet.TaskTerminated))
	m.advanceClocks(time.Hour)
	mustClose(t, j)
	j = mustOpen(t, m.journalConfig(path))
	if s, _ := j.State(allocID(0)); len(s.Since) != 1 || s.Since["main"] != 50*time.Second {
		t.Errorf("since: %v", s.Since)
	}
	seen := 0
	err := j.PutLink(context.Background(), journal.Link{Rejoined: true}, func(states map[fleet.AllocID]journal.State) []fleet.Transition {
		seen = len(states)
		return []fleet.Transition{taskEvent(0, "main", fleet.TaskRunning, fleet.TaskReconnected)}
	}, fleet.Transition{Kind: fleet.TransitionReconnect})
	if ts := mustReadAll(t, j); err != nil || seen != 1 || len(ts) != 5 || ts[4].Event.Type != fleet.TaskReconnected {
		t.Errorf("rows behind the link's: %v, %+v", err, ts)
	}
	mustClose(t, j)
	m.rebootMachine(boot2, m.wall)
	j = mustOpen(t, m.journalConfig(path))
	mustRecord(t, j, status(0, fleet.ClientPending))
	if s, _ := j.State(allocID(0)); len(s.Since) != 0 || len(s.TaskStates) != 2 {
		t.Errorf("since, after a boot: %v, with the tasks %v", s.Since, s.TaskStates)
	}
}

func TestLinkAndItsRowsAreOneCommit(t *testing.T) {
	ctx := context.Background()
	m, path := newMachine(), dbPath(t)
	cfg := m.journalConfig(path)
	fail := errors.New("no")
	cfg.Step = func(label string) error {
		if label == journal.StepInsertRow {
			return fail
		}
		return nil
	}
	j := mustOpen(t, cfg)
	away := fleet.Transition{Kind: fleet.TransitionDisconnect}
	if err := j.PutLink(ctx, journal.Link{Session: 2, Disconnected: true}, nil, away); !errors.Is(err, fail) {
		t.Fatalf("put link: %v", err)
	}
	if l := j.Link(); l.Session != 0 {
		t.Fatalf("half of it was kept: %+v", l)
	}
	if err := j.PutLink(ctx, journal.Link{Session: 3, Hubs: []string{"a:1"}}, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	j = mustOpen(t, m.journalConfig(path))
	if l := j.Link(); l.Session != 3 || len(l.Hubs) != 1 {
		t.Fatalf("link: %+v", l)
	}
}
