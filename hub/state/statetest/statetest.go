// Package statetest has a replicated state without Raft, for tests of the hub's components.
package statetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// Log is the log of a cluster with one hub. Apply makes a command the next entry, and applies it to the
// Store before it returns. As with Raft, the applied command is the one decoded from the log.
type Log struct {
	*state.Store
	// Applied is called after each entry, before the next one is applied. Nil: no call.
	Applied func(index fleet.Index, c state.Command)

	mu      sync.Mutex
	index   fleet.Index
	refusal error
	entries []state.Command
}

// NewLog returns an empty log with an empty state.
func NewLog() *Log { return &Log{Store: state.New()} }

// Apply commits a command. It fails if the command cannot be encoded, or with the error of SetRefusal.
func (l *Log) Apply(_ context.Context, c state.Command) (state.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal != nil {
		return state.Result{}, l.refusal
	}
	encoded, err := state.Encode(c)
	if err != nil {
		return state.Result{}, err
	}
	if c, err = state.Decode(encoded); err != nil {
		return state.Result{}, err
	}
	l.index++
	l.entries = append(l.entries, c)
	res := l.Store.Apply(l.index, c)
	if l.Applied != nil {
		l.Applied(l.index, c)
	}
	return res, nil
}

// MustApply commits a command, and fails the test if it is refused.
func (l *Log) MustApply(tb testing.TB, c state.Command) state.Result {
	tb.Helper()
	res, err := l.Apply(context.Background(), c)
	if err = res.Failure(err); err != nil {
		tb.Fatalf("apply %T: %v", c, err)
	}
	return res
}

// SetRefusal makes Apply fail with err, as when no hub leads; nil makes it work again.
func (l *Log) SetRefusal(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
}

// Entries returns the applied commands, in order.
func (l *Log) Entries() []state.Command {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// EntryCount returns how many commands of a kind were applied.
func (l *Log) EntryCount(k state.Kind) int {
	n := 0
	for _, c := range l.Entries() {
		if state.KindOf(c) == k {
			n++
		}
	}
	return n
}
