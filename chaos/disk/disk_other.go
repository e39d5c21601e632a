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

// Disk is not to be had here.
type Disk struct{}

// Make fails.
func Make(string, string, int64) (*Disk, error) { return nil, errNeedsLinux }

// Try fails.
func Try(string) error { return errNeedsLinux }

func (d *Disk) PowerCut(func() error) error { return errNeedsLinux }
func (d *Disk) Sync() error                 { return errNeedsLinux }
func (d *Disk) Fill() (full, err error)     { return nil, errNeedsLinux }
func (d *Disk) Empty() error                { return errNeedsLinux }
func (d *Disk) Freeze() error               { return errNeedsLinux }
func (d *Disk) Thaw() error                 { return errNeedsLinux }
func (d *Disk) Close() error                { return errNeedsLinux }

func (d *Disk) Stutter(context.Context, time.Duration, time.Duration) (int, error) {
	return 0, errNeedsLinux
}

// ThawAll has nothing to thaw.
func ThawAll() error { return nil }
