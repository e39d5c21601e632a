package edge

import (
	"context"
	"fmt"
	"io"

	"skerry/edge/local"
	"skerry/edge/store"
	"skerry/fleet"
	"skerry/internal/durable"
)

// openStore opens the store that is configured.
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
	return a.e.store.Load(ctx, key, name, content)
}

// RemoveStored implements local.Storekeeper.
func (a agent) RemoveStored(_ context.Context, source string) (int, error) {
	if err := a.checkStore(); err != nil {
		return 0, err
	}
	return a.e.store.Remove(source)
}
