package scheduler

import (
	"context"

	"skerry/fleet"
)

// Deliver deals with one delivery as a worker does, in the caller's goroutine.
func (s *Scheduler) Deliver(ctx context.Context, d fleet.Delivery) error {
	w := worker{cfg: s.cfg, log: s.cfg.Log}
	return w.handleDelivery(ctx, d)
}

// DesiredUpdates is what an evaluation and a dry run say of what is decided for a group.
var DesiredUpdates = desiredUpdates
