package state

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// Store is the state of one hub. Apply and Restore are called by one goroutine
// (package hub/consensus), everything else by any.
type Store struct {
	mu  sync.Mutex // held by Apply and Restore
	cur atomic.Pointer[generation]
}

// generation is the database between two Restores. gone is closed when the next
// one replaces it, which wakes whoever watches this one.
type generation struct {
	db   *memdb.MemDB
	gone chan struct{}
}

// New returns an empty state.
func New() *Store {
	s := &Store{}
	s.cur.Store(newGeneration())
	return s
}

func newGeneration() *generation {
	db, err := memdb.NewMemDB(schema())
	if err != nil {
		panic(fmt.Sprintf("make the tables: %v", err)) // constant schema
	}
	// A row that is there is watched for itself; one that is not, with its
	// neighbours.
	names := []string{metaApplied, metaRollouts}
	for _, tb := range tables {
		if tb.isAnnounced() {
			names = append(names, tb.tableName())
		}
	}
	txn := db.Txn(true)
	for _, name := range names {
		if err := txn.Insert(metaTable.name, &metaRow{name: name}); err != nil {
			panic(fmt.Sprintf("make the tables: %v", err)) // constant schema
		}
	}
	txn.Commit()
	return &generation{db: db, gone: make(chan struct{})}
}

// Apply applies the command at index. Refusals are in Result.Err or
// Result.Updates; they leave the state alone. The log's indexes only grow.
func (s *Store) Apply(index fleet.Index, c Command) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	gen := s.cur.Load()
	if c, ok := c.(SnapshotRestore); ok {
		return s.applySnapshotRestore(gen, index, c)
	}
	t := beginEntry(gen.db, index)
	res := t.applyCommand(c)
	res.Index = index
	if res.Err != nil {
		t = beginEntry(gen.db, index)
	}
	t.commitEntry(gen.db)
	return res
}

func (t *tx) applyCommand(c Command) Result {
	declared := commands[KindOf(c)]
	if declared.apply == nil {
		panic(fmt.Sprintf("apply entry %d: unknown command %T", t.index, c))
	}
	return declared.apply(t, c)
}

// View returns the state as it is now.
func (s *Store) View() *View {
	gen := s.cur.Load()
	return &View{txn: gen.db.Txn(false)}
}

// Watch returns the state as it is now, as a View that remembers what is read
// from it, for Changed. It belongs to one goroutine.
func (s *Store) Watch() *View {
	gen := s.cur.Load()
	v := &View{txn: gen.db.Txn(false), watch: memdb.NewWatchSet()}
	v.watch.Add(gen.gone)
	return v
}

// WaitIndex blocks until the state has applied index, or ctx is done.
func (s *Store) WaitIndex(ctx context.Context, index fleet.Index) error {
	for {
		v := s.Watch()
		if v.Index() >= index {
			return nil
		}
		v.watchMeta(metaApplied)
		if err := v.Changed(ctx); err != nil {
			return fmt.Errorf("wait for entry %d: %w", index, err)
		}
	}
}
