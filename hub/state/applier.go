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

// recheckKey is the key of a context's recheck.
type recheckKey struct{}

// WithRecheck returns a context whose commands are checked again before an Applier repeats them, or gives them to another hub
// though this one has not heard of the leader for a while: what allowed them may have ended meanwhile.
func WithRecheck(ctx context.Context, check func(context.Context) error) context.Context {
	return context.WithValue(ctx, recheckKey{}, check)
}

// Recheck does the check of WithRecheck; without one it returns nil.
func Recheck(ctx context.Context) error {
	if check, ok := ctx.Value(recheckKey{}).(func(context.Context) error); ok {
		return check(ctx)
	}
	return nil
}
