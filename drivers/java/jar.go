package java

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"skerry/drivers"
	"skerry/fleet"
)

// place is a folder of the task: its path on the machine, and where the task sees it.
type place struct{ host, inside string }

// checkJar returns an error if the jar of a task is missing or no complete zip archive: Java would exit with the code 1 and no
// event would say why. It checks only jars in the task's own folders, found without links that leave them. mounted are the
// paths in an isolated task that show something else; workDir is the working directory.
func checkJar(cfg drivers.TaskConfig, jar, workDir string, isolated bool, mounted []string) error {
	places := []place{{cfg.LocalDir, cfg.LocalDir}, {cfg.AllocDir, cfg.AllocDir}, {cfg.Dir, cfg.Dir}}
	if isolated {
		places = []place{
			{cfg.LocalDir, drivers.LocalPath}, {cfg.AllocDir, drivers.AllocPath}, {cfg.SecretsDir, drivers.SecretsPath}, {cfg.Dir, "/"},
		}
	}
	if !path.IsAbs(jar) {
		jar = path.Join(workDir, jar)
	}
	jar = path.Clean(jar)
	for _, dir := range mounted {
		if isolated && isBelow(dir, jar) {
			return nil
		}
	}
	for _, p := range places {
		if p.host == "" || !isBelow(p.inside, jar) {
			continue
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(jar, p.inside), "/")
		return checkJarIn(p.host, cmp.Or(rel, "."), jar)
	}
	return nil
}

// isBelow reports whether a clean path is a folder, or in it.
func isBelow(dir, file string) bool {
	rel, err := filepath.Rel(path.Clean(dir), file)
	return err == nil && filepath.IsLocal(rel)
}

// checkJarIn checks the jar at the path rel in a folder; jar is its path as the task sees it.
func checkJarIn(dir, rel, jar string) error {
	root, err := os.OpenRoot(dir)
	if err == nil {
		defer root.Close()
		err = checkArchive(root, rel)
	}
	switch {
	case err == nil || root != nil && leadsAway(root, rel):
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return drivers.Recoverable(fleet.Errorf(fleet.CodeInvalid, "there is no jar %s", jar).
			WithHint("an artifact block can fetch it: jar_path is relative to the working directory, so a file in the task's local folder is local/app.jar"))
	case errors.Is(err, errArchive):
		return drivers.Recoverable(fleet.Errorf(fleet.CodeInvalid, "jar %s: %w", jar, err).
			WithHint("check that the artifact is complete: unzip -t tests a jar"))
	}
	return nil // the agent cannot read it; the task may be able to
}

// leadsAway reports whether a part of a path is a symbolic link, which the task may resolve to another file.
func leadsAway(root *os.Root, rel string) bool {
	for at := rel; at != "." && at != "/"; at = path.Dir(at) {
		if info, err := root.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// errArchive marks the errors of a file that is no complete zip archive.
var errArchive = errors.New("it is no jar")

// Parts of a zip archive: its last record, which a comment may follow, and the records of its directory before that.
const (
	endSignature = "PK\x05\x06"
	dirSignature = "PK\x01\x02"
	endSize      = 22
	maxComment   = 1<<16 - 1
)

// checkArchive returns an error if a file is no complete zip archive. It reads the end only, as Java does first.
func checkArchive(root *os.Root, name string) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold up the start
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is not a file", errArchive)
	case info.Size() == 0:
		return fmt.Errorf("%w: it is empty", errArchive)
	}
	start := max(0, info.Size()-endSize-maxComment)
	tail, err := io.ReadAll(io.NewSectionReader(f, start, info.Size()-start))
	if err != nil {
		return err
	}
	for at := len(tail); ; {
		if at = bytes.LastIndex(tail[:at], []byte(endSignature)); at < 0 {
			return fmt.Errorf("%w: it is no zip archive, or cut off", errArchive)
		}
		if len(tail)-at >= endSize && hasDirectory(f, tail[at:], start+int64(at)) {
			return nil
		}
	}
}

// hasDirectory reports whether the directory of an archive is before its last record, which is at the offset at.
func hasDirectory(f io.ReaderAt, end []byte, at int64) bool {
	entries, size := binary.LittleEndian.Uint16(end[10:]), binary.LittleEndian.Uint32(end[12:])
	if entries == 1<<16-1 || size == 1<<32-1 {
		return true // a larger archive has its directory described in another record
	}
	first := make([]byte, len(dirSignature))
	if entries == 0 || int64(size) > at {
		return false
	}
	_, err := f.ReadAt(first, at-int64(size))
	return err == nil && string(first) == dirSignature
}
