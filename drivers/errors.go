package drivers

import (
	"errors"
	"syscall"
)

// ErrTaskGone is returned by Driver.Recover if no task is running and its exit is not known.
var ErrTaskGone = errors.New("task is gone")

// recoverable is an error that Recoverable marked.
type recoverable struct{ error }

func (r recoverable) Unwrap() error { return r.error }

// Recoverable marks an error of Start or Recover after which a retry may succeed. nil stays nil.
func Recoverable(err error) error {
	if err == nil {
		return nil
	}
	return recoverable{err}
}

// IsRecoverable reports whether Recoverable marked err, or err is that of a full disk, which may get space later.
func IsRecoverable(err error) bool {
	var r recoverable
	return errors.As(err, &r) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
