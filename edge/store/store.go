package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/durable"
)

// ErrMissing is returned for a key whose content is not in the store.
var ErrMissing = errors.New("not in the store")

// ErrDamaged is returned for a content that no longer matches its checksum. Open removes it, so that it can be fetched
// again.
var ErrDamaged = errors.New("the stored copy is damaged")

const (
	layoutVersion = "1\n"
	entryVersion  = 1
	maxEntries    = 10000
	maxRecord     = 256 << 10 // bytes of a file that is not a blob
)

// Config is the configuration of a Store.
type Config struct {
	Dir      string // made with mode 0700
	MaxBytes int64  // bound for blobs and downloads; at least 1
	// Step is called with the label of each write before it happens. An error makes the write fail. It is for tests;
	// nil does nothing.
	Step func(label string) error
	Now  func() time.Time // wall clock, shown in lists
	Log  *slog.Logger
}

// Entry is a content in the store.
type Entry struct {
	Version int
	Key     Key
	SHA256  string
	Size    int64
	Name    string    `json:",omitempty"` // of the file, if its source gave one
	Loaded  bool      `json:",omitempty"` // a person loaded it: it answers every request for its source
	Stored  time.Time // by the edge's wall clock
}

// Store is an open store.
type Store struct {
	cfg Config

	mu       sync.Mutex
	entries  map[string]Entry           // by id of the key
	uses     map[string]int64           // value of lastUse at the entry's last use, by id
	lastUse  int64                      // counts all uses
	pins     map[fleet.AllocID][]string // ids
	partials map[string]int64           // bytes, by id
	busy     map[string]chan struct{}   // by id: closed when the running download ends
	verified map[string]bool            // blobs whose checksum was verified since the start
}

// Open opens the store and removes what a crash left incomplete.
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" || cfg.MaxBytes < 1 || cfg.Now == nil || cfg.Log == nil {
		return nil, errors.New("open store: a folder, a size, a clock and a logger are required")
	}
	if cfg.Step == nil {
		cfg.Step = func(string) error { return nil }
	}
	s := &Store{
		cfg: cfg, entries: map[string]Entry{}, uses: map[string]int64{}, pins: map[fleet.AllocID][]string{},
		partials: map[string]int64{}, busy: map[string]chan struct{}{}, verified: map[string]bool{},
	}
	for _, dir := range []string{"blobs", "keys", "pins", "partial"} {
		if err := os.MkdirAll(s.pathOf(dir), 0o700); err != nil {
			return nil, fmt.Errorf("open store %s: %w", cfg.Dir, err)
		}
	}
	if err := s.checkVersion(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", cfg.Dir, err)
	}
	if err := errors.Join(s.readEntries(), s.readPins(), s.readPartials(), s.removeStrayBlobs()); err != nil {
		return nil, fmt.Errorf("open store %s: %w", cfg.Dir, err)
	}
	return s, nil
}

// MaxBytes returns the bound of the store.
func (s *Store) MaxBytes() int64 { return s.cfg.MaxBytes }

// Open opens the content for a key: the one of the same request, or the one with the key's sha256, or the one that a
// person loaded for its source. It verifies the checksums. It returns ErrMissing or ErrDamaged.
func (s *Store) Open(ctx context.Context, key Key) (*os.File, Entry, error) {
	s.mu.Lock()
	e, id, ok := s.findEntry(key)
	if !ok {
		s.mu.Unlock()
		return nil, Entry{}, fmt.Errorf("open stored %s: %w", key, ErrMissing)
	}
	verified := s.verified[e.SHA256] && e.Key.Checksum == key.Checksum
	s.useEntry(id)
	f, err := os.Open(s.blobPath(e.SHA256))
	s.mu.Unlock()
	if err != nil {
		s.dropBlob(e.SHA256)
		return nil, Entry{}, fmt.Errorf("open stored %s: %w: %w", key, ErrDamaged, err)
	}
	if !verified {
		err = s.verifyFile(ctx, f, e, key)
	}
	if err != nil {
		return nil, Entry{}, errors.Join(fmt.Errorf("open stored %s: %w", key, err), f.Close())
	}
	return f, e, nil
}

// Has reports whether the store has a content for a key. It does not verify it.
func (s *Store) Has(key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, ok := s.findEntry(key)
	return ok
}

// Listed is an entry as List returns it.
type Listed struct {
	Entry
	Pinned []fleet.AllocID `json:",omitempty"` // allocations that need it, and prefetches (PrefetchPin)
}

// List returns the entries, the most recently used first, without the options of their keys, which may be secret.
func (s *Store) List() []Listed {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Listed, 0, len(s.entries))
	ids := slices.SortedFunc(maps.Keys(s.entries), func(a, b string) int { return cmp.Compare(s.uses[b], s.uses[a]) })
	for _, id := range ids {
		l := Listed{Entry: s.entries[id]}
		l.Key.Options = nil
		for _, alloc := range slices.Sorted(maps.Keys(s.pins)) {
			if slices.Contains(s.pins[alloc], id) {
				l.Pinned = append(l.Pinned, alloc)
			}
		}
		list = append(list, l)
	}
	return list
}

// Used returns how many bytes the store holds.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usedBytes()
}

// Remove removes the entries of a source, so that the next request fetches it again. It returns their number.
func (s *Store) Remove(source string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for id, e := range s.entries {
		if e.Key.Source != source {
			continue
		}
		if err := s.removeEntry(id); err != nil {
			return n, fmt.Errorf("remove %s from the store: %w", e.Key, err)
		}
		n++
	}
	return n, nil
}

// findEntry returns the entry that answers a key, and its id.
func (s *Store) findEntry(key Key) (Entry, string, bool) {
	if e, ok := s.entries[key.ID()]; ok {
		return e, key.ID(), true
	}
	h, want := newHash(key.Checksum)
	byContent := h != nil && h.Size() == sha256.Size
	for id, e := range s.entries {
		if byContent && e.SHA256 == want || !byContent && e.Loaded && e.Key.Source == key.Source {
			return e, id, true
		}
	}
	return Entry{}, "", false
}

// verifyFile reads a blob and verifies its checksums. It drops a damaged one. A sound blob that does not match the
// key's checksum is a fleet.CodeInvalid.
func (s *Store) verifyFile(ctx context.Context, f *os.File, e Entry, key Key) error {
	own := sha256.New()
	asked, want := newHash(key.Checksum)
	into := io.Writer(own)
	if asked != nil {
		into = io.MultiWriter(own, asked)
	}
	if _, err := io.Copy(into, readerOf(ctx, f)); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.dropBlob(e.SHA256)
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if got := hex.EncodeToString(own.Sum(nil)); got != e.SHA256 {
		s.cfg.Log.Warn("stored content is damaged: dropped", "source", e.Key.String(), "sha256", e.SHA256)
		s.dropBlob(e.SHA256)
		return ErrDamaged
	}
	s.mu.Lock()
	s.verified[e.SHA256] = true
	s.mu.Unlock()
	if asked != nil && hex.EncodeToString(asked.Sum(nil)) != want {
		return wrongChecksum(key, hex.EncodeToString(asked.Sum(nil)))
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// wrongChecksum returns the error for a content without the checksum that the key asks for.
func wrongChecksum(key Key, got string) error {
	return fleet.Errorf(fleet.CodeInvalid, "the content of %s has the checksum %s, not %s", key, got, key.Checksum).
		WithHint("the source has changed, or the job's checksum is wrong: correct it in the job file")
}

// dropBlob removes a blob that is damaged, and the keys that name it.
func (s *Store) dropBlob(sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.entries {
		if e.SHA256 != sum {
			continue
		}
		if err := s.removeEntry(id); err != nil {
			s.cfg.Log.Warn("damaged entry not removed", "source", e.Key.String(), "error", err)
		}
	}
}

// removeEntry removes a key, and its blob if no other key names it. The caller holds the lock.
func (s *Store) removeEntry(id string) error {
	e, ok := s.entries[id]
	if !ok {
		return nil
	}
	if err := s.cfg.Step("remove-key"); err != nil {
		return err
	}
	if err := os.Remove(s.pathOf("keys", id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(s.entries, id)
	delete(s.uses, id)
	if s.hasBlob(e.SHA256) {
		return nil
	}
	delete(s.verified, e.SHA256)
	if err := s.cfg.Step("remove-blob"); err != nil {
		return err
	}
	if err := os.Remove(s.blobPath(e.SHA256)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// hasBlob reports whether an entry has that content. The caller holds the lock.
func (s *Store) hasBlob(sum string) bool {
	for _, e := range s.entries {
		if e.SHA256 == sum {
			return true
		}
	}
	return false
}

// useEntry records that an entry was just used. A loss of power may lose the record.
func (s *Store) useEntry(id string) {
	s.lastUse++
	s.uses[id] = s.lastUse
	at := time.Unix(s.lastUse, 0)
	if err := os.Chtimes(s.pathOf("keys", id), at, at); err != nil {
		s.cfg.Log.Debug("use of a stored content not noted", "error", err)
	}
}

// writeEntry makes a key durable, after its blob. The caller holds the lock.
func (s *Store) writeEntry(e Entry) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > maxRecord {
		return fleet.Errorf(fleet.CodeInvalid, "the request, with its options, is too long: %d bytes", len(text))
	}
	if err := s.cfg.Step("write-key"); err != nil {
		return err
	}
	id := e.Key.ID()
	if err := durable.Replace(s.pathOf("keys", id), text, 0o600); err != nil {
		return err
	}
	s.entries[id] = e
	s.useEntry(id)
	return nil
}

func (s *Store) pathOf(names ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, names...)...)
}

func (s *Store) blobPath(sum string) string { return s.pathOf("blobs", sum) }

// contextReader reads until its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func readerOf(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

// Read implements io.Reader.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
