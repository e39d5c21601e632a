package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

const (
	boot1 = fleet.BootID("11111111-1111-4111-8111-111111111111")
	boot2 = fleet.BootID("22222222-2222-4222-8222-222222222222")
)

// noteHeartbeat notes an acknowledged heartbeat, and saves it if that is due.
func noteHeartbeat(j *journal.Journal, roundTrip time.Duration, hubTime int64) error {
	j.NoteHeartbeat(roundTrip, hubTime)
	return j.SaveHeartbeat(context.Background())
}

func allocID(n int) fleet.AllocID {
	return fleet.AllocID(fmt.Sprintf("a0000000-0000-4000-8000-%012d", n))
}

// machine is a machine whose clocks a test controls.
type machine struct {
	mu   sync.Mutex
	boot fleet.BootID
	mono time.Duration
	wall time.Time
}

func newMachine() *machine {
	return &machine{boot: boot1, mono: time.Minute, wall: time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)}
}

func (m *machine) advanceClocks(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mono += d
	m.wall = m.wall.Add(d)
}

func (m *machine) rebootMachine(id fleet.BootID, wall time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot, m.mono, m.wall = id, 0, wall
}

func (m *machine) journalConfig(path string) journal.Config {
	return journal.Config{
		Path: path, BootID: m.boot, Paranoid: true,
		Now:  func() time.Time { m.mu.Lock(); defer m.mu.Unlock(); return m.wall },
		Mono: func() time.Duration { m.mu.Lock(); defer m.mu.Unlock(); return m.mono },
	}
}

func dbPath(t testing.TB) string { return filepath.Join(t.TempDir(), "journal.db") }

func mustOpen(t testing.TB, cfg journal.Config) *journal.Journal {
	t.Helper()
	j, err := journal.Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func mustClose(t testing.TB, j *journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func mustRecord(t testing.TB, j *journal.Journal, ts ...fleet.Transition) {
	t.Helper()
	if err := j.Record(context.Background(), ts...); err != nil {
		t.Fatalf("record: %v", err)
	}
}

func status(alloc int, s string) fleet.Transition {
	return fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: allocID(alloc), ClientStatus: s}
}

func taskEvent(alloc int, task, state, event string) fleet.Transition {
	return fleet.Transition{
		Kind: fleet.TransitionTask, Alloc: allocID(alloc), Task: task,
		TaskState: &fleet.TaskState{State: state}, Event: &fleet.TaskEvent{Type: event},
	}
}

// mustReadAll reads all rows in small parts, checks the chain, and decodes them.
func mustReadAll(t testing.TB, j *journal.Journal) []fleet.Transition {
	t.Helper()
	h := j.Head()
	var ts []fleet.Transition
	var hash []byte
	for next := h.First; next <= h.Last; {
		first, prev, rows, err := j.Rows(context.Background(), next, 7, 4096)
		if err == nil && first > next { // compacted meanwhile
			ts, next, h = nil, first, j.Head()
			continue
		}
		if err != nil || first != next || len(rows) == 0 {
			t.Fatalf("rows from %d: first %d, %d rows, %v", next, first, len(rows), err)
		}
		if next > h.First && !bytes.Equal(prev, hash) {
			t.Fatalf("rows from %d: the hash before them is %x, not %x", next, prev, hash)
		}
		hash = prev
		for _, r := range rows {
			hash = syncproto.ChainHash(hash, r)
			tr, err := syncproto.DecodeRow(r)
			if err != nil || tr.Seq != next {
				t.Fatalf("row %d: decoded as %d, %v", next, tr.Seq, err)
			}
			ts = append(ts, tr)
			next++
		}
	}
	if h.Last >= h.First && !bytes.Equal(hash, h.ChainHash) {
		t.Fatalf("the head's hash is %x, the chain's %x", h.ChainHash, hash)
	}
	return ts
}

func TestRecordIsNumberedChainedAndKept(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	if h := j.Head(); h.First != 1 || h.Last != 0 || h.Acknowledged != 0 {
		t.Fatalf("head of an empty journal: %+v", h)
	}
	grown := j.Appended()
	mustRecord(t, j, status(1, fleet.ClientPending), taskEvent(1, "web", fleet.TaskPending, fleet.TaskReceived))
	select {
	case <-grown:
	default:
		t.Fatal("Appended did not tell of the rows")
	}
	m.advanceClocks(time.Second)
	mustRecord(t, j, status(1, fleet.ClientRunning))
	mustRecord(t, j, taskEvent(1, "web", fleet.TaskRunning, fleet.TaskStarted))
	check := func(j *journal.Journal) {
		t.Helper()
		ts := mustReadAll(t, j)
		if len(ts) != 4 || ts[2].ClientStatus != fleet.ClientRunning || ts[2].Mono != m.mono || ts[2].BootID != boot1 || ts[2].Wall != m.wall.UnixNano() {
			t.Fatalf("rows: %+v", ts)
		}
		if h := j.Head(); h.Urgent != 3 {
			t.Fatalf("the newest urgent row is %d, not 3", h.Urgent)
		}
		s, ok := j.State(allocID(1))
		if !ok || s.ClientStatus != fleet.ClientRunning || s.Seq != 4 || len(s.TaskStates["web"].Events) != 2 || s.TaskStates["web"].State != fleet.TaskRunning {
			t.Fatalf("state: %+v", s)
		}
	}
	check(j)
	mustClose(t, j)
	j = mustOpen(t, m.journalConfig(path))
	check(j)
	ts, err := j.History(context.Background(), allocID(1), 0)
	if err != nil || len(ts) != 4 {
		t.Fatalf("history: %d rows, %v", len(ts), err)
	}
	if ts, err = j.History(context.Background(), allocID(2), 0); err != nil || len(ts) != 0 {
		t.Fatalf("history of an unknown allocation: %d rows, %v", len(ts), err)
	}
}

func TestConcurrentRecordsKeepTheirOwnOrder(t *testing.T) {
	j := mustOpen(t, newMachine().journalConfig(dbPath(t)))
	const writers, each = 8, 25
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				tr := taskEvent(w, "t", fleet.TaskRunning, fmt.Sprint(i))
				if err := j.Record(context.Background(), tr); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	next := map[fleet.AllocID]int{}
	for _, tr := range mustReadAll(t, j) {
		if want := fmt.Sprint(next[tr.Alloc]); tr.Event.Type != want {
			t.Fatalf("row %d: event %s of %s, want %s", tr.Seq, tr.Event.Type, tr.Alloc, want)
		}
		next[tr.Alloc]++
	}
	if h := j.Head(); h.Last != writers*each {
		t.Fatalf("last row is %d", h.Last)
	}
	for id, s := range j.States() {
		if n := len(s.TaskStates["t"].Events); n != fleet.TaskEventsKept {
			t.Fatalf("%s keeps %d events", id, n)
		}
	}
}

func TestClosedJournalSaysSo(t *testing.T) {
	j := mustOpen(t, newMachine().journalConfig(dbPath(t)))
	mustClose(t, j)
	if err := j.Record(context.Background(), status(1, fleet.ClientPending)); err != journal.ErrClosed {
		t.Fatalf("record: %v", err)
	}
}

// A caller that stops waiting shares no memory with the write or read that goes on: for the race detector.
func TestGivingUpLeavesTheWriterAlone(t *testing.T) {
	giveUp := func() {}
	cfg := newMachine().journalConfig(dbPath(t))
	cfg.Step = func(label string) error {
		if label == journal.StepDesired {
			giveUp()
		}
		return nil
	}
	j := mustOpen(t, cfg)
	for index := fleet.Index(1); index <= 20; index++ {
		ctx, cancel := context.WithCancel(context.Background())
		giveUp = cancel
		if _, err := j.PutDesired(ctx, syncproto.Desired{Index: index}); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		cancel()
		if d, err := j.Desired(context.Background()); err != nil || d.Index != index {
			t.Fatalf("desired %+v, %v, want index %d", d, err, index)
		}
	}
}

// TestHandlesOfSeveralAllocationsShareACommit stores a handle of each of three allocations at once, and reads them back by key.
func TestHandlesOfSeveralAllocationsShareACommit(t *testing.T) {
	ctx := context.Background()
	cfg, commits := newMachine().journalConfig(dbPath(t)), 0
	cfg.Step = func(label string) error {
		if label == journal.StepCommit {
			commits++
		}
		return nil
	}
	j := mustOpen(t, cfg)
	if err := j.PutHandle(ctx, allocID(0), "other", []byte("not asked for")); err != nil {
		t.Fatal(err)
	}
	if err := j.PutHandles(ctx, "k", nil); err != nil {
		t.Fatal(err)
	}
	want := map[fleet.AllocID][]byte{allocID(0): []byte("a"), allocID(1): []byte("b"), allocID(2): []byte("c")}
	if err := j.PutHandles(ctx, "k", want); err != nil || commits != 2 {
		t.Errorf("%d commits (%v), want one for each call that stores something", commits, err)
	}
	mustClose(t, j)
	j = mustOpen(t, cfg)
	check := func() {
		t.Helper()
		if got, err := j.HandlesUnder(ctx, "k"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("handles: %q (%v), want %q", got, err, want)
		}
	}
	check()
	if err := j.Execute(ctx, "UPDATE handles SET handle = x'00' WHERE key = 'k' AND alloc = '"+string(allocID(1))+"'"); err != nil {
		t.Fatal(err)
	}
	delete(want, allocID(1)) // a damaged handle holds up no other
	check()
	if _, err := j.Handles(ctx, allocID(1)); err == nil {
		t.Error("the damaged handle is read")
	}
}
