// Package secretdirs keeps the secrets folders of tasks in memory: each is a file system of its own, which is mounted
// before an attempt of the task and removed after the end of the allocation. The mounts outlive the agent, so that a
// restarted one finds them; a reboot ends them, and the hooks that follow write the files again. One more file system is the
// agent's own: drivers keep there the environment of tasks that have secrets in it.
//
// If nothing can be mounted (no root, no Linux, an agent with mounts of its own), the folder stays on the disk, with
// mode 0700. The attribute fleet.AttributeSecretsInMemory of the node says which it is. The package is a hook of
// edge/runner, starts no goroutine, and persists nothing.
package secretdirs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/internal/tmpfs"
)

// SourcePrefix begins the source of the mounts of this package in the machine's list of mounts. The boot id follows.
const SourcePrefix = "skerry-secrets:"

// DefaultSizeMB is the size of a secrets folder unless the task's resources say otherwise, as in Nomad.
const DefaultSizeMB = 1

// probeDir is the name of the folder, beside those of allocations, on which the first mount is tried.
const probeDir = ".secrets-probe"

// Config of a Hook. All fields but BootID are required.
type Config struct {
	Allocs string       // folder of the allocations' folders, absolute
	Memory string       // folder of the agent itself for what else may not be on the disk, absolute
	BootID fleet.BootID // of a simulated boot: a mount of another boot is not used again; "": the machine's
	Log    *slog.Logger
}

// Hook mounts the secrets folders of tasks. It implements runner.Hook. Its methods may be called from any goroutine.
type Hook struct {
	cfg Config

	probing sync.Mutex
	probed  bool   // reason is known
	reason  string // why nothing can be mounted; "": it can

	memory sync.Mutex // held while something below Config.Memory is made or removed
}

// New makes the hook. It looks at nothing.
func New(cfg Config) (*Hook, error) {
	if !filepath.IsAbs(cfg.Allocs) || !filepath.IsAbs(cfg.Memory) || cfg.Log == nil {
		return nil, errors.New("make the hook of secrets folders: two absolute folders and a logger are required")
	}
	return &Hook{cfg: cfg}, nil
}

// lacks are the errors of something that is exhausted now and may be there later.
var lacks = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EINTR, syscall.EIO}

// whyUnmountable returns why nothing can be mounted for tasks on this machine, or "". After an error it is not known yet.
func (h *Hook) whyUnmountable() (string, error) {
	h.probing.Lock()
	defer h.probing.Unlock()
	if h.probed {
		return h.reason, nil
	}
	why, err := h.attachProbe()
	switch {
	case err != nil && slices.ContainsFunc(lacks, func(lack error) bool { return errors.Is(err, lack) }):
		return "", err
	case err != nil:
		why = err.Error()
	}
	h.probed, h.reason = true, why
	if why == "" {
		h.cfg.Log.Info("secrets folders of tasks are in memory")
	} else {
		h.cfg.Log.Warn("secrets folders of tasks are on the disk", "reason", why)
	}
	return why, nil
}

// attachProbe mounts a small file system beside the allocations, and removes it again.
func (h *Hook) attachProbe() (why string, err error) {
	allocs, err := resolveFolder(h.cfg.Allocs)
	if err != nil {
		return "", err
	}
	if why, err = tmpfs.WhyUnseen(allocs); why != "" || err != nil {
		return why, err
	}
	dir := filepath.Join(allocs, probeDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("try to mount: %w", err)
	}
	err = tmpfs.Attach(dir, h.mountSource(), DefaultSizeMB)
	return "", errors.Join(err, tmpfs.DetachBelow(dir, SourcePrefix), os.Remove(dir))
}

// resolveFolder makes a folder, and returns it as the list of mounts shows it: without links.
func resolveFolder(path string) (string, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make the folder %s: %w", path, err)
	}
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("find the folder %s: %w", path, err)
	}
	return dir, nil
}

// mountSource returns the source of this boot's mounts.
func (h *Hook) mountSource() string { return SourcePrefix + string(h.cfg.BootID) }

// Attributes returns the node's attributes that say that secrets folders, and environments with secrets, are in memory.
func (h *Hook) Attributes() map[string]string {
	if why, err := h.whyUnmountable(); why != "" || err != nil {
		return nil
	}
	return map[string]string{fleet.AttributeSecretsInMemory: "1", fleet.AttributeEnvInMemory: "1"}
}

// Name implements runner.Hook.
func (h *Hook) Name() string { return "secrets folder" }

// Prepare implements runner.Hook: it mounts the task's secrets folder unless it is mounted. The files in a folder on the
// disk, which an earlier release or an agent without root left there, are removed first.
func (h *Hook) Prepare(_ context.Context, p *runner.Preparation) error {
	if why, err := h.whyUnmountable(); why != "" || err != nil {
		return drivers.Recoverable(err)
	}
	size := p.Task.Resources.SecretsMB
	if size == 0 {
		size = DefaultSizeMB
	}
	return drivers.Recoverable(h.mountFolder(p.Alloc.ID, p.Task.Name, size))
}

func (h *Hook) mountFolder(id fleet.AllocID, task string, sizeMB int) error {
	allocs, err := resolveFolder(h.cfg.Allocs)
	if err != nil {
		return err
	}
	return h.ensureMount(filepath.Join(allocs, string(id), task, "secrets"), sizeMB)
}

// ensureMount mounts a file system in memory on a folder, unless one of this boot is there.
func (h *Hook) ensureMount(dir string, sizeMB int) error {
	mounts, err := tmpfs.Below(dir, SourcePrefix)
	if err != nil {
		return err
	}
	if len(mounts) > 0 && mounts[len(mounts)-1].Source == h.mountSource() {
		return nil
	}
	for _, m := range slices.Backward(mounts) {
		if err := m.Detach(); err != nil {
			return err
		}
	}
	if err := removeFiles(dir); err != nil {
		return err
	}
	return tmpfs.Attach(dir, h.mountSource(), sizeMB)
}

// removeFiles makes an empty folder in place of one on the disk, or of a link that an earlier attempt of the task made.
func removeFiles(dir string) (err error) {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("empty the secrets folder on the disk: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name := filepath.Base(dir)
	if err := errors.Join(root.RemoveAll(name), root.Mkdir(name, 0o700)); err != nil {
		return fmt.Errorf("empty the secrets folder on the disk: %w", err)
	}
	return nil
}

// Release implements runner.Hook: it removes the secrets folders of the allocation from memory.
func (h *Hook) Release(_ context.Context, a fleet.Alloc) error {
	if !filepath.IsLocal(string(a.ID)) {
		return nil
	}
	return errors.Join(
		h.removeMemory(func(id fleet.AllocID) bool { return id == a.ID }),
		tmpfs.DetachBelow(filepath.Join(h.cfg.Allocs, string(a.ID)), SourcePrefix),
	)
}

// RemoveOrphans removes the secrets folders of ended allocations, which an agent left when it died.
func (h *Hook) RemoveOrphans(hasEnded func(fleet.AllocID) bool) error {
	allocs, err := filepath.EvalSymlinks(h.cfg.Allocs)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the folder of allocations: %w", err)
	}
	mounts, err := tmpfs.Below(allocs, SourcePrefix)
	if err != nil {
		return err
	}
	errs := []error{h.removeMemory(hasEnded)}
	for _, m := range mounts {
		id, _, ok := strings.Cut(strings.TrimPrefix(m.Dir, allocs+"/"), "/")
		if ok && hasEnded(fleet.AllocID(id)) {
			h.cfg.Log.Info("secrets folder of an ended allocation is removed from memory", "alloc_id", id)
			errs = append(errs, m.Detach())
		}
	}
	return errors.Join(errs...)
}
