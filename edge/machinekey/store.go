package machinekey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/datadir"
	"skerry/internal/pace"
	"skerry/internal/sealing"
)

// Place is where the machine's key is kept.
type Place string

// The places of the key.
const (
	PlaceTPM        Place = "tpm"     // its file is sealed by the TPM
	PlaceCredential Place = "systemd" // its file is sealed by a credential of systemd
	PlaceFile       Place = "file"    // its file has it in clear
	// PlaceMemory: the kept key cannot be had, and another one, in memory alone, encrypts until the agent ends, or until
	// that one is kept.
	PlaceMemory Place = "memory"
)

// Errors of a Keeper, wrapped.
var (
	// ErrAbsent: the machine does not have what seals.
	ErrAbsent = errors.New("it is not there")
	// ErrForeign: what this machine has did not seal the key, and never opens it.
	ErrForeign = errors.New("another one sealed it")
)

// Keeper seals the machine's key by something that is not in the data directory.
type Keeper interface {
	Place() Place
	Seal(plain []byte) (sealed []byte, err error)
	Unseal(sealed []byte) (plain []byte, err error)
}

// Config of a Store. Dir and Log are required.
type Config struct {
	Dir *datadir.Dir
	// Keepers that this machine may have, the preferred one first. A file is always possible.
	Keepers []Keeper
	// Wanted is where the key has to be; "": where it is, and in a new data directory at the first Keeper that works.
	Wanted Place
	// Step is called before each step of a replacement, with its label; an error makes it fail. nil: nothing.
	Step func(label string) error
	Log  *slog.Logger
}

// keepRetryInterval is the pause between two tries to keep the key that is in memory.
const keepRetryInterval = time.Minute

// Status says how the key is kept.
type Status struct {
	Place  Place
	Wanted Place  // "": Place, or none
	Error  string // why the key is not at Wanted, or cannot be had
}

// Store keeps the machine's key. Its methods may be called from any goroutine.
type Store struct {
	// Set once, by Open.
	cfg Config
	raw []byte
	key *Key
	// afterAnswer says that the key in memory is kept as soon as a hub has answered, at keepAt, or where one works for "".
	afterAnswer bool
	keepAt      Place

	answered, revoked         chan struct{} // closed by NoteAnswer and NoteRevoked
	answeredOnce, revokedOnce sync.Once

	mu     sync.Mutex
	status Status
}

// Open reads the key, or makes one for a new data directory, and moves it to the wanted place. It fails for the disk, and
// for a new data directory whose key cannot be at the wanted place. Otherwise the edge has to start, whatever became of its
// key: tasks that need no secret run. Status says what is wrong.
func Open(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, answered: make(chan struct{}), revoked: make(chan struct{})}
	if err := s.cleanUp(); err != nil {
		return nil, err
	}
	text, found, err := cfg.Dir.Read(keyFile)
	if err != nil {
		return nil, err
	}
	if !found {
		return s, s.makeKey()
	}
	f, err := parseFile(text)
	if err != nil {
		s.useMemory("", true, err)
		return s, nil
	}
	raw, err := s.unsealFile(f)
	if err != nil {
		s.useMemory(f.place, errors.Is(err, ErrForeign), err)
		return s, nil
	}
	s.raw, s.key, s.status.Place = raw, mustKeyOf(raw), f.place
	s.moveKey(f.place)
	return s, nil
}

// Key returns the key.
func (s *Store) Key() *Key { return s.key }

// Status returns how the key is kept.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// NoteAnswer says that a hub has answered: it sends all secrets again that this edge cannot decrypt.
func (s *Store) NoteAnswer() { s.answeredOnce.Do(func() { close(s.answered) }) }

// NoteRevoked says that the cluster has expelled this edge: Run erases the kept key.
func (s *Store) NoteRevoked() { s.revokedOnce.Do(func() { close(s.revoked) }) }

// Run keeps a key that replaces one which is lost, once a hub has answered. Once the edge is revoked, it keeps one that
// nobody has in place of the one that encrypted, which the agent uses until it ends: nothing on the disk can be decrypted
// after that. It returns then, or when ctx ends.
func (s *Store) Run(ctx context.Context) error {
	answered := s.answered
	if !s.afterAnswer {
		answered = nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-answered:
			answered = nil
			if place, kept := s.keepUntilDone(ctx, s.keepAt, s.raw); kept {
				s.mu.Lock()
				s.status = Status{Place: place}
				s.mu.Unlock()
				s.cfg.Log.Warn("lost key of the machine replaced: hubs deliver the secrets again", "kept", string(place))
			}
		case <-s.revoked:
			place := s.Status().Place
			if place == PlaceMemory {
				place = ""
			}
			if _, kept := s.keepUntilDone(ctx, place, sealing.DrawKey()); kept {
				s.cfg.Log.Warn("key of the machine erased, as this edge is revoked: tasks have their secrets until they or the agent end")
			}
			return nil
		}
	}
}

// keepUntilDone keeps a key as keepKey does. It tries again after errors, until ctx ends.
func (s *Store) keepUntilDone(ctx context.Context, at Place, raw []byte) (place Place, kept bool) {
	for said := ""; ; {
		place, err := s.keepKey(at, raw)
		if err == nil {
			return place, true
		}
		if text := err.Error(); text != said {
			said = text
			s.cfg.Log.Error("key of the machine is not kept: trying again", "error", err)
		}
		if !pace.Rest(ctx, keepRetryInterval) {
			return "", false
		}
	}
}

// makeKey draws the key of a new data directory and keeps it.
func (s *Store) makeKey() (err error) {
	s.drawKey()
	s.status.Place, err = s.keepKey(s.cfg.Wanted, s.raw)
	return err
}

func (s *Store) drawKey() {
	s.raw = sealing.DrawKey()
	s.key = mustKeyOf(s.raw)
}

// unsealFile returns the key of a file.
func (s *Store) unsealFile(f file) ([]byte, error) {
	if f.place == PlaceFile {
		return f.content, nil
	}
	k, err := s.keeperAt(f.place)
	if err != nil {
		return nil, err
	}
	raw, err := k.Unseal(f.content)
	if err == nil && len(raw) != sealing.KeyBytes {
		err = fleet.Errorf(fleet.CodeInvalid, "unseal the machine's key: it has %d bytes, not %d: %w", len(raw), sealing.KeyBytes, ErrForeign)
	}
	return raw, err
}

func (s *Store) keeperAt(place Place) (Keeper, error) {
	for _, k := range s.cfg.Keepers {
		if k.Place() == place {
			return k, nil
		}
	}
	return nil, fleet.Errorf(fleet.CodeUnsupported, "keep the machine's key at %q: this agent does not know that place", place)
}

// useMemory goes on with a key that is in memory alone. was is the place of the one that cannot be had, "" where that is
// not known. It is replaced after a hub's answer if it is lost, or if it shall be elsewhere.
func (s *Store) useMemory(was Place, lost bool, why error) {
	s.drawKey()
	s.keepAt = s.cfg.Wanted
	if s.keepAt == "" {
		s.keepAt = was
	}
	s.afterAnswer = lost || s.keepAt != was
	s.status = Status{PlaceMemory, s.keepAt, why.Error()}
	s.cfg.Log.Error("key of the machine cannot be had: tasks run, without the secrets that this edge has on its disk", "kept", string(was), "error", why)
}

// moveKey moves the key to the wanted place. If that fails, it stays where it is.
func (s *Store) moveKey(from Place) {
	if s.cfg.Wanted == "" || s.cfg.Wanted == from {
		return
	}
	if _, err := s.keepKey(s.cfg.Wanted, s.raw); err != nil {
		s.status.Wanted, s.status.Error = s.cfg.Wanted, err.Error()
		s.cfg.Log.Error("key of the machine stays where it is", "kept", string(from), "wanted", string(s.cfg.Wanted), "error", err)
		return
	}
	s.status.Place = s.cfg.Wanted
	s.cfg.Log.Info("key of the machine moved", "from", string(from), "kept", string(s.cfg.Wanted))
}

// keepKey writes the file of a key for a place, or for the first one that works for "", and returns that.
func (s *Store) keepKey(place Place, raw []byte) (Place, error) {
	if place != "" {
		text, err := s.textFor(place, raw)
		if err == nil {
			err = s.replaceFile(text)
		}
		return place, err
	}
	for _, k := range s.cfg.Keepers {
		text, err := s.textFor(k.Place(), raw)
		if err == nil {
			return k.Place(), s.replaceFile(text)
		}
		if !errors.Is(err, ErrAbsent) {
			s.cfg.Log.Warn("key of the machine is not kept there: trying the next place", "place", string(k.Place()), "error", err)
		}
	}
	return PlaceFile, s.replaceFile(clearText(raw))
}

// textFor returns the text of a key's file for a place. It has checked that the place gives the key back.
func (s *Store) textFor(place Place, raw []byte) ([]byte, error) {
	if place == PlaceFile {
		return clearText(raw), nil
	}
	k, err := s.keeperAt(place)
	if err != nil {
		return nil, err
	}
	sealed, err := k.Seal(raw)
	if err != nil {
		return nil, err
	}
	again, err := k.Unseal(sealed)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, raw) {
		return nil, fmt.Errorf("keep the machine's key: %s gives back another key", place)
	}
	return sealedText(place, sealed), nil
}
