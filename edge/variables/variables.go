// Package variables keeps the variables that the allocations of an edge may read, as a hub delivers them.
//
// edge.Open makes a Keeper, passes it the variables of a hub's requests, and gives it to edge/templates. Each variable is
// journaled, encrypted by the machine, before Accept returns, so that it is there again after a reboot without a link.
// Run is its only goroutine: it forgets variables that no allocation may read any more.
package variables

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/fleet/admission"
	"skerry/internal/codec"
	"skerry/internal/pace"
	"skerry/internal/sorting"
	"skerry/syncproto"
)

// Journal is the part of the edge's journal that a Keeper uses.
type Journal interface {
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// Sealer encrypts what is on the disk; bound says what it belongs to.
type Sealer interface {
	Seal(plain, bound []byte) []byte
	Open(sealed, bound []byte) ([]byte, error)
}

// Config of a Keeper. All fields are required.
type Config struct {
	Journal Journal
	Sealer  Sealer
	// Read reports whether an allocation that has not ended may read a variable.
	Read func(ctx context.Context, namespace, path string) (bool, error)
	Log  *slog.Logger
}

const (
	// keyPrefix begins the journal's keys of variables. They belong to no allocation.
	keyPrefix     = "variable/"
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	maxRecord     = 4 * admission.MaxVariableBytes
	maxItems      = 1 << 16
	// forgetPoll is the pause between two looks for variables that nobody may read.
	forgetPoll = 30 * time.Second
	// arrivalGrace is how long a variable is kept before the allocation that may read it has arrived.
	arrivalGrace = 2 * time.Minute
)

// record is one variable in the journal, before it is encrypted.
type record struct {
	Version     int               `cbor:"1,keyasint"`
	Namespace   string            `cbor:"2,keyasint"`
	Path        string            `cbor:"3,keyasint"`
	ModifyIndex fleet.Index       `cbor:"4,keyasint,omitempty"`
	Items       map[string]string `cbor:"5,keyasint,omitempty"`
	ModifyTime  int64             `cbor:"6,keyasint,omitempty"` // as it was delivered
}

// name identifies a variable.
type name struct{ namespace, path string }

func (n name) journalKey() string { return keyPrefix + n.namespace + "/" + n.path }

// variable is what a Keeper has of a variable.
type variable struct {
	items       map[string]string
	modifyIndex fleet.Index
	modifyTime  int64
}

// Keeper keeps variables. Its methods may be called from any goroutine.
type Keeper struct {
	cfg Config

	changing chan struct{} // capacity 1; full while the journal is changed: no mutex is held while a disk is awaited
	mu       sync.Mutex
	kept     map[name]variable
	arrived  map[name]time.Time // of variables that no allocation may read yet
}

// Open makes the Keeper and reads the variables from the journal. One that cannot be decrypted is left out: a hub
// delivers it again.
func Open(cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, changing: make(chan struct{}, 1), kept: map[name]variable{}, arrived: map[name]time.Time{}}
	held, err := cfg.Journal.Handles(context.Background(), noAlloc)
	if err != nil {
		return nil, fmt.Errorf("read the variables of this edge: %w", err)
	}
	for key, raw := range held {
		if !strings.HasPrefix(key, keyPrefix) {
			continue
		}
		r, err := openRecord(cfg.Sealer, key, raw)
		if err != nil {
			cfg.Log.Error("variable not readable: a hub has to deliver it again", "error", err)
			continue
		}
		n := name{r.Namespace, r.Path}
		k.kept[n], k.arrived[n] = variable{r.Items, r.ModifyIndex, r.ModifyTime}, time.Now()
	}
	return k, nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 4, Elements: maxItems, Pairs: maxItems, Items: 2 * maxItems})

// openRecord decrypts and decodes a record of the journal.
func openRecord(s Sealer, key string, raw []byte) (record, error) {
	var r record
	if len(raw) > maxRecord {
		return r, fmt.Errorf("read a variable: %d bytes", len(raw))
	}
	plain, err := s.Open(raw, []byte(key))
	if err != nil {
		return r, fmt.Errorf("read a variable: %w", err)
	}
	return decodeRecord(key, plain)
}

// decodeRecord decodes the decrypted record of a key.
func decodeRecord(key string, plain []byte) (record, error) {
	var r record
	if err := decoder.Unmarshal(plain, &r); err != nil {
		return r, fmt.Errorf("decode a variable: %w", err)
	}
	if r.Version != recordVersion || (name{r.Namespace, r.Path}).journalKey() != key {
		return r, fmt.Errorf("decode a variable: version %d, path %.64q", r.Version, r.Path)
	}
	return r, nil
}

// Accept journals the variables that a hub delivers, and forgets those that it says were deleted. It keeps all others: a
// hub that does not know a variable may have been restored. A deletion that is older than the variable is ignored: that
// hub lags, or was restored.
func (k *Keeper) Accept(ctx context.Context, list []syncproto.DeliveredVariable) error {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	for _, d := range list {
		n := name{d.Namespace, d.Path}
		if err := admission.CheckVariablePath(d.Path); err != nil {
			return err
		}
		if d.Deleted {
			if err := k.forgetDeleted(ctx, n, d.ModifyIndex); err != nil {
				return err
			}
			continue
		}
		items, err := syncproto.DecodeItems(d.Items)
		if err == nil {
			err = admission.CheckVariableItems(d.Path, items)
		}
		if err != nil {
			return err
		}
		if err := k.storeVariable(ctx, n, variable{items, d.ModifyIndex, d.ModifyTime}); err != nil {
			return err
		}
		k.mu.Lock()
		k.arrived[n] = time.Now()
		k.mu.Unlock()
	}
	return nil
}

// NoteIndex is called with the cluster's index at the begin of a session. Variables that are newer are of a state that the cluster has
// lost. They count as changed then: what is deleted from now on has a newer index, and what was deleted before has an older one.
func (k *Keeper) NoteIndex(ctx context.Context, index fleet.Index) error {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	for _, n := range k.sortedNames() {
		k.mu.Lock()
		v := k.kept[n]
		k.mu.Unlock()
		if v.modifyIndex <= index {
			continue
		}
		if err := k.storeVariable(ctx, n, variable{v.items, index, v.modifyTime}); err != nil {
			return err
		}
	}
	return nil
}

// storeVariable journals a variable, and keeps it in memory.
func (k *Keeper) storeVariable(ctx context.Context, n name, v variable) error {
	plain, err := codec.Marshal(record{recordVersion, n.namespace, n.path, v.modifyIndex, v.items, v.modifyTime})
	if err != nil {
		return fmt.Errorf("keep variable %s: %w", n.path, err)
	}
	key := n.journalKey()
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, key, k.cfg.Sealer.Seal(plain, []byte(key))); err != nil {
		return fmt.Errorf("keep variable %s: %w", n.path, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[n] = v
	return nil
}

// forgetDeleted forgets a variable that was deleted at an index; 0: a hub of an older release does not say when.
func (k *Keeper) forgetDeleted(ctx context.Context, n name, deletedAt fleet.Index) error {
	k.mu.Lock()
	v, known := k.kept[n]
	k.mu.Unlock()
	if !known || deletedAt != 0 && v.modifyIndex > deletedAt {
		return nil
	}
	return k.forgetVariable(ctx, n)
}

// forgetVariable removes a variable from the journal and from memory.
func (k *Keeper) forgetVariable(ctx context.Context, n name) error {
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, n.journalKey(), nil); err != nil {
		return fmt.Errorf("forget variable %s: %w", n.path, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, n)
	delete(k.arrived, n)
	return nil
}

// sortedNames lists the variables, in the order of namespaces and paths.
func (k *Keeper) sortedNames() []name {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := slices.Collect(maps.Keys(k.kept))
	sorting.Slice(names, func(a, b name) int { return strings.Compare(a.journalKey(), b.journalKey()) })
	return names
}

// Variable returns the items of a variable; ok is false if this edge has none of that path. They must not be changed.
func (k *Keeper) Variable(namespace, path string) (items map[string]string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.kept[name{namespace, path}]
	return v.items, ok
}

// Kept lists those of some variables of a namespace that this edge has, without their items: ModifyTime is 0 if a hub of an
// older release has delivered one.
func (k *Keeper) Kept(namespace string, paths []string) []fleet.VariableMeta {
	k.mu.Lock()
	defer k.mu.Unlock()
	var kept []fleet.VariableMeta
	for _, path := range paths {
		if v, ok := k.kept[name{namespace, path}]; ok {
			kept = append(kept, fleet.VariableMeta{Namespace: namespace, Path: path, ModifyIndex: v.modifyIndex, ModifyTime: v.modifyTime})
		}
	}
	return kept
}

// Run forgets variables that no allocation may read any more, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for pace.Rest(ctx, forgetPoll) {
		if err := k.forgetUnread(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("variables not forgotten; trying again", "error", err)
		}
	}
	return nil
}

func (k *Keeper) forgetUnread(ctx context.Context) error {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	for _, n := range k.sortedNames() {
		read, err := k.cfg.Read(ctx, n.namespace, n.path)
		if err != nil {
			return err
		}
		k.mu.Lock()
		at, waits := k.arrived[n]
		if read {
			delete(k.arrived, n)
		}
		k.mu.Unlock()
		if read || waits && time.Since(at) < arrivalGrace {
			continue
		}
		if err := k.forgetVariable(ctx, n); err != nil {
			return err
		}
		k.cfg.Log.Info("variable forgotten: no allocation may read it any more", "namespace", n.namespace, "variable", n.path)
	}
	return nil
}
