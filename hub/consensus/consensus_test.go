package consensus_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"

	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/state"
)

func TestNewRefuses(t *testing.T) {
	if _, err := consensus.New(consensus.Config{}); err == nil {
		t.Fatal("an empty configuration was taken")
	}
	c := newCluster(t, nil)
	one := c.mustStart("one", "", true)
	_, err := consensus.New(consensus.Config{ID: "x", Addr: "x", Dir: "x", Store: one.store,
		Dial: nil, HeartbeatTimeout: time.Second, LeaderLease: 2 * time.Second})
	if err == nil {
		t.Fatal("no dialer was taken")
	}
}

func TestOneHub(t *testing.T) {
	c := newCluster(t, nil)
	one := c.mustStart("one", "", true)
	index := one.mustApply(t, "a")
	if next := one.mustApply(t, "b"); next <= index {
		t.Fatalf("index %d after %d", next, index)
	}
	if leads := <-one.leads; !leads {
		t.Fatal("the first signal is that it does not lead")
	}
	if err := one.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := one.Apply(t.Context(), state.ClusterInit{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := one.Apply(t.Context(), state.ClusterInit{})
	if err != nil || again.Err == nil || again.Index <= res.Index {
		t.Fatalf("a refusal is no error of Apply: %+v, %v", again, err)
	}
	stats := one.Stats()
	if got := stats.Commands[state.KindOf(state.Pool{})]; got.Entries != 2 || got.Bytes == 0 {
		t.Errorf("counted %+v", got)
	}
	if stats.LogBytes == 0 || stats.AppliedIndex < uint64(index) || stats.Term == 0 || stats.LeaderChanges != 1 {
		t.Errorf("stats %+v", stats)
	}
}

func TestThreeHubs(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	want := []state.HubPeer{{ID: "one", Addr: one.addr, Voter: true}, {ID: "three", Addr: three.addr, Voter: true}, {ID: "two", Addr: two.addr, Voter: true}}
	mustSoon(t, func() error {
		if peers, err := two.Peers(); err != nil || !slices.Equal(peers, want) {
			return fmt.Errorf("peers %+v, %w", peers, err)
		}
		return nil
	})
	for i, h := range []*hub{one, two, three} { // followers forward, and read their own writes
		h.mustApply(t, fmt.Sprintf("from-%d", i))
	}
	mustHave(t, "from-2", one, two, three)
	for _, h := range []*hub{two, three} {
		if err := h.Barrier(t.Context()); fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Errorf("a barrier on a follower: %v", err)
		}
		cmd, err := state.Encode(pool("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.ApplyEncoded(t.Context(), cmd); fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Errorf("a forwarded command on a follower: %v", err)
		}
	}
	res, err := two.Apply(t.Context(), state.ClusterInit{})
	if err != nil || res.Err != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err = two.Apply(t.Context(), state.ClusterInit{}); err != nil || res.Err == nil {
		t.Fatalf("a refusal does not travel: %+v, %v", res, err)
	}
}

func TestLeaderLoss(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	one.mustApply(t, "before")
	one.cut()
	start := time.Now()
	leader := c.mustLeader(two, three)
	follower := two
	if leader == two {
		follower = three
	}
	follower.mustApply(t, "after")
	t.Logf("service is back after %s", time.Since(start))
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("service is back after %s only", d)
	}
	mustHave(t, "before", two, three)
	// Who was cut off steps down and says that nothing is surely committed.
	mustSoon(t, func() error {
		if _, ok := one.Leads(); ok {
			return errors.New("a leader that reaches nobody leads on")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := one.Apply(ctx, pool("lost"))
	if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeUnavailable || e.Hint == "" {
		t.Fatalf("got %+v", e)
	}
	one.stop()
	if lead, last := <-one.leads, <-one.leads; !lead || last {
		t.Fatalf("signals %t, %t", lead, last)
	}

	back := c.mustStart("one", one.addr, false)
	mustHave(t, "after", back)
	if back.hasPool("lost") {
		t.Fatal("what was refused is there")
	}
}

func TestALeaderThatStopsHandsOver(t *testing.T) {
	const heartbeat = 4 * time.Second
	c := newCluster(t, func(cfg *consensus.Config) { cfg.HeartbeatTimeout, cfg.ElectionTimeout = heartbeat, heartbeat })
	one, two, three := c.mustThree()
	one.mustApply(t, "before")
	start := time.Now()
	c.mustLeader(one, two, three).stop()
	rest := slices.DeleteFunc([]*hub{one, two, three}, func(h *hub) bool {
		select {
		case <-h.ended:
			return true
		default:
			return false
		}
	})
	c.mustLeader(rest...)
	if d := time.Since(start); d > heartbeat*3/4 {
		t.Errorf("the others led after %s: they waited for its silence", d)
	}
	rest[0].mustApply(t, "after")
	mustHave(t, "before", rest...)
}

// What a hub decided as the leader does not reach the log through another one: it
// may have been asleep, and what it decided on may be long gone.
func TestDecideOnTheLeaderAlone(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	hubs := []*hub{one, two, three}
	leader := c.mustLeader(hubs...)
	for _, h := range hubs {
		if h == leader {
			continue
		}
		if _, err := h.Decide(t.Context(), pool("decided by "+string(h.id))); fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Errorf("%s, which does not lead, decided: %v", h.id, err)
		}
	}
	mustSoon(t, func() error {
		_, err := c.mustLeader(hubs...).Decide(t.Context(), pool("decided"))
		return err
	})
	mustHave(t, "decided", hubs...)
	for _, h := range hubs {
		if h != leader && one.hasPool("decided by "+string(h.id)) {
			t.Errorf("what %s decided is there", h.id)
		}
	}
}

func TestRestartFromDisk(t *testing.T) {
	c := newCluster(t, nil)
	hubs := map[fleet.HubID]*hub{}
	hubs["one"], hubs["two"], hubs["three"] = c.mustThree()
	for i := range 20 {
		hubs["two"].mustApply(t, fmt.Sprintf("p%d", i))
	}
	term := hubs["one"].Term()
	for _, h := range hubs {
		h.stop()
		if h.err != nil {
			t.Fatalf("%s ended with %v", h.id, h.err)
		}
	}
	for id, h := range hubs {
		hubs[id] = c.mustStart(id, h.addr, true) // bootstrapping where there is a log does nothing
	}
	mustHave(t, "p19", hubs["one"], hubs["two"], hubs["three"])
	hubs["three"].mustApply(t, "again")
	if now := hubs["one"].Term(); now <= term {
		t.Errorf("term %d after %d", now, term)
	}
}

func TestALaggingHubGetsTheSnapshot(t *testing.T) {
	c := newCluster(t, func(cfg *consensus.Config) {
		cfg.SnapshotInterval, cfg.SnapshotBytes, cfg.TrailingLogs = 50*time.Millisecond, 448<<10, 1
		cfg.SegmentBytes = 1 << 20
	})
	one, two, three := c.mustThree()
	three.stop()
	// The log gives back whole files only, so that it takes more than one of them. What
	// raft allows for the way of a snapshot is by its size: it must not be deflated to
	// a thousandth of what has to be read back.
	random := rand.New(rand.NewPCG(1, 2))
	const n = 24
	name := func(i int) string { return fmt.Sprintf("p%d", i) }
	for i := range n {
		var bulk strings.Builder
		for bulk.Len() < 64<<10 {
			bulk.WriteString(strconv.FormatUint(random.Uint64(), 36))
		}
		p := fleet.Pool{Name: name(i), Description: bulk.String()}
		one.mustApplyCommand(t, p.Name, state.Pool{Pool: p})
	}
	leader := c.mustLeader(one, two)
	mustSoon(t, func() error {
		if s := leader.Stats(); s.SnapshotIndex < n*3/4 {
			return fmt.Errorf("no snapshot: %+v", s)
		}
		return nil
	})
	back := c.mustStart("three", three.addr, false)
	mustHave(t, name(n-1), back)
	if got := back.Stats(); got.Commands[state.KindOf(state.Pool{})].Entries >= n || got.SnapshotBytes == 0 {
		t.Fatalf("it applied every entry: %+v", got)
	}
	for i := range n {
		if !back.hasPool(name(i)) {
			t.Fatalf("entry %d is missing", i)
		}
	}
	back.mustApply(t, "after")
	mustHave(t, "after", one, two)
}

func TestConcurrentAppliesWhileLeadersDie(t *testing.T) {
	c := newCluster(t, nil)
	hubs := map[fleet.HubID]*hub{}
	hubs["one"], hubs["two"], hubs["three"] = c.mustThree()
	var mu sync.Mutex // guards hubs and acknowledged
	acknowledged := map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w, id := range []fleet.HubID{"one", "two", "three", "one", "two", "three"} {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				mu.Lock()
				h := hubs[id]
				mu.Unlock()
				name := fmt.Sprintf("w%d-%d", w, i)
				res, err := h.Apply(ctx, pool(name))
				if err == nil && res.Err == nil {
					mu.Lock()
					acknowledged[name] = true
					mu.Unlock()
				}
			}
		})
	}
	for range 3 {
		mu.Lock()
		all := []*hub{hubs["one"], hubs["two"], hubs["three"]}
		before := len(acknowledged)
		mu.Unlock()
		leader := c.mustLeader(all...)
		leader.cut()
		leader.stop()
		back := c.mustStart(leader.id, leader.addr, false)
		mu.Lock()
		hubs[leader.id] = back
		mu.Unlock()
		mustSoon(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if n := len(acknowledged) - before; n < 50 {
				return fmt.Errorf("%d writes since the leader died: %s", n, describe(all))
			}
			return nil
		})
	}
	cancel()
	wg.Wait()
	one, two, three := hubs["one"], hubs["two"], hubs["three"]
	for name := range acknowledged {
		mustHave(t, name, one, two, three)
	}
	t.Logf("%d acknowledged writes, none lost", len(acknowledged))
}

func TestAnOlderCopyOfTheDirectory(t *testing.T) {
	c := newCluster(t, nil)
	one := c.mustStart("one", "", true)
	one.mustApply(t, "kept")
	one.stop()
	dir := filepath.Join(c.dir, "one")
	if err := os.CopyFS(dir+".copy", os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	one = c.mustStart("one", one.addr, false)
	for i := range 10 {
		one.mustApply(t, fmt.Sprintf("gone-%d", i))
	}
	last, term := one.Stats().LastIndex, one.Term()
	one.stop()

	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".copy", dir)); err != nil {
		t.Fatal(err)
	}
	one = c.mustStart("one", one.addr, false)
	mustHave(t, "kept", one)
	c.mustLeader(one)
	mustSoon(t, func() error { return one.Barrier(t.Context()) })
	if one.hasPool("gone-0") {
		t.Fatal("it knows what was written after the copy")
	}
	if now := one.Stats().LastIndex; now >= last {
		t.Fatalf("index %d did not go back from %d", now, last)
	}
	if now := one.Term(); now > term {
		t.Fatalf("term %d, was %d: an edge could not tell that the hub went back", now, term)
	}
}

func TestAdd(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	leader := c.mustLeader(one, two, three)
	before := leader.Stats().LastIndex
	index, err := leader.Add(t.Context(), state.HubPeer{ID: two.id, Addr: two.addr})
	if err != nil || uint64(index) < before || leader.Stats().LastIndex != before {
		t.Fatalf("adding who is there: %d, %v", index, err)
	}
	if _, err := leader.Add(t.Context(), state.HubPeer{ID: "four", Addr: three.addr}); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Fatalf("an address that is taken: %v", err)
	}
	for _, h := range []*hub{one, two, three} {
		if h == leader {
			continue
		}
		if _, err := h.Add(t.Context(), state.HubPeer{ID: "four", Addr: "127.0.0.1:1"}); fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Fatalf("adding at a follower: %v", err)
		}
	}
}

func TestRemove(t *testing.T) {
	c := newCluster(t, nil)
	one, two, three := c.mustThree()
	leader := c.mustLeader(one, two, three)
	gone := two
	if leader == two {
		gone = three
	}
	if err := leader.Remove(t.Context(), gone.id); err != nil {
		t.Fatal(err)
	}
	if peers, err := leader.Peers(); err != nil || len(peers) != 2 {
		t.Fatalf("peers %+v, %v", peers, err)
	}
	gone.stop()
	leader.mustApply(t, "by two")
}

func TestACommandThatCannotBeReadStopsTheHub(t *testing.T) {
	c := newCluster(t, nil)
	one := c.mustStart("one", "", true)
	one.mustApply(t, "a")
	one.stop()
	dir := filepath.Join(c.dir, "one", "log")
	var meta metadb.BoltMetaDB
	w, err := wal.Open(dir, wal.WithMetaStore(&meta))
	if err != nil {
		t.Fatal(err)
	}
	last, err := w.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	err = w.StoreLog(&raft.Log{Index: last + 1, Term: one.Term(), Type: raft.LogCommand, Data: []byte{0xff, 1, 2, 3}})
	if err := errors.Join(err, w.Close(), meta.Close()); err != nil {
		t.Fatal(err)
	}
	one = c.mustStart("one", one.addr, false)
	select {
	case <-one.ended:
	case <-time.After(testTimeout):
		t.Fatal("it goes on")
	}
	if one.err == nil {
		t.Fatal("it stopped without a reason")
	}
	t.Log(one.err)
	if !one.hasPool("a") {
		t.Fatal("what came before is not applied")
	}
}

func TestForwardedGarbageIsRefused(t *testing.T) {
	c := newCluster(t, nil)
	one := c.mustStart("one", "", true)
	one.mustApply(t, "a")
	for _, cmd := range [][]byte{nil, {0xff, 1, 2, 3}, {byte(state.KindOf(state.Pool{})), 0xff}} {
		if _, err := one.ApplyEncoded(t.Context(), cmd); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%x: %v", cmd, err)
		}
	}
	one.mustApply(t, "b")
}

func TestBootstrapSurvivesACrashInTheMiddle(t *testing.T) {
	c := newCluster(t, nil)
	left := filepath.Join(c.dir, "one.new")
	if err := errors.Join(os.MkdirAll(filepath.Join(left, "log"), 0o700), os.WriteFile(filepath.Join(left, "log", "wal-meta.db"), []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	c.mustStart("one", "", true).mustApply(t, "a")
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("left behind: %v", err)
	}
}

func TestADirectoryThatIsNotWritable(t *testing.T) {
	c := newCluster(t, nil)
	if err := os.WriteFile(filepath.Join(c.dir, "one"), []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := c.mustStart("one", "", false)
	select {
	case <-one.ended:
	case <-time.After(testTimeout):
		t.Fatal("it goes on")
	}
	if one.err == nil {
		t.Fatal("no error")
	}
}

func TestApplyBeforeRunIsUnavailable(t *testing.T) {
	c := newCluster(t, nil)
	alone := c.mustStart("one", "", false) // nobody bootstrapped it
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := alone.Apply(ctx, pool("a"))
	if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeUnavailable || e.Hint == "" {
		t.Fatalf("got %+v", e)
	}
	if _, _, ok := alone.Leader(); ok {
		t.Fatal("there is a leader")
	}
	big := state.Pool{Pool: fleet.Pool{Name: string(make([]byte, consensus.MaxCommand+1))}}
	if _, err := alone.Apply(t.Context(), big); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Fatalf("a command over the bound: %v", err)
	}
}
