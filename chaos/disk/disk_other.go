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
	ErrRemembers = errors.New("the disk remembers what was not synced")
	ErrLost      = errors.New("the disk lost what was synced")
)

// Disk has methods that all fail: only Linux has such disks.
type Disk struct{}

// Make fails.
func Make(string, string, int64) (*Disk, error) { return nil, errNeedsLinux }

// Try fails.
func Try(string) error { return errNeedsLinux }

// PowerCut fails.
func (d *Disk) PowerCut(func() error) error { return errNeedsLinux }

// Sync fails.
func (d *Disk) Sync() error { return errNeedsLinux }

// Fill fails.
func (d *Disk) Fill() (full, err error) { return nil, errNeedsLinux }

// Empty fails.
func (d *Disk) Empty() error { return errNeedsLinux }

// Freeze fails.
func (d *Disk) Freeze() error { return errNeedsLinux }

// Thaw fails.
func (d *Disk) Thaw() error { return errNeedsLinux }

// Close fails.
func (d *Disk) Close() error { return errNeedsLinux }

// Stutter fails.
func (d *Disk) Stutter(context.Context, time.Duration, time.Duration) (int, error) {
	return 0, errNeedsLinux
}

// ThawAll has nothing to thaw.
func ThawAll() error { return nil }
