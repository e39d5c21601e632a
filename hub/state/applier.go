package state

import "context"

// Applier commits commands to the replicated log. When Apply returns a result, the
// command is applied on the leader, and here unless this hub lags. After an error
// the command may or may not be applied, also later.
type Applier interface {
	Apply(ctx context.Context, c Command) (Result, error)
}
