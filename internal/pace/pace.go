// Package pace waits between two tries, or between two polls of the state. The components of
// the hub, and drivers, call it from their own goroutines. It starts none and persists nothing.
package pace

import (
	"context"
	"time"
)

// Rest waits for d. It returns false at once when ctx ends before.
func Rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
