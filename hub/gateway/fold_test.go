package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/gateway"
	"skerry/hub/state"
	"skerry/syncproto"
)

// recordingApplier is a replicated log at its worst: entries take any time, overtake each
// other, and some fail, with or without having been applied.
type recordingApplier struct {
	tb   testing.TB
	mu   sync.Mutex
	rand *rand.Rand

	applied  map[fleet.NodeID]fleet.Seq
	inFlight map[fleet.NodeID]bool
	entries  int
	most     int // in flight at once
	flying   int
}

func (l *recordingApplier) Apply(_ context.Context, c state.Command) (state.Result, error) {
	u := c.(state.AllocUpdates)
	l.mu.Lock()
	l.flying++
	l.most = max(l.most, l.flying)
	l.checkEntryBounds(u)
	delay, fails, lost := time.Duration(l.rand.IntN(300))*time.Millisecond, l.rand.IntN(4) == 0, l.rand.IntN(2) == 0
	l.mu.Unlock()
	time.Sleep(delay)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying--
	l.entries++
	var res state.Result
	for _, b := range u.Batches {
		l.inFlight[b.NodeID] = false
		if fails && lost {
			continue
		}
		last := b.First + fleet.Seq(len(b.Rows)) - 1
		r := state.BatchResult{Applied: max(l.applied[b.NodeID], last)}
		if b.First > l.applied[b.NodeID]+1 {
			r = state.BatchResult{Code: fleet.CodeGap}
		} else {
			l.applied[b.NodeID] = r.Applied
		}
		res.Updates = append(res.Updates, r)
	}
	if fails {
		return state.Result{}, fleet.Errorf(fleet.CodeTimeout, "it may be committed")
	}
	return res, nil
}

// checkEntryBounds looks at an entry's bounds, and that no node is in two entries at once.
func (l *recordingApplier) checkEntryBounds(u state.AllocUpdates) {
	rows, size := 0, 0
	for _, b := range u.Batches {
		if l.inFlight[b.NodeID] {
			l.tb.Errorf("node %s is in two entries at once", b.NodeID)
		}
		l.inFlight[b.NodeID] = true
		rows += len(b.Rows)
		for _, r := range b.Rows {
			size += len(r)
		}
	}
	if rows > gateway.MaxBatchRows || size > gateway.MaxBatchBytes {
		l.tb.Errorf("an entry of %d rows and %d bytes, at most %d and %d are allowed", rows, size, gateway.MaxBatchRows, gateway.MaxBatchBytes)
	}
}

func TestFolderKeepsOrderAndBounds(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { batchRandomUpdates(t, seed) })
		})
	}
}

func batchRandomUpdates(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	l := &recordingApplier{
		tb: t, rand: rand.New(rand.NewPCG(seed, 2)),
		applied: map[fleet.NodeID]fleet.Seq{}, inFlight: map[fleet.NodeID]bool{},
	}
	f := gateway.NewUpdateBatcher(l)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()

	next := map[fleet.NodeID]fleet.Seq{}
	var mu sync.Mutex
	answered, batches := 0, 300
	for range batches {
		node := fleet.NodeID(fmt.Sprint("n", random.IntN(12)))
		rows := make([][]byte, 1+random.IntN(400))
		for i := range rows {
			rows[i] = make([]byte, 1+random.IntN(1000))
		}
		first := next[node] + 1
		next[node] += fleet.Seq(len(rows))
		last := next[node]
		f.Submit(state.NodeRows{NodeID: node, First: first, Rows: rows}, nil, func(r state.BatchResult, err error) {
			mu.Lock()
			defer mu.Unlock()
			answered++
			if err != nil || r.Code != "" || r.Applied < last {
				t.Errorf("%s up to %d was answered with %+v (%v)", node, last, r, err)
			}
		})
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	}
	time.Sleep(10 * time.Minute) // far more than it takes
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	if answered != batches || f.Waiting() != 0 {
		t.Errorf("%d of %d batches are answered, %d nodes still wait", answered, batches, f.Waiting())
	}
	for node, last := range next {
		if l.applied[node] != last {
			t.Errorf("%s: applied up to %d of %d", node, l.applied[node], last)
		}
	}
	if l.most < 2 {
		t.Error("no two entries were ever on their way at once")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFolderDropsWhatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &recordingApplier{tb: t, rand: rand.New(rand.NewPCG(1, 1)), applied: map[fleet.NodeID]fleet.Seq{}, inFlight: map[fleet.NodeID]bool{}}
		f := gateway.NewUpdateBatcher(l)
		gone := make(chan struct{})
		close(gone)
		answers := make(chan error, 1)
		f.Submit(state.NodeRows{NodeID: "n", First: 1, Rows: [][]byte{{1}}}, gone, func(_ state.BatchResult, err error) { answers <- err })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		if err := <-answers; err == nil {
			t.Error("a batch of a session that is over was applied")
		}
		if l.entries != 0 || f.Waiting() != 0 {
			t.Errorf("%d entries, %d nodes wait; want none", l.entries, f.Waiting())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A node's batches are answered in their order, also while the answer to another node's batch takes long.
func TestBatchesOfANodeAreAnsweredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gateway.NewUpdateBatcher(appliesAll{})
		answered := make(chan int, 2)
		submit := func(node fleet.NodeID, answer func(state.BatchResult, error)) {
			f.Submit(state.NodeRows{NodeID: node, First: 1, Rows: [][]byte{{1}}}, nil, answer)
		}
		submit("slow", func(state.BatchResult, error) { time.Sleep(time.Minute) })
		submit("n", func(state.BatchResult, error) { answered <- 1 })
		submit("n", func(state.BatchResult, error) { answered <- 2 })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		if first, second := <-answered, <-answered; first != 1 || second != 2 {
			t.Errorf("answered %d, then %d", first, second)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// appliesAll applies all batches at once.
type appliesAll struct{}

func (appliesAll) Apply(_ context.Context, c state.Command) (state.Result, error) {
	return state.Result{Updates: make([]state.BatchResult, len(c.(state.AllocUpdates).Batches))}, nil
}

// E8: the batches of many edges become few entries, and each edge hears of its own.
func TestUpdatesAreFolded(t *testing.T) {
	t.Parallel()
	const edges = 40
	h := newHub(t, options{})
	var wires []*testEdge
	for i := range edges {
		w := h.mustDial(t, fleet.NodeID(fmt.Sprintf("33333333-0000-4000-8000-%012d", i)))
		w.openSession(1, "agent-1")
		wires = append(wires, w)
	}
	for _, w := range wires {
		w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, fleet.Transition{Kind: fleet.TransitionAgent}))
		w.sendMessage(syncproto.StreamUpdates, w.newUpdates(2, fleet.Transition{Kind: fleet.TransitionOperator, Message: "m"}))
	}
	for _, w := range wires {
		for _, want := range []fleet.Seq{1, 2} {
			if a := expect[syncproto.Applied](w, syncproto.StreamUpdates); a.Last != want {
				t.Errorf("node %s: applied %d, want %d", w.node, a.Last, want)
			}
		}
	}
	if n := h.EntryCount(state.KindOf(state.AllocUpdates{})); n > edges/2 {
		t.Errorf("%d entries for %d batches", n, 2*edges)
	}
}
