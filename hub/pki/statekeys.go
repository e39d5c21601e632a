package pki

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/datadir"
	"skerry/internal/durable"
)

// The file of the state keys has one key a line: stateKeyPrefix and the key in base64, or wrappedKeyPrefix, the kind of the
// KeyWrapper, the key's name, and the wrapped key.
const (
	fileStateKey     = "state-key"
	stateKeyPrefix   = "skerry-state-key-1"
	wrappedKeyPrefix = "skerry-state-key-2"
	// maxStateKeys bounds the keys that a hub keeps until it knows the valid one.
	maxStateKeys    = 16
	maxStateKeyFile = 256 << 10
	// settleTimeout bounds what Settle asks of a KeyWrapper.
	settleTimeout = 15 * time.Second
)

// KeyWrapper encrypts the state keys that a hub has on its disk, with a key that is elsewhere.
type KeyWrapper interface {
	// Kind is the word for it in the file of the keys, such as "transit".
	Kind() string
	// Wrap returns text without spaces.
	Wrap(ctx context.Context, plain []byte) (wrapped string, err error)
	// Unwrap reverses Wrap. Its error says what to do.
	Unwrap(ctx context.Context, wrapped string) ([]byte, error)
}

// StateKeysConfig configures StateKeys. Dir and Log are required.
type StateKeysConfig struct {
	Dir     string     // of the identity
	Wrapper KeyWrapper // nil: wrapped keys cannot be opened
	Wrap    bool       // the file has the keys wrapped by Wrapper; false: in clear
	Log     *slog.Logger
}

// StateKeys are the state keys that a hub has, in memory and in a file of mode 0600. They are safe for concurrent use.
type StateKeys struct {
	cfg StateKeysConfig

	saving  sync.Mutex // held while the file is written and while a KeyWrapper is asked, and before mu
	settled bool       // the file is as the configuration says; guarded by saving
	said    string     // the last error of Settle; guarded by saving

	mu       sync.Mutex
	kept     []keptKey
	borrowed []StateKey // known, and never written to the file
	failed   error      // why keys are still wrapped
}

// keptKey is a state key as the file has it.
type keptKey struct {
	id      string
	key     StateKey
	open    bool   // key is known
	kind    string // of the KeyWrapper; "": the file has it in clear
	wrapped string
	unsaved bool // the file does not have it
}

// OpenStateKeys reads the file of the keys. Keys that are wrapped there are not known before Settle.
func OpenStateKeys(cfg StateKeysConfig) (*StateKeys, error) {
	s := &StateKeys{cfg: cfg}
	rests, err := filepath.Glob(filepath.Join(cfg.Dir, "."+fileStateKey+".*")) // what a killed hub was writing
	for _, rest := range rests {
		err = errors.Join(err, durable.Erase(rest))
	}
	if err != nil {
		return nil, datadir.DiskError("clean up the state key's folder", err)
	}
	path := s.filePath()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state key: %w", err)
	}
	if s.kept, err = parseStateKeys(string(text)); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read %s: %w", path, err).
			WithHint("remove the file, and this hub fetches the key when it reaches another hub; or copy the file from another hub")
	}
	s.settled = !cfg.Wrap && !slices.ContainsFunc(s.kept, func(k keptKey) bool { return k.kind != "" })
	return s, nil
}

func parseStateKeys(text string) (kept []keptKey, err error) {
	if len(text) > maxStateKeyFile {
		return nil, fmt.Errorf("it has %d bytes", len(text))
	}
	for line := range strings.Lines(text) {
		var k keptKey
		switch words := strings.Fields(line); {
		case len(words) == 0:
			continue
		case len(words) == 2 && words[0] == stateKeyPrefix:
			b, err := base64.StdEncoding.DecodeString(words[1])
			if err != nil || len(b) != stateKeyBytes {
				return nil, errors.New("a state key in it is damaged")
			}
			k = keptKey{id: StateKey(b).ID(), key: StateKey(b), open: true}
		case len(words) == 4 && words[0] == wrappedKeyPrefix:
			k = keptKey{id: words[2], kind: words[1], wrapped: words[3]}
		default:
			return nil, errors.New("it is not a list of state keys")
		}
		if kept = append(kept, k); len(kept) > maxStateKeys {
			return nil, fmt.Errorf("it has more than %d state keys", maxStateKeys)
		}
	}
	return kept, nil
}

func formatStateKeys(kept []keptKey) []byte {
	var text strings.Builder
	for _, k := range kept {
		switch {
		case k.unsaved:
		case k.kind == "":
			fmt.Fprintf(&text, "%s %s\n", stateKeyPrefix, base64.StdEncoding.EncodeToString(k.key[:]))
		default:
			fmt.Fprintf(&text, "%s %s %s %s\n", wrappedKeyPrefix, k.kind, k.id, k.wrapped)
		}
	}
	return []byte(text.String())
}

// Known returns the keys that are not wrapped any more: the borrowed ones, then the others, the oldest first.
func (s *StateKeys) Known() (keys []StateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys = slices.Clone(s.borrowed)
	for _, k := range s.kept {
		if k.open {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// findKey returns a known key by its name.
func (s *StateKeys) findKey(id string) (StateKey, bool) {
	keys := s.Known()
	i := slices.IndexFunc(keys, func(key StateKey) bool { return key.ID() == id })
	if i < 0 {
		return StateKey{}, false
	}
	return keys[i], true
}

// missingKey returns the error for something that is sealed with the key named id, which is not known. what begins the
// message, up to "they are" or "it is".
func (s *StateKeys) missingKey(what, id string) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.kept, func(k keptKey) bool { return k.id == id && !k.open })
	failed := s.failed
	s.mu.Unlock()
	if i < 0 || failed == nil {
		return missingStateKey(what, id, s.Known())
	}
	return fleet.Errorf(fleet.CodeUnavailable, "%s sealed with the state key %s, which this hub has only wrapped: %w", what, id, failed).
		WithHint("this hub tries again every minute, and asks the other hubs for the key")
}

// filePath returns the path of the file of the keys.
func (s *StateKeys) filePath() string { return filepath.Join(s.cfg.Dir, fileStateKey) }

// Check fails if the KeyWrapper, where keys are to be wrapped, does not give back what it wraps.
func (s *StateKeys) Check(ctx context.Context) error {
	if !s.cfg.Wrap {
		return nil
	}
	sample := make([]byte, stateKeyBytes)
	rand.Read(sample) // never fails
	wrapped, err := s.wrapKey(ctx, sample)
	if err != nil {
		return err
	}
	again, err := s.cfg.Wrapper.Unwrap(ctx, wrapped)
	if err == nil && string(again) != string(sample) {
		err = fleet.Errorf(fleet.CodeInvalid, "wrap a state key by %s: it gives back another key", s.cfg.Wrapper.Kind())
	}
	return err
}

func (s *StateKeys) wrapKey(ctx context.Context, plain []byte) (string, error) {
	wrapped, err := s.cfg.Wrapper.Wrap(ctx, plain)
	if err == nil && (wrapped == "" || strings.ContainsFunc(wrapped, func(r rune) bool { return r <= ' ' || r > '~' }) || len(wrapped) > maxStateKeyFile/2/maxStateKeys) {
		err = fleet.Errorf(fleet.CodeInvalid, "wrap a state key by %s: its answer is not a wrapped key", s.cfg.Wrapper.Kind())
	}
	return wrapped, err
}

// Add keeps a key, first durably on disk, then in memory. Without the oldest one, if there are too many.
func (s *StateKeys) Add(ctx context.Context, key StateKey) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	kept := s.copyKept()
	i := slices.IndexFunc(kept, func(k keptKey) bool { return k.id == key.ID() })
	if i < 0 {
		next := keptKey{id: key.ID(), key: key, open: true}
		if s.cfg.Wrap {
			wrapped, err := s.wrapKey(ctx, key[:])
			if err != nil {
				return fmt.Errorf("keep the state key: %w", err)
			}
			next.kind, next.wrapped = s.cfg.Wrapper.Kind(), wrapped
		}
		kept = append(kept, next)
		kept = kept[max(0, len(kept)-maxStateKeys):]
		if err := s.writeFile(kept); err != nil {
			return err
		}
	} else {
		kept[i].key, kept[i].open = key, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = kept
	return nil
}

// IsStored reports whether the file has a key, in clear or wrapped.
func (s *StateKeys) IsStored(id string) bool {
	return slices.ContainsFunc(s.copyKept(), func(k keptKey) bool { return k.id == id && !k.unsaved })
}

// Forget removes a key from the file, which is overwritten, and then from memory.
func (s *StateKeys) Forget(id string) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	kept := s.copyKept()
	left := slices.DeleteFunc(slices.Clone(kept), func(k keptKey) bool { return k.id == id })
	if len(left) == len(kept) {
		return nil
	}
	if err := s.writeFile(left); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = left
	return nil
}

// oldestBut returns the oldest of the keys that are not named; "": there is none.
func (s *StateKeys) oldestBut(names []string) string {
	kept := s.copyKept()
	i := slices.IndexFunc(kept, func(k keptKey) bool { return !slices.Contains(names, k.id) })
	if i < 0 {
		return ""
	}
	return kept[i].id
}

// isFull reports whether another key would make Add forget one.
func (s *StateKeys) isFull() bool { return len(s.copyKept()) >= maxStateKeys }

// holdInMemory adds a key that cannot be written now: Settle writes it later.
func (s *StateKeys) holdInMemory(key StateKey) {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.settled = false
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, keptKey{id: key.ID(), key: key, open: true, unsaved: true})
}

// borrowKey adds a key that is to be in memory alone.
func (s *StateKeys) borrowKey(key StateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.borrowed = append(s.borrowed, key)
}

// dropBorrowed removes a key that is in memory alone.
func (s *StateKeys) dropBorrowed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.borrowed = slices.DeleteFunc(s.borrowed, func(key StateKey) bool { return key.ID() == id })
}

// borrowedKeys returns the keys that are in memory alone.
func (s *StateKeys) borrowedKeys() []StateKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.borrowed)
}

func (s *StateKeys) copyKept() []keptKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// Settle unwraps the keys that are still wrapped. Once all are known it writes the file as the configuration says, and wraps
// each key anew, by the newest version of what wraps. It logs each new error once; nothing is left to do after nil.
func (s *StateKeys) Settle(ctx context.Context) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.settled {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := s.unwrapKept(ctx)
	if err == nil {
		err = s.rewriteFile(ctx)
	}
	if err == nil {
		s.settled, s.said = true, ""
		return nil
	}
	if text := err.Error(); text != s.said {
		s.said = text
		s.cfg.Log.Error("state keys on the disk are not as configured, trying again", "error", err)
	}
	return err
}

// unwrapKept unwraps the keys that are not known. saving is locked.
func (s *StateKeys) unwrapKept(ctx context.Context) error {
	kept := s.copyKept()
	var errs []error
	for i, k := range kept {
		if k.open {
			continue
		}
		key, err := s.unwrapKey(ctx, k)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		kept[i].key, kept[i].open = key, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept, s.failed = kept, errors.Join(errs...)
	return s.failed
}

func (s *StateKeys) unwrapKey(ctx context.Context, k keptKey) (StateKey, error) {
	if s.cfg.Wrapper == nil || s.cfg.Wrapper.Kind() != k.kind {
		return StateKey{}, fleet.Errorf(fleet.CodeUnavailable, "unwrap the state key %s: it is wrapped by %s, which this hub is not configured for", k.id, k.kind).
			WithHint("give the hub the flags --keyring-%s-…", k.kind)
	}
	plain, err := s.cfg.Wrapper.Unwrap(ctx, k.wrapped)
	if err != nil {
		return StateKey{}, fmt.Errorf("unwrap the state key %s: %w", k.id, err)
	}
	key, err := ParseStateKey(plain)
	if err == nil && key.ID() != k.id {
		err = fleet.Errorf(fleet.CodeInvalid, "unwrap the state key %s: it is another one, %s", k.id, key.ID())
	}
	return key, err
}

// rewriteFile writes the file as the configuration says. All keys are known, and saving is locked.
func (s *StateKeys) rewriteFile(ctx context.Context) error {
	kept := s.copyKept()
	for i := range kept {
		kept[i].kind, kept[i].wrapped, kept[i].unsaved = "", "", false
		if !s.cfg.Wrap {
			continue
		}
		wrapped, err := s.wrapKey(ctx, kept[i].key[:])
		if err != nil {
			return fmt.Errorf("wrap the state key %s: %w", kept[i].id, err)
		}
		kept[i].kind, kept[i].wrapped = s.cfg.Wrapper.Kind(), wrapped
	}
	if len(kept) > 0 {
		if err := s.writeFile(kept); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = kept
	return nil
}

// writeFile replaces the file, and overwrites what it had before.
func (s *StateKeys) writeFile(kept []keptKey) error {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return datadir.DiskError("keep the state key", err)
	}
	if err := durable.ReplaceErased(s.filePath(), formatStateKeys(kept), 0o600); err != nil {
		return datadir.DiskError("keep the state key", err)
	}
	return nil
}
