package state

import "context"

// Applier commits commands to the replicated log. When Apply returns a result, the
// command is applied on the leader, and here unless this hub lags. After an error
// the command may or may not be applied, also later.
type Applier interface {
	Apply(ctx context.Context, c Command) (Result, error)
}

// ApplierFunc is a function that is an Applier.
type ApplierFunc func(ctx context.Context, c Command) (Result, error)

// Apply calls f.
func (f ApplierFunc) Apply(ctx context.Context, c Command) (Result, error) { return f(ctx, c) }
