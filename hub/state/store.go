package state

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// Store is the state of one hub. One goroutine (package hub/consensus) calls Apply and Restore;
// any goroutine may call the other methods.
type Store struct {
	mu  sync.Mutex // held by Apply and Restore
	cur atomic.Pointer[generation]
}

// generation is the in-memory database from one Restore to the next. gone is closed when a newer
// generation replaces it, which wakes the views that watch this one.
type generation struct {
	db   *memdb.MemDB
	gone chan struct{}
}

// New returns an empty state. It starts nothing.
func New() *Store {
	s := &Store{}
	s.cur.Store(newGeneration())
	return s
}

// newGeneration makes an empty database. It has a meta row for each announced table, so that a view can
// watch a table that has not changed yet.
func newGeneration() *generation {
	db, err := memdb.NewMemDB(databaseSchema())
	if err != nil {
		panic(fmt.Sprintf("make the tables: %v", err)) // constant schema
	}
	// A view watches an existing row alone; it watches a missing row together with its neighbours.
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

// Apply applies the command of the log entry index. A refused command sets Result.Err, or the code of a
// batch in Result.Updates, and changes nothing but the applied index. index must be greater than at the
// call before.
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

// applyCommand calls the method that is declared for the command's kind. It panics for an undeclared
// command.
func (t *tx) applyCommand(c Command) Result {
	declared := commands[KindOf(c)]
	if declared.apply == nil {
		panic(fmt.Sprintf("apply entry %d: unknown command %T", t.index, c))
	}
	return declared.apply(t, c)
}

// View returns a read-only view of the current state. It does not record reads: its Changed never reports
// a change.
func (s *Store) View() *View {
	gen := s.cur.Load()
	return &View{txn: gen.db.Txn(false)}
}

// Watch returns a view of the current state that records which rows and tables are read from it. Its
// Changed waits until one of them changes. Only one goroutine may use it.
func (s *Store) Watch() *View {
	gen := s.cur.Load()
	v := &View{txn: gen.db.Txn(false), watch: memdb.NewWatchSet()}
	v.watch.Add(gen.gone)
	return v
}

// WaitIndex blocks until the entry index is applied. It returns an error if ctx is done before.
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
