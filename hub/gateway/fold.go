package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
	"skerry/hub/state"
)

// What one AllocUpdates command holds, and how it is made.
const (
	foldFor      = 50 * time.Millisecond
	foldBytes    = 512 << 10
	foldRows     = 1000
	foldInFlight = 4 // commands at a time
	applyTimeout = 10 * time.Second
)

// errGone answers a batch whose session is over.
var errGone = errors.New("the session is over")

// foldPauses is how long the folder waits after each command in a row that was
// not committed: an election is over in a second or two.
var foldPauses = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

// folder gathers what all sessions' edges say into few commands. Several are on
// their way at once, but of one node never two batches, so that a node's batches
// are applied in its order, whatever way the commands take.
type folder struct {
	apply Applier
	log   *slog.Logger

	mu       sync.Mutex
	nodes    map[fleet.NodeID]*foldQueue // that have batches waiting or in flight
	order    []fleet.NodeID              // of those waiting and not in flight, first come first served
	failures int                         // commands in a row

	wake chan struct{} // something waits; capacity 1
	full chan struct{} // enough for a whole command waits; capacity 1
}

// foldQueue is one node's part.
type foldQueue struct {
	waiting []submission
	busy    bool // a batch of it is in flight
}

// submission is one batch on its way. answer is called once, from a goroutine of
// the folder, and must not block or call the folder. Where gone is closed nobody
// waits for it any more, and it is dropped unless it is in flight.
type submission struct {
	batch  state.NodeRows
	gone   <-chan struct{}
	answer func(state.BatchResult, error)
}

func (s *submission) dropped() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

func (s *submission) size() int {
	n := 0
	for _, r := range s.batch.Rows {
		n += len(r)
	}
	return n
}

func newFolder(apply Applier, log *slog.Logger) *folder {
	return &folder{
		apply: apply,
		log:   log,
		nodes: make(map[fleet.NodeID]*foldQueue),
		wake:  make(chan struct{}, 1),
		full:  make(chan struct{}, 1),
	}
}

// submit queues a batch. It never blocks: sessions bound what they submit.
func (f *folder) submit(s submission) {
	f.mu.Lock()
	node := s.batch.NodeID
	q := f.nodes[node]
	if q == nil {
		q = &foldQueue{}
		f.nodes[node] = q
	}
	q.waiting = append(q.waiting, s)
	if len(q.waiting) == 1 && !q.busy {
		f.order = append(f.order, node)
	}
	enough := len(f.order) >= foldRows || s.size() >= foldBytes/2
	f.mu.Unlock()
	signal(f.wake)
	if enough {
		signal(f.full)
	}
}

// run makes commands until ctx ends; it then waits for those in flight.
func (f *folder) run(ctx context.Context) error {
	var commands errgroup.Group
	commands.SetLimit(foldInFlight)
	defer func() { _ = commands.Wait() }() // they answer their batches, and return nil
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		if !f.gather(ctx) {
			return nil
		}
		for {
			batch := f.take()
			if len(batch) == 0 {
				break
			}
			commands.Go(func() error {
				f.commit(ctx, batch)
				return nil
			})
		}
	}
}

// gather waits until a command is worth making, and reports whether to go on.
func (f *folder) gather(ctx context.Context) bool {
	f.mu.Lock()
	wait, full := foldFor, f.full
	if f.failures > 0 {
		wait, full = foldPauses[min(f.failures, len(foldPauses))-1], nil
	}
	f.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-full:
	case <-timer.C:
	}
	return true
}

// take removes the next command's worth: one batch a node, in the order in which
// they came.
func (f *folder) take() []submission {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []submission
	var rest []fleet.NodeID
	rows, size := 0, 0
	for i, node := range f.order {
		q := f.nodes[node]
		for len(q.waiting) > 0 && q.waiting[0].dropped() {
			q.waiting[0].answer(state.BatchResult{}, errGone)
			q.waiting = q.waiting[1:]
		}
		if len(q.waiting) == 0 {
			delete(f.nodes, node)
			continue
		}
		next := q.waiting[0]
		r, n := max(1, len(next.batch.Rows)), next.size() // one without rows says what was received
		if len(out) > 0 && (rows+r > foldRows || size+n > foldBytes) {
			rest = append(rest, f.order[i:]...)
			break
		}
		rows, size = rows+r, size+n
		q.waiting, q.busy = q.waiting[1:], true
		out = append(out, next)
	}
	f.order = rest
	return out
}

// commit applies one command and answers its batches. Where it is not known to be
// committed the batches go back to the head of their queues: applying a row twice
// does nothing.
func (f *folder) commit(ctx context.Context, batch []submission) {
	c := state.AllocUpdates{
		Batches:  make([]state.NodeRows, len(batch)),
		EvalSeed: fleet.NewUUID(nil),
		Now:      time.Now().UnixNano(),
	}
	for i := range batch {
		c.Batches[i] = batch[i].batch
	}
	applyCtx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := f.apply.Apply(applyCtx, c)
	if err == nil && res.Err == nil && len(res.Updates) != len(batch) {
		res.Err = fleet.Errorf(fleet.CodeInternal, "apply %d batches of updates: %d answers", len(batch), len(res.Updates))
	}
	again := err != nil && ctx.Err() == nil && fleet.CodeOf(err) != fleet.CodeInvalid
	f.finish(batch, again)
	if again {
		f.log.Warn("updates not committed, trying again", "batches", len(batch), "error", err)
		return
	}
	err = res.Failure(err)
	for i := range batch {
		if err != nil {
			batch[i].answer(state.BatchResult{}, err)
		} else {
			batch[i].answer(res.Updates[i], nil)
		}
	}
}

// finish lets the next batches of these nodes go, or the same ones again.
func (f *folder) finish(batch []submission, again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if again {
		f.failures++
	} else {
		f.failures = 0
	}
	for _, s := range batch {
		q := f.nodes[s.batch.NodeID]
		q.busy = false
		if again {
			q.waiting = append([]submission{s}, q.waiting...)
		}
		if len(q.waiting) == 0 {
			delete(f.nodes, s.batch.NodeID)
			continue
		}
		f.order = append(f.order, s.batch.NodeID)
	}
	if len(f.order) > 0 {
		signal(f.wake)
	}
}

// signal fills a channel of capacity 1 that may be full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
