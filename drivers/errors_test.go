package drivers_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"skerry/drivers"
)

func TestIsRecoverable(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "spec.json", Err: syscall.ENOSPC}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("no such command"), false},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, false},
		{fmt.Errorf("start task: %w", drivers.Recoverable(errors.New("no answer"))), true},
		{fmt.Errorf("start task: %w", full), true},
		{errors.Join(errors.New("start task"), syscall.EDQUOT), true},
	} {
		if got := drivers.IsRecoverable(c.err); got != c.want {
			t.Errorf("%v: recoverable is %v, want %v", c.err, got, c.want)
		}
	}
}
