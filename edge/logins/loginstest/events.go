package loginstest

import (
	"strings"
	"sync"
)

// Events are what a task is told, in order. Its methods may be called from any goroutine.
type Events struct {
	mu   sync.Mutex
	told []string
}

// Note adds an event. It never fails.
func (e *Events) Note(event string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, event)
	return nil
}

// Take returns the events since the last call, joined by "; ".
func (e *Events) Take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := strings.Join(e.told, "; ")
	e.told = nil
	return all
}
