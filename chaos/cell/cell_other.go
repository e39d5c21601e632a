//go:build !linux

package cell

import (
	"context"
	"errors"
)

var errLinux = errors.New("make a cell for the run: Linux is needed")

// Inside returns false: only Linux has cells.
func Inside() bool { return false }

// Keeper returns false: only Linux has cells.
func Keeper() bool { return false }

// Enter fails: only Linux has cells.
func Enter(context.Context) error { return errLinux }

// Keep fails: only Linux has cells.
func Keep() (int, error) { return 1, errLinux }
