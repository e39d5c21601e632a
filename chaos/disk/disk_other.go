//go:build !linux

package disk

import (
	"context"
	"errors"
	"time"
)

var errNeedsLinux = errors.New("make disk: Linux is needed")

// ErrRemembers and ErrLost are as on Linux.
var (
	ErrRemembers = errors.New("the disk kept data that was not synced")
	ErrLost      = errors.New("the disk lost synced data")
)

// Disk is not available: all methods return an error, since such disks need Linux.
type Disk struct{}

// Make returns an error: such disks need Linux.
func Make(string, string, int64) (*Disk, error) { return nil, errNeedsLinux }

// Try returns an error: such disks need Linux.
func Try(string) error { return errNeedsLinux }

// PowerCut returns an error: such disks need Linux.
func (d *Disk) PowerCut(func() error) error { return errNeedsLinux }

// WithPower returns an error: such disks need Linux.
func (d *Disk) WithPower(func() error) error { return errNeedsLinux }

// Sync returns an error: such disks need Linux.
func (d *Disk) Sync() error { return errNeedsLinux }

// Fill returns an error: such disks need Linux.
func (d *Disk) Fill() (full, err error) { return nil, errNeedsLinux }

// Empty returns an error: such disks need Linux.
func (d *Disk) Empty() error { return errNeedsLinux }

// Freeze returns an error: such disks need Linux.
func (d *Disk) Freeze() error { return errNeedsLinux }

// Thaw returns an error: such disks need Linux.
func (d *Disk) Thaw() error { return errNeedsLinux }

// Close returns an error: such disks need Linux.
func (d *Disk) Close() error { return errNeedsLinux }

// Stutter returns an error: such disks need Linux.
func (d *Disk) Stutter(context.Context, time.Duration, time.Duration) (int, error) {
	return 0, errNeedsLinux
}

// ThawAll does nothing: no disk can be frozen here.
func ThawAll() error { return nil }
