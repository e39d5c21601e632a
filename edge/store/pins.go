package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"skerry/fleet"
	"skerry/internal/durable"
)

// pinRecord is the file of an allocation's pins.
type pinRecord struct {
	Version int
	Keys    []string
}

// PrefetchPin begins the names of pins that hold contents for no allocation, but for one that may be placed later.
const PrefetchPin = "prefetch-"

// Pin keeps the contents for some keys until Unpin, also those that are stored later: the allocation may need them.
// The pin is durable when Pin returns.
func (s *Store) Pin(alloc fleet.AllocID, keys ...Key) error {
	if alloc == "" || filepath.Base(string(alloc)) != string(alloc) {
		return fleet.Errorf(fleet.CodeInvalid, "pin contents for the allocation %q: that is no id", alloc)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Clone(s.pins[alloc])
	for _, k := range keys {
		ids = append(ids, k.ID())
		if _, id, ok := s.findEntry(k); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if slices.Equal(ids, s.pins[alloc]) {
		return nil
	}
	text, err := json.Marshal(pinRecord{entryVersion, ids})
	if err == nil {
		err = s.cfg.Step("write-pins")
	}
	if err == nil {
		err = durable.Replace(s.pathOf("pins", string(alloc)), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("pin contents for allocation %s: %w", fleet.Short(alloc), err)
	}
	s.pins[alloc] = ids
	return nil
}

// Unpin lets the store evict an allocation's contents. It does nothing for an allocation without pins.
func (s *Store) Unpin(alloc fleet.AllocID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pins[alloc]; !ok {
		return nil
	}
	err := s.cfg.Step("remove-pins")
	if err == nil {
		err = os.Remove(s.pathOf("pins", string(alloc)))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unpin contents of allocation %s: %w", fleet.Short(alloc), err)
	}
	delete(s.pins, alloc)
	return nil
}

// PinnedAllocs returns the allocations that pin contents.
func (s *Store) PinnedAllocs() []fleet.AllocID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.pins))
}

// readPins reads the pins. For an allocation whose file is not readable it keeps no pins.
func (s *Store) readPins() error {
	list, err := os.ReadDir(s.pathOf("pins"))
	if err != nil {
		return err
	}
	for _, f := range list {
		if f.Name()[0] == '.' { // a temporary file that a crash left
			if err := os.Remove(s.pathOf("pins", f.Name())); err != nil {
				return err
			}
			continue
		}
		var r pinRecord
		text, err := readRecord(s.pathOf("pins", f.Name()))
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil { // the allocation's next start pins its contents again
			s.cfg.Log.Warn("pins of an allocation not readable", "alloc_id", f.Name(), "error", err)
		}
		s.pins[fleet.AllocID(f.Name())] = r.Keys
	}
	return nil
}

// usedBytes returns the bytes of blobs and downloads. The caller holds the lock.
func (s *Store) usedBytes() int64 {
	var used int64
	counted := map[string]bool{}
	for _, e := range s.entries {
		if !counted[e.SHA256] {
			counted[e.SHA256] = true
			used += e.Size
		}
	}
	for _, n := range s.partials {
		used += n
	}
	return used
}

// Evict removes contents that no allocation pins until the store is bytes smaller, or none is left.
func (s *Store) Evict(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	target, pinned := s.usedBytes()-bytes, s.pinnedIDs()
	enough := func() bool { return s.usedBytes() <= target }
	err := s.evictDownloads(enough, pinned)
	if err == nil {
		err = s.evictEntries(enough, pinned)
	}
	if err != nil {
		return fmt.Errorf("evict stored contents: %w", err)
	}
	return nil
}

// makeRoom evicts contents until size more bytes fit: first interrupted downloads, then the least recently used
// entries. It keeps pinned and loaded entries. The caller holds the lock.
func (s *Store) makeRoom(size int64) error {
	bytesFit := func() bool { return s.usedBytes()+size <= s.cfg.MaxBytes }
	fits := func() bool { return bytesFit() && len(s.entries) < maxEntries }
	err := s.evictDownloads(bytesFit, nil)
	if err == nil {
		err = s.evictEntries(fits, s.pinnedIDs())
	}
	if err == nil && !fits() {
		err = s.errFull()
	}
	return err
}

// pinnedIDs returns the ids of the contents that allocations pin. The caller holds the lock.
func (s *Store) pinnedIDs() map[string]bool {
	pinned := map[string]bool{}
	for _, ids := range s.pins {
		for _, id := range ids {
			pinned[id] = true
		}
	}
	return pinned
}

// evictDownloads removes interrupted downloads that no goroutine continues, except those in keep, until enough is true.
// The caller holds the lock.
func (s *Store) evictDownloads(enough func() bool, keep map[string]bool) error {
	for _, id := range slices.Sorted(maps.Keys(s.partials)) {
		if enough() {
			return nil
		}
		if s.busy[id] != nil || keep[id] {
			continue
		}
		if err := s.removePartial(id); err != nil {
			return err
		}
	}
	return nil
}

// evictEntries removes the least recently used entries, except those in keep and those loaded by hand, until enough is
// true. The caller holds the lock.
func (s *Store) evictEntries(enough func() bool, keep map[string]bool) error {
	oldest := slices.SortedFunc(maps.Keys(s.entries), func(a, b string) int { return cmp.Compare(s.uses[a], s.uses[b]) })
	for _, id := range oldest {
		if enough() {
			return nil
		}
		if s.entries[id].Loaded || keep[id] {
			continue
		}
		if err := s.removeEntry(id); err != nil {
			return err
		}
	}
	return nil
}

// errFull returns the error for a content that does not fit. The caller holds the lock.
func (s *Store) errFull() error {
	return fleet.Errorf(fleet.CodeUnavailable, "the store, of at most %d MiB, holds %d MiB and has no room for more: contents that allocations pin or that were loaded by hand stay",
		s.cfg.MaxBytes>>20, s.usedBytes()>>20).WithHint("start the edge with a larger --store-size, or run 'local store remove'")
}
