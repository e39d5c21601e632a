package loginstest

import (
	"context"
	"maps"
	"sync"

	"skerry/fleet"
)

// Journal is a journal in memory.
type Journal struct {
	mu      sync.Mutex
	handles map[string][]byte
}

// PutHandle stores a handle; nil removes it.
func (j *Journal) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, _ ...fleet.Transition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.handles == nil {
		j.handles = map[string][]byte{}
	}
	if handle == nil {
		delete(j.handles, key)
	} else {
		j.handles[key] = handle
	}
	return nil
}

// Handles returns a copy of all handles.
func (j *Journal) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.handles), nil
}
