package rpc

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/fleet"
)

// IsPermanent reports whether a retry cannot succeed, by the error's code. Errors without a code are not permanent.
func IsPermanent(err error) bool {
	switch fleet.CodeOf(err) {
	case "", fleet.CodeUnavailable, fleet.CodeTimeout, fleet.CodeNotLeader, fleet.CodeInternal:
		return false
	}
	return true
}

// Retry calls f until it succeeds, gives a permanent error, or ctx ends; it then
// returns f's last error.
func Retry(ctx context.Context, f func() error) error {
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
	var last error
	err := backoff.Retry(func() error {
		last = f()
		if last != nil && IsPermanent(last) {
			return backoff.Permanent(last)
		}
		return last
	}, backoff.WithContext(policy, ctx))
	if err != nil && ctx.Err() != nil && last != nil {
		return last // more useful than the error of ctx
	}
	return err
}
