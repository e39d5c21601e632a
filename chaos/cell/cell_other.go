//go:build !linux

package cell

import (
	"context"
	"errors"
)

var errLinux = errors.New("make a cell for the run: Linux is needed")

// Inside, Keeper, Enter and Keep are not to be had here.
func Inside() bool                { return false }
func Keeper() bool                { return false }
func Enter(context.Context) error { return errLinux }
func Keep() (int, error)          { return 1, errLinux }
