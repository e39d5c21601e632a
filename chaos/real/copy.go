package real

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// replaceData replaces the content of a data directory by that of a copy. The directory itself
// stays, since a disk may be mounted there.
func replaceData(copied, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace %s: %w", filepath.Base(dir), err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("replace %s: %w", filepath.Base(dir), err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("replace %s: %w", filepath.Base(dir), err)
	}
	if said, err := exec.Command("cp", "--archive", copied+"/.", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("replace %s: %w: %s", filepath.Base(dir), err, bytes.TrimSpace(said))
	}
	return nil
}
