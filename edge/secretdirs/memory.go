package secretdirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"skerry/fleet"
	"skerry/internal/tmpfs"
)

// memoryMB bounds the file system of Config.Memory, for all tasks together. An environment with its container's
// configuration takes some 30 KiB.
const memoryMB = 64

// MemoryDir makes a folder in memory for an attempt of a task, and removes those of its earlier attempts. A
// fleet.CodeUnsupported says why this machine has none.
func (h *Hook) MemoryDir(id fleet.AllocID, task string, attempt int) (string, error) {
	switch why, err := h.whyUnmountable(); {
	case err != nil:
		return "", fmt.Errorf("try to mount a folder in memory: %w", err)
	case why != "":
		return "", fleet.Errorf(fleet.CodeUnsupported, "this edge keeps the environment of its tasks on its disk: %s", why)
	}
	h.memory.Lock()
	defer h.memory.Unlock()
	root, err := h.mountMemory()
	if err != nil {
		return "", err
	}
	dir, name := filepath.Join(root, string(id), task), strconv.Itoa(attempt)
	if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
		return "", fmt.Errorf("make a folder in memory for task %s: %w", task, err)
	}
	others, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("find the folders in memory of task %s: %w", task, err)
	}
	for _, other := range others {
		if other.Name() != name {
			if err := os.RemoveAll(filepath.Join(dir, other.Name())); err != nil {
				return "", fmt.Errorf("remove the folder in memory of an earlier attempt: %w", err)
			}
		}
	}
	return filepath.Join(dir, name), nil
}

// mountMemory mounts Config.Memory unless it is mounted, and returns its path without links.
func (h *Hook) mountMemory() (string, error) {
	dir, err := resolveFolder(h.cfg.Memory)
	if err != nil {
		return "", err
	}
	return dir, h.ensureMount(dir, memoryMB)
}

// removeMemory removes what Config.Memory has of ended allocations, and unmounts it if nothing is left.
func (h *Hook) removeMemory(hasEnded func(fleet.AllocID) bool) error {
	h.memory.Lock()
	defer h.memory.Unlock()
	entries, err := os.ReadDir(h.cfg.Memory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the folders in memory: %w", err)
	}
	left := 0
	for _, e := range entries {
		if !hasEnded(fleet.AllocID(e.Name())) {
			left++
		} else if err := os.RemoveAll(filepath.Join(h.cfg.Memory, e.Name())); err != nil {
			return fmt.Errorf("remove the folder in memory of an ended allocation: %w", err)
		}
	}
	if left > 0 {
		return nil
	}
	return tmpfs.DetachBelow(h.cfg.Memory, SourcePrefix)
}
