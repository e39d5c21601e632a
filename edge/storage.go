package edge

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"skerry/edge/diskspace"
	"skerry/edge/local"
	"skerry/edge/store"
	"skerry/fleet"
	"skerry/internal/durable"
	"skerry/internal/redact"
)

// openStore opens the store if one is configured.
func (e *Edge) openStore() (err error) {
	size := e.cfg.StoreBytes
	if size == 0 {
		return nil
	}
	if _, total, err := durable.FreeSpace(e.dir.File()); err == nil {
		size = max(min(size, total/4), 1)
	}
	e.store, err = store.Open(store.Config{
		Dir: e.dir.File(storeDir), MaxBytes: size, Now: e.cfg.Now, Step: e.cfg.Step, Log: e.log.With("component", "store"),
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// checkAndFillSpace fills in the defaults for the space of the disk, and checks the limits.
func (c *Config) checkAndFillSpace() error {
	l := &c.Collect
	l.DiskPercent = cmp.Or(l.DiskPercent, diskspace.DefaultDiskPercent)
	l.InodePercent = cmp.Or(l.InodePercent, diskspace.DefaultInodePercent)
	l.MinFree = cmp.Or(l.MinFree, diskspace.DefaultMinFree)
	for name, percent := range map[string]float64{"disk": l.DiskPercent, "inode": l.InodePercent} {
		if !(percent > 0 && percent <= 100) {
			return fleet.Errorf(fleet.CodeInvalid, "open edge: the threshold of the %s usage is %v %%", name, percent).
				WithHint("give a number above 0 and at most 100; with 100 no usage is above the threshold")
		}
	}
	if c.FreeSpace == nil {
		c.FreeSpace = durable.FreeSpace
	}
	if c.FreeInodes == nil {
		c.FreeInodes = durable.FreeInodes
	}
	return nil
}

// openSpace makes the keeper of the disk's free space.
func (e *Edge) openSpace() (err error) {
	e.space, err = diskspace.New(diskspace.Config{
		Limits: e.cfg.Collect, Measure: e.measureDisk, CollectOldest: e.allocs.CollectOldest, Evict: e.evictStored,
		Record: func(ctx context.Context, message string) error {
			return e.journal.Record(ctx, fleet.Transition{Kind: fleet.TransitionAgent, Message: message})
		},
		Log: e.log.With("component", "diskspace"),
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// startTimeout is the time after which a start is over although some tasks do not run.
const startTimeout = time.Minute

// endStart waits until the start is over. From then on, the part of the reserve for starts is kept for the next one.
func (e *Edge) endStart(ctx context.Context) {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-e.allocs.Recovered():
	case <-timeout.C:
	case <-ctx.Done():
	}
	e.dir.EndStart()
}

// measureDisk returns the use of the disk of the data directory.
func (e *Edge) measureDisk() (diskspace.Usage, error) {
	u, err := e.measureDiskOf(e.dir.File())
	if err != nil {
		return diskspace.Usage{}, err
	}
	u.ReserveFreed = e.dir.Space().Full()
	return u, nil
}

// measureDiskOf returns the use of the disk of a folder.
func (e *Edge) measureDiskOf(dir string) (u diskspace.Usage, err error) {
	if u.Free, u.Total, err = e.cfg.FreeSpace(dir); err != nil {
		return u, err
	}
	u.FreeInodes, u.TotalInodes, err = e.cfg.FreeInodes(dir)
	return u, err
}

// evictStored removes at least so many bytes of stored contents that no allocation pins, or all such contents.
func (e *Edge) evictStored(bytes int64) error {
	if e.store == nil {
		return nil
	}
	return e.store.Evict(bytes)
}

// checkStore returns the error of an edge without a store.
func (a agent) checkStore() error {
	if a.e.store == nil {
		return fleet.Errorf(fleet.CodeUnsupported, "this edge has no store")
	}
	return nil
}

// Store implements local.Storekeeper.
func (a agent) Store(context.Context) (local.Store, error) {
	if err := a.checkStore(); err != nil {
		return local.Store{}, err
	}
	return local.Store{Bytes: a.e.store.Used(), MaxBytes: a.e.store.MaxBytes(), Entries: a.e.store.List()}, nil
}

// LoadStore implements local.Storekeeper.
func (a agent) LoadStore(ctx context.Context, key store.Key, name string, content io.Reader) (store.Entry, error) {
	if err := a.checkStore(); err != nil {
		return store.Entry{}, err
	}
	e, err := a.e.store.Load(ctx, key, name, content)
	a.recordAction(ctx, "store load", key.String(), "", err)
	return e, err
}

// RemoveStored implements local.Storekeeper.
func (a agent) RemoveStored(ctx context.Context, source string) (int, error) {
	if err := a.checkStore(); err != nil {
		return 0, err
	}
	n, err := a.e.store.Remove(source)
	a.recordAction(ctx, "store remove", redact.Address(source), "", err)
	return n, err
}
