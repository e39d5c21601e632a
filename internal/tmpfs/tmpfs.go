// Package tmpfs mounts file systems in memory on folders, and finds them again: they outlive the process that mounted
// them, and end with the boot of the machine. Only Linux has them, and mounting needs root. It starts no goroutine.
package tmpfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// ErrUnavailable is the error of a machine on which nothing can be mounted.
var ErrUnavailable = errors.New("file systems in memory need Linux")

// Mount is a mounted file system in memory.
type Mount struct {
	Dir    string // absolute, without links
	Source string // the text that Attach was given
}

// Below returns the file systems in memory that are mounted on dir or below it with a source that begins with prefix,
// in the order in which they were mounted.
func Below(dir, prefix string) ([]Mount, error) {
	entries, err := readMounts()
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var found []Mount
	for _, e := range entries {
		if e.kind == "tmpfs" && strings.HasPrefix(e.source, prefix) && isBelow(e.dir, dir) {
			found = append(found, Mount{Dir: e.dir, Source: e.source})
		}
	}
	return found, nil
}

// DetachBelow detaches the file systems that Below returns for the folder, the newest first.
func DetachBelow(dir, prefix string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find mounts: %w", err)
	}
	found, err := Below(dir, prefix)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(found) {
		errs = append(errs, m.Detach())
	}
	return errors.Join(errs...)
}

// WhyUnseen returns the reason why other programs of this machine do not see what this process mounts below dir, or "".
// Such a process was started with mounts of its own, for example by PrivateTmp of systemd.
func WhyUnseen(dir string) (string, error) {
	if !hasOwnMounts() {
		return "", nil
	}
	entries, err := readMounts()
	if err != nil {
		return "", fmt.Errorf("list mounts: %w", err)
	}
	var holder entry
	for _, e := range entries {
		if isBelow(dir, e.dir) && len(e.dir) >= len(holder.dir) {
			holder = e
		}
	}
	if holder.isShared() {
		return "", nil
	}
	return fmt.Sprintf("this process has mounts of its own, and those below %s are not shared with the machine", holder.dir), nil
}

// isBelow reports whether a clean path is the folder or lies below it.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// entry is a line of the list of mounts.
type entry struct {
	dir, kind, source string
	tags              []string // such as shared:1 and master:1
}

// isShared reports whether mounts below the entry appear in the machine's own list.
func (e entry) isShared() bool {
	has := func(prefix string) bool {
		return slices.ContainsFunc(e.tags, func(tag string) bool { return strings.HasPrefix(tag, prefix) })
	}
	return has("shared:") && !has("master:")
}

// parseMounts reads the lines of /proc/self/mountinfo, as proc(5) has them. It skips others.
func parseMounts(text string) []entry {
	const (
		dirAt  = 4
		tagsAt = 6
	)
	var entries []entry
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < tagsAt || len(right) < 2 {
			continue
		}
		entries = append(entries, entry{
			dir: unescape(left[dirAt]), kind: right[0], source: unescape(right[1]), tags: left[tagsAt:],
		})
	}
	return entries
}

// unescape replaces \NNN, an octal number, by its byte.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && isOctal(s[i+1:i+4]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// isOctal reports whether three digits are those of a byte in octal.
func isOctal(s string) bool {
	return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7'
}
