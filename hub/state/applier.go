package state

import "context"

// Applier commits commands to the replicated log. When Apply returns a result, the leader has applied the
// command, and this hub too unless it lags behind. After an error the command may still be applied, even
// later.
type Applier interface {
	Apply(ctx context.Context, c Command) (Result, error)
}

// ApplierFunc makes a function an Applier.
type ApplierFunc func(ctx context.Context, c Command) (Result, error)

// Apply calls f.
func (f ApplierFunc) Apply(ctx context.Context, c Command) (Result, error) { return f(ctx, c) }
