//go:build !linux

package disk

import (
	"context"
	"errors"
	"time"
)

var errLinux = errors.New("make disk: Linux is needed")

// ErrRemembers and ErrLost are as on Linux.
var (
	ErrRemembers = errors.New("the disk remembers what was not synced")
	ErrLost      = errors.New("the disk lost what was synced")
)

// Disk is not to be had here.
type Disk struct{}

// Make fails.
func Make(string, string, int64) (*Disk, error) { return nil, errLinux }

// Try fails.
func Try(string) error { return errLinux }

func (d *Disk) PowerCut(func() error) error { return errLinux }
func (d *Disk) Sync() error                 { return errLinux }
func (d *Disk) Fill() (full, err error)     { return nil, errLinux }
func (d *Disk) Empty() error                { return errLinux }
func (d *Disk) Freeze() error               { return errLinux }
func (d *Disk) Thaw() error                 { return errLinux }
func (d *Disk) Close() error                { return errLinux }

func (d *Disk) Stutter(context.Context, time.Duration, time.Duration) (int, error) {
	return 0, errLinux
}

// ThawAll has nothing to thaw.
func ThawAll() error { return nil }
