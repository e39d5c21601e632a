package machinekey

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skerry/internal/datadir"
	"skerry/internal/durable"
)

const (
	// keyFile is the key's file in the data directory. asideFile has its former content while that is replaced.
	keyFile   = "identity/machine-key"
	asideFile = "identity/machine-key.old"
	// unfinished matches files that a killed agent was writing.
	unfinished = "identity/.machine-key.*"
)

// Labels of the steps of a replacement, for Config.Step. datadir.StepWrite is between the two.
const (
	StepAside = "set-machine-key-aside"
	StepErase = "erase-machine-key"
)

// replaceFile replaces the key's file durably, and erases its former content. A crash at any point leaves the former file or
// the new one, and cleanUp finishes it. An error means that the former file is still there.
func (s *Store) replaceFile(text []byte) error {
	path, aside := s.cfg.Dir.File(keyFile), s.cfg.Dir.File(asideFile)
	err := s.announceStep(StepAside)
	if err == nil {
		err = durable.Rename(path, aside)
	}
	former := !errors.Is(err, fs.ErrNotExist)
	if former && err != nil {
		return datadir.DiskError("set aside "+path, err)
	}
	if err := s.cfg.Dir.Write(keyFile, text, 0o600); err != nil {
		if former {
			err = errors.Join(err, durable.Rename(aside, path))
		}
		return err
	}
	if former {
		if err := s.eraseAside(); err != nil {
			s.cfg.Log.Warn("former file of the machine's key not erased: trying again at the next start", "path", aside, "error", err)
		}
	}
	return nil
}

func (s *Store) announceStep(label string) error {
	if s.cfg.Step == nil {
		return nil
	}
	return s.cfg.Step(label)
}

func (s *Store) eraseAside() error {
	err := s.announceStep(StepErase)
	if err == nil {
		err = durable.Erase(s.cfg.Dir.File(asideFile))
	}
	return err
}

// cleanUp finishes or takes back a replacement that a crash has cut off, and erases files that were never complete.
func (s *Store) cleanUp() error {
	path, aside := s.cfg.Dir.File(keyFile), s.cfg.Dir.File(asideFile)
	rests, err := filepath.Glob(s.cfg.Dir.File(unfinished))
	if err != nil {
		return fmt.Errorf("clean up after a replacement of the machine's key: %w", err)
	}
	for _, rest := range rests {
		if err := durable.Erase(rest); err != nil {
			s.cfg.Log.Warn("unfinished file of the machine's key not erased", "path", rest, "error", err)
		}
	}
	if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := durable.Rename(aside, path); err != nil {
			return datadir.DiskError("take back "+path, err)
		}
		return nil
	}
	if err := s.eraseAside(); err != nil {
		s.cfg.Log.Warn("former file of the machine's key not erased: trying again at the next start", "path", aside, "error", err)
	}
	return nil
}
