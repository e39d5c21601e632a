//go:build !linux

package cell

import (
	"context"
	"errors"
)

var errLinux = errors.New("make a cell for the run: Linux is needed")

// Inside returns false: cells need Linux.
func Inside() bool { return false }

// Keeper returns false: cells need Linux.
func Keeper() bool { return false }

// Enter returns an error: cells need Linux.
func Enter(context.Context) error { return errLinux }

// Keep returns an error: cells need Linux.
func Keep() (int, error) { return 1, errLinux }
