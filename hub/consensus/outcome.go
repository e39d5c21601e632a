package consensus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pollOutcome is the interval at which a hub that lost the leadership looks whether an entry is decided.
const pollOutcome = 20 * time.Millisecond

// errReplaced says that another leader's entry, which is committed, has the place of the command in the log.
var errReplaced = errors.New("the leadership was lost, and the next leader did not have the command")

// entryTag marks an entry of the log, so that the hub that made it recognizes it in whatever way it is committed. It
// is the entry's Extensions.
type entryTag [8]byte

func newEntryTag() (tag entryTag) {
	binary.LittleEndian.PutUint64(tag[:], rand.Uint64())
	return tag
}

// tagWaiters are the callers that wait for entries of this hub to be applied. Raft itself answers only while the hub
// leads.
type tagWaiters struct {
	mu      sync.Mutex
	waiting map[entryTag]chan any
}

// expectEntry returns a channel that receives the response of the state machine to the entry. The caller must call forgetEntry.
func (w *tagWaiters) expectEntry(tag entryTag) <-chan any {
	applied := make(chan any, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[entryTag]chan any{}
	}
	w.waiting[tag] = applied
	return applied
}

func (w *tagWaiters) forgetEntry(tag entryTag) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, tag)
}

// deliverResponse gives the response of the state machine to the caller that waits for the entry, if there is one.
func (w *tagWaiters) deliverResponse(l *raft.Log, response any) {
	if len(l.Extensions) != len(entryTag{}) {
		return // an older release wrote the entry
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if applied := w.waiting[entryTag(l.Extensions)]; applied != nil {
		delete(w.waiting, entryTag(l.Extensions))
		applied <- response
	}
}

// applyToRaft gives a command to raft, and returns the response of the state machine. If the leadership is lost
// meanwhile, it waits for the outcome; raft.ErrLeadershipLost: that is not known when ctx ends or the Node stops.
func (n *Node) applyToRaft(ctx context.Context, r *raft.Raft, cmd []byte) (any, error) {
	tag := newEntryTag()
	applied := n.machine.waiters.expectEntry(tag)
	defer n.machine.waiters.forgetEntry(tag)
	f := r.ApplyLog(raft.Log{Data: cmd, Extensions: tag[:]}, untilDeadline(ctx))
	switch err := f.Error(); {
	case err == nil:
		return f.Response(), nil
	case errors.Is(err, raft.ErrLeadershipLost):
		return n.waitForOutcome(ctx, r, f.Index(), tag, applied)
	default:
		return nil, err
	}
}

// waitForOutcome waits until the entry that this hub wrote at index is applied, or another entry is committed at its place.
func (n *Node) waitForOutcome(ctx context.Context, r *raft.Raft, index uint64, tag entryTag, applied <-chan any) (any, error) {
	tick := time.NewTicker(pollOutcome)
	defer tick.Stop()
	poll := tick.C
	for {
		select {
		case response := <-applied:
			return response, nil
		case <-ctx.Done():
			return nil, raft.ErrLeadershipLost
		case <-n.abandoned:
			return nil, raft.ErrLeadershipLost
		case <-poll:
			ours, err := isCommittedAs(r, n.disk.Load().log, index, tag)
			switch {
			case errors.Is(err, errUndecided):
			case err != nil:
				return nil, fmt.Errorf("%w, and its outcome is not in the log: %w", raft.ErrLeadershipLost, err)
			case !ours:
				return nil, errReplaced
			default:
				poll = nil // it is about to be applied
			}
		}
	}
}

// errUndecided says that no entry is committed at an index yet.
var errUndecided = errors.New("no entry is committed there yet")

// isCommittedAs reports whether the entry that is committed at index has the tag. An entry above the commit index proves
// nothing: its leader may lose it again, and with it what took our entry's place.
func isCommittedAs(r interface{ CommitIndex() uint64 }, log raft.LogStore, index uint64, tag entryTag) (bool, error) {
	if r.CommitIndex() < index {
		return false, errUndecided
	}
	var e raft.Log
	if err := log.GetLog(index, &e); err != nil { // a snapshot has replaced it
		return false, fmt.Errorf("read entry %d: %w", index, err)
	}
	return bytes.Equal(e.Extensions, tag[:]), nil
}
