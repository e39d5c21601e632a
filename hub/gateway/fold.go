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

// Bounds of one AllocUpdates command, and of its commit.
const (
	maxBatchDelay      = 50 * time.Millisecond
	maxBatchBytes      = 512 << 10
	maxBatchRows       = 1000
	maxBatchesInFlight = 4 // commands at a time
	applyTimeout       = 10 * time.Second
)

// errGone answers a batch whose session is over.
var errGone = errors.New("the session is over")

// commitBackoffs is how long the updateBatcher waits after each command in a row that was
// not committed: an election is over in a second or two.
var commitBackoffs = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

// updateBatcher gathers the batches of all sessions into few AllocUpdates commands. Several commands
// may be in flight, but never two batches of one node, so that a node's batches are applied in order.
type updateBatcher struct {
	apply state.Applier
	log   *slog.Logger

	mu       sync.Mutex
	nodes    map[fleet.NodeID]*nodeQueue // nodes with batches that wait or are in flight
	order    []fleet.NodeID              // nodes with a waiting batch and none in flight, oldest first
	failures int                         // commands in a row that were not committed

	wake chan struct{} // something waits; capacity 1
	full chan struct{} // enough for a whole command waits; capacity 1
}

// nodeQueue has the batches of one node.
type nodeQueue struct {
	waiting []queuedBatch
	busy    bool // a batch of it is in flight
}

// queuedBatch is one batch that waits or is in flight. answer is called once, on a goroutine of the
// updateBatcher, and must not block or call the updateBatcher. A waiting batch is dropped when
// sessionOver is closed.
type queuedBatch struct {
	batch       state.NodeRows
	sessionOver <-chan struct{}
	answer      func(state.BatchResult, error)
}

func (s *queuedBatch) isSessionOver() bool {
	select {
	case <-s.sessionOver:
		return true
	default:
		return false
	}
}

func (s *queuedBatch) rowBytes() int {
	n := 0
	for _, r := range s.batch.Rows {
		n += len(r)
	}
	return n
}

func newUpdateBatcher(apply state.Applier, log *slog.Logger) *updateBatcher {
	return &updateBatcher{
		apply: apply,
		log:   log,
		nodes: make(map[fleet.NodeID]*nodeQueue),
		wake:  make(chan struct{}, 1),
		full:  make(chan struct{}, 1),
	}
}

// submitBatch queues a batch. It never blocks: sessions bound what they submit.
func (f *updateBatcher) submitBatch(s queuedBatch) {
	f.mu.Lock()
	node := s.batch.NodeID
	q := f.nodes[node]
	if q == nil {
		q = &nodeQueue{}
		f.nodes[node] = q
	}
	q.waiting = append(q.waiting, s)
	if len(q.waiting) == 1 && !q.busy {
		f.order = append(f.order, node)
	}
	enough := len(f.order) >= maxBatchRows || s.rowBytes() >= maxBatchBytes/2
	f.mu.Unlock()
	signal(f.wake)
	if enough {
		signal(f.full)
	}
}

// runCommitLoop commits queued batches until ctx ends. It then waits for the commands in flight.
func (f *updateBatcher) runCommitLoop(ctx context.Context) error {
	var commands errgroup.Group
	commands.SetLimit(maxBatchesInFlight)
	defer func() { _ = commands.Wait() }() // they answer their batches, and return nil
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		if !f.waitForBatches(ctx) {
			return nil
		}
		for {
			batch := f.takeNextBatches()
			if len(batch) == 0 {
				break
			}
			commands.Go(func() error {
				f.commitBatches(ctx, batch)
				return nil
			})
		}
	}
}

// waitForBatches waits until a full command is queued or maxBatchDelay is over, or, after failures,
// for the back-off. false: ctx ended.
func (f *updateBatcher) waitForBatches(ctx context.Context) bool {
	f.mu.Lock()
	wait, full := maxBatchDelay, f.full
	if f.failures > 0 {
		wait, full = commitBackoffs[min(f.failures, len(commitBackoffs))-1], nil
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

// takeNextBatches removes the batches of the next command from the queues and marks their nodes busy:
// one batch of each node, oldest first, within the bounds of a command.
func (f *updateBatcher) takeNextBatches() []queuedBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []queuedBatch
	var rest []fleet.NodeID
	rows, size := 0, 0
	for i, node := range f.order {
		q := f.nodes[node]
		for len(q.waiting) > 0 && q.waiting[0].isSessionOver() {
			q.waiting[0].answer(state.BatchResult{}, errGone)
			q.waiting = q.waiting[1:]
		}
		if len(q.waiting) == 0 {
			delete(f.nodes, node)
			continue
		}
		next := q.waiting[0]
		r, n := max(1, len(next.batch.Rows)), next.rowBytes() // a batch without rows carries a received index
		if len(out) > 0 && (rows+r > maxBatchRows || size+n > maxBatchBytes) {
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

// commitBatches applies one command and answers its batches. Where the outcome is not known, the
// batches go back to the head of their queues: a row that is applied again changes nothing.
func (f *updateBatcher) commitBatches(ctx context.Context, batch []queuedBatch) {
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
	if again {
		f.log.Warn("updates not committed, trying again", "batches", len(batch), "error", err)
		f.releaseOrRequeue(batch, again)
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
	f.releaseOrRequeue(batch, again) // after the answers: those of a node's next batch may come only then
}

// releaseOrRequeue marks the nodes of batches as no longer busy, and queues the batches again where
// again is set.
func (f *updateBatcher) releaseOrRequeue(batch []queuedBatch, again bool) {
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
			q.waiting = append([]queuedBatch{s}, q.waiting...)
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

// signal sends to a channel of capacity 1 unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
