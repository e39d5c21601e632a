package store

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"skerry/fleet"
	"skerry/internal/durable"
)

// checkVersion refuses the store of a newer release, and writes the version of a new one.
func (s *Store) checkVersion() error {
	text, err := readRecord(s.pathOf("version"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return durable.Replace(s.pathOf("version"), []byte(layoutVersion), 0o600)
	case err != nil:
		return err
	case string(text) != layoutVersion:
		return fleet.Errorf(fleet.CodeVersion, "it has the version %q, which this release does not read", strings.TrimSpace(string(text))).
			WithHint("run the release that wrote it, or remove the folder: its contents are fetched again")
	}
	return nil
}

// readEntries reads the keys. It removes a key that is not readable, or whose blob is missing or has another size.
func (s *Store) readEntries() error {
	list, err := os.ReadDir(s.pathOf("keys"))
	if err != nil {
		return err
	}
	for _, f := range list {
		e, err := s.readEntry(f.Name())
		if err != nil {
			s.cfg.Log.Warn("entry of the store dropped", "entry", f.Name(), "error", err)
			if err := os.Remove(s.pathOf("keys", f.Name())); err != nil {
				return err
			}
			continue
		}
		s.entries[f.Name()] = e
		if info, err := f.Info(); err == nil {
			s.uses[f.Name()] = info.ModTime().Unix()
			s.lastUse = max(s.lastUse, info.ModTime().Unix())
		}
	}
	return nil
}

func (s *Store) readEntry(id string) (Entry, error) {
	text, err := readRecord(s.pathOf("keys", id))
	if err != nil {
		return Entry{}, err
	}
	e, err := decodeEntry(text)
	if err != nil {
		return Entry{}, err
	}
	if e.Key.ID() != id {
		return Entry{}, errors.New("its name is not that of its key")
	}
	info, err := os.Stat(s.blobPath(e.SHA256))
	if err != nil {
		return Entry{}, err
	}
	if info.Size() != e.Size {
		return Entry{}, fmt.Errorf("its blob has %d bytes, not %d", info.Size(), e.Size)
	}
	return e, nil
}

// decodeEntry reads the JSON of a key.
func decodeEntry(text []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	if e.Version != entryVersion {
		return e, fmt.Errorf("it has the version %d", e.Version)
	}
	if b, err := hex.DecodeString(e.SHA256); err != nil || len(b) != 32 || e.Size < 0 {
		return e, errors.New("it names no blob")
	}
	return e, nil
}

// readPartials reads the sizes of interrupted downloads. It removes those without a mark.
func (s *Store) readPartials() error {
	list, err := os.ReadDir(s.pathOf("partial"))
	if err != nil {
		return err
	}
	for _, f := range list {
		id, isMark := strings.CutSuffix(f.Name(), markSuffix)
		_, err := os.Stat(s.pathOf("partial", id))
		if _, markErr := s.readMark(id); err == nil && markErr == nil {
			if info, err := f.Info(); err == nil && !isMark {
				s.partials[id] = info.Size()
			}
			continue
		}
		if err := os.Remove(s.pathOf("partial", f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeStrayBlobs removes the blobs that a crash left without a key.
func (s *Store) removeStrayBlobs() error {
	list, err := os.ReadDir(s.pathOf("blobs"))
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, e := range s.entries {
		named[e.SHA256] = true
	}
	for _, f := range list {
		if named[f.Name()] {
			continue
		}
		if err := os.RemoveAll(s.pathOf("blobs", f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// readRecord reads a small file of the store.
func readRecord(path string) (text []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err = io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("read %s: it is longer than %d bytes", path, maxRecord)
	}
	return text, err
}
