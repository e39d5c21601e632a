package prefetch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/edge/prefetch"
	"skerry/fleet"
	"skerry/syncproto"
)

// fakeJournal is a Journal in memory.
type fakeJournal struct {
	mu      sync.Mutex
	handles map[string][]byte
	rows    []fleet.Transition
}

func (j *fakeJournal) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if handle == nil {
		delete(j.handles, key)
	} else {
		j.handles[key] = handle
	}
	j.rows = append(j.rows, ts...)
	return nil
}

func (j *fakeJournal) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.handles), nil
}

// fakeContents are Contents in memory.
type fakeContents struct {
	mu     sync.Mutex
	kept   map[string]bool
	fail   error
	fetch  []string      // versions that were asked for
	hold   chan struct{} // Fetch waits for it, or for its context; nil: not
	ending int           // fetches that ended with their context
}

func (c *fakeContents) Fetch(ctx context.Context, owner string, job *fleet.Job) (string, error) {
	c.mu.Lock()
	c.kept[owner] = true
	c.fetch = append(c.fetch, job.Name)
	fail, hold := c.fail, c.hold
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			c.mu.Lock()
			c.ending++
			c.mu.Unlock()
			return "", ctx.Err()
		}
	}
	return "all of " + job.Name, fail
}

func (c *fakeContents) Release(owner string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, owner)
	return nil
}

func (c *fakeContents) Owners() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.kept))
}

func (c *fakeContents) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// keeperTest is a Keeper that runs.
type keeperTest struct {
	*testing.T
	journal  *fakeJournal
	contents *fakeContents
	keeper   *prefetch.Keeper
	stop     func()
}

func newKeeperTest(t *testing.T) *keeperTest {
	k := &keeperTest{T: t, journal: &fakeJournal{handles: map[string][]byte{}}, contents: &fakeContents{kept: map[string]bool{}}}
	k.run()
	t.Cleanup(func() { k.stop() })
	return k
}

// run starts a Keeper, as a restarted agent does.
func (k *keeperTest) run() {
	k.Helper()
	keeper, err := prefetch.Open(prefetch.Config{
		Journal: k.journal, Contents: k.contents, MinDelay: 5 * time.Millisecond, MaxDelay: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		k.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	var once sync.Once
	k.keeper, k.stop = keeper, func() { once.Do(func() { cancel(); <-ended }) }
}

func (k *keeperTest) accept(w ...syncproto.DesiredPrefetch) {
	k.Helper()
	if err := k.keeper.Accept(k.Context(), w); err != nil {
		k.Fatal(err)
	}
}

// rows are what the edge said: request, state and text.
func (k *keeperTest) rows() []string {
	k.journal.mu.Lock()
	defer k.journal.mu.Unlock()
	var out []string
	for _, r := range k.journal.rows {
		out = append(out, fmt.Sprintf("%s/%d %s: %s", r.Prefetch.ID, r.Prefetch.RequestIndex, r.Prefetch.State, r.Message))
	}
	return out
}

// wantRows waits until the edge has said as much, and compares.
func (k *keeperTest) wantRows(want ...string) {
	k.Helper()
	k.eventually(func() bool { return len(k.rows()) >= len(want) })
	if got := k.rows(); !slices.Equal(got, want) {
		k.Fatalf("rows %q, want %q", got, want)
	}
}

func (k *keeperTest) eventually(done func() bool) {
	k.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !done(); <-tick.C {
		if time.Now().After(deadline) {
			k.Fatalf("not within two minutes; rows %q, kept %q", k.rows(), k.contents.Owners())
		}
	}
}

func (k *keeperTest) wantKept(n int) []string {
	k.Helper()
	k.eventually(func() bool { return len(k.contents.Owners()) == n })
	return k.contents.Owners()
}

func wanted(tb testing.TB, id fleet.PrefetchID, version uint64, request fleet.Index) syncproto.DesiredPrefetch {
	tb.Helper()
	name := fmt.Sprint("v", version)
	raw, err := syncproto.EncodeJob(&fleet.Job{ID: "shop", Name: name})
	if err != nil {
		tb.Fatal(err)
	}
	return syncproto.DesiredPrefetch{ID: id, Namespace: "default", JobID: "shop", JobVersion: version, JobHash: name, Job: raw, RequestIndex: request}
}

func TestContentsAreFetchedKeptAndLetGo(t *testing.T) {
	k := newKeeperTest(t)
	k.accept(wanted(t, "p1", 1, 5))
	k.wantRows("p1/5 fetching: ", "p1/5 done: all of v1")
	first := k.wantKept(1)
	later := wanted(t, "p1", 1, 5)
	later.Job = nil // the next session names it again
	k.accept(later)
	k.stop()
	k.run() // a restarted agent looks again and says nothing
	k.eventually(func() bool { k.contents.mu.Lock(); defer k.contents.mu.Unlock(); return len(k.contents.fetch) == 2 })
	k.accept(wanted(t, "p1", 1, 6)) // somebody asks again
	k.wantRows("p1/5 fetching: ", "p1/5 done: all of v1", "p1/6 fetching: ", "p1/6 done: all of v1")
	if got := k.wantKept(1); got[0] != first[0] {
		t.Errorf("the same version is kept for %q and %q", first, got)
	}
	k.accept(wanted(t, "p1", 2, 7), wanted(t, "p2", 2, 7))
	k.eventually(func() bool { return len(k.rows()) == 8 })
	if got := k.wantKept(2); slices.Contains(got, first[0]) {
		t.Errorf("the older version is kept: %q", got)
	}
	end := wanted(t, "p1", 2, 8)
	end.Delete, end.Job = true, nil
	k.accept(end)
	k.eventually(func() bool { return len(k.rows()) == 9 })
	if got := k.rows()[8]; got != "p1/8 : contents of job shop are let go" {
		t.Errorf("it says %q", got)
	}
	k.wantKept(1)
	k.stop()
	if handles, _ := k.journal.Handles(t.Context(), ""); len(handles) != 1 {
		t.Errorf("the journal has %d records", len(handles))
	}
	k.run()
	end.ID, end.RequestIndex = "p3", 9 // that this edge does not know
	k.accept(end)
	k.eventually(func() bool { return len(k.rows()) == 10 })
}

// A failure is said once, with its reason, and tried again, also by a restarted agent.
func TestFailureIsTriedAgain(t *testing.T) {
	k := newKeeperTest(t)
	k.contents.set(func() { k.contents.fail = errors.Join(errors.New("no route"), errors.New("no image")) })
	k.accept(wanted(t, "p1", 1, 5))
	asked := func() int { k.contents.mu.Lock(); defer k.contents.mu.Unlock(); return len(k.contents.fetch) }
	k.eventually(func() bool { return asked() > 3 })
	k.stop()
	said := []string{"p1/5 fetching: ", "p1/5 failed: no route; no image"}
	k.wantRows(said...)
	before := asked()
	k.run()
	k.eventually(func() bool { return asked() > before })
	k.contents.set(func() { k.contents.fail = nil })
	k.wantRows(append(said, "p1/5 done: all of v1")...)
}

// A request of a hub that comes while a fetch runs ends the fetch.
func TestNewerRequestEndsAFetch(t *testing.T) {
	k := newKeeperTest(t)
	k.contents.set(func() { k.contents.hold = make(chan struct{}) })
	k.accept(wanted(t, "p1", 1, 5))
	k.wantRows("p1/5 fetching: ")
	k.eventually(func() bool { k.contents.mu.Lock(); defer k.contents.mu.Unlock(); return len(k.contents.fetch) == 1 })
	k.contents.set(func() { k.contents.hold = nil })
	k.accept(wanted(t, "p1", 2, 6))
	k.wantRows("p1/5 fetching: ", "p1/6 fetching: ", "p1/6 done: all of v2")
	k.contents.set(func() {
		if k.contents.ending != 1 {
			t.Errorf("%d fetches were ended", k.contents.ending)
		}
	})
	k.wantKept(1)
}

func TestWhatCannotBeFetched(t *testing.T) {
	k := newKeeperTest(t)
	bad, none := wanted(t, "p1", 1, 5), wanted(t, "p2", 1, 5)
	bad.Job, none.Job = []byte{0xff}, nil
	k.accept(bad, none, wanted(t, "", 1, 5), wanted(t, "p3", 1, 5))
	k.eventually(func() bool { return len(k.rows()) == 6 })
	got := strings.Join(k.rows(), "\n")
	for _, want := range []string{"p1/5 failed: decode a job", "p2/5 failed: the hub has not sent the job", "p3/5 done"} {
		if !strings.Contains(got, want) {
			t.Errorf("rows without %q:\n%s", want, got)
		}
	}
}

// FuzzRecord opens journals with arbitrary records.
func FuzzRecord(f *testing.F) {
	j := &fakeJournal{handles: map[string][]byte{}}
	cfg := prefetch.Config{Journal: j, Log: slog.New(slog.DiscardHandler)}
	k, err := prefetch.Open(cfg)
	if err != nil {
		f.Fatal(err)
	}
	if err := k.Accept(context.Background(), []syncproto.DesiredPrefetch{wanted(f, "p1", 1, 5)}); err != nil {
		f.Fatal(err)
	}
	for _, raw := range j.handles {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg.Journal = &fakeJournal{handles: map[string][]byte{"prefetch/p1": raw}}
		k, err := prefetch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		end := wanted(t, "p1", 1, 1<<62)
		if err := k.Accept(t.Context(), []syncproto.DesiredPrefetch{end}); err != nil {
			t.Fatal(err)
		}
	})
}
