// Package wasm is the driver "wasm": a task is a WebAssembly module with WASI preview 1, run by wazero in a process
// of its own. Edges run it; hubs check config blocks with it. Package supervised runs the process: the agent's
// program with a hidden argument, see RunModule. The package starts no goroutine.
//
// A module sees /local, /secrets, /alloc and the volumes of its task, and nothing else of the machine: no
// network, no processes. Before a task starts, another process compiles its module into the cache
// folder. So a broken module is refused at once, and the task itself needs little memory.
package wasm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"skerry/drivers"
	"skerry/drivers/options"
	"skerry/drivers/supervised"
	"skerry/fleet"
	"skerry/internal/durable"
	"skerry/internal/sorting"
)

// Name is the driver's name in job files.
const Name = "wasm"

// hint lists the keys of a config block.
const hint = "it takes module (the path of a .wasm file), args (a list of strings) and compiler (true or false)"

// Config of the driver.
type Config struct {
	// BootID is the kernel's boot id; "": read from the kernel.
	BootID string
	// CacheDir is a private folder for machine code; "": none is kept, and each start compiles the module.
	CacheDir string
	Log      *slog.Logger
}

// Driver runs modules. It implements drivers.Driver.
type Driver struct {
	*supervised.Driver
}

// New makes the driver. It starts nothing.
func New(cfg Config) (*Driver, error) {
	if cfg.CacheDir != "" && !filepath.IsAbs(cfg.CacheDir) {
		return nil, fmt.Errorf("make driver %s: the folder %q is not an absolute path", Name, cfg.CacheDir)
	}
	d, err := supervised.New(supervised.Config{
		Name: Name, BootID: cfg.BootID, Log: cfg.Log, Check: Check, Build: func(ctx context.Context, task drivers.TaskConfig) (supervised.Process, error) {
			return buildProcess(ctx, task, cfg.CacheDir)
		},
		// A module has no network. Mode host is offered because it is the mode of a group without a network block.
		Capabilities: drivers.Capabilities{
			FSIsolation: drivers.FSImage, Networks: []string{fleet.NetworkHost, fleet.NetworkNone}, Mounts: true, HidesEnv: true,
		},
	})
	if err != nil {
		return nil, err
	}
	return &Driver{d}, nil
}

// Recover finds a task by its Handle. The task has no Exec, because a module contains no further programs.
func (d *Driver) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	t, err := d.Driver.Recover(ctx, cfg, h)
	if err != nil {
		return nil, err
	}
	meter, ok := t.(drivers.Meter)
	if !ok {
		return nil, errors.New("recover task: it cannot be measured")
	}
	return moduleTask{t, meter}, nil
}

// moduleTask is a task without drivers.Execer.
type moduleTask struct {
	drivers.Task
	drivers.Meter
}

// settings are the values of a task's config block.
type settings struct {
	module   string
	args     []string
	compiler bool
}

// parseSettings reads a task's config block. The error names all its problems.
func parseSettings(config map[string]any) (settings, error) {
	r := options.Read(config)
	s := settings{module: r.RequiredText("module"), args: r.Texts("args"), compiler: r.Bool("compiler", true)}
	return s, r.Err(Name, hint)
}

// Check returns an error for a config block that works on no machine. Hubs check a job with it when it is
// registered.
func Check(config map[string]any) error {
	_, err := parseSettings(config)
	return err
}

// buildProcess compiles the module of a task in a process of its own, and returns the process that runs it.
func buildProcess(ctx context.Context, cfg drivers.TaskConfig, cacheDir string) (supervised.Process, error) {
	s, err := parseSettings(cfg.Config)
	if err != nil {
		return supervised.Process{}, err
	}
	if len(cfg.Devices) > 0 {
		return supervised.Process{}, fleet.Errorf(fleet.CodeInvalid, "a %s task has no devices", Name).
			WithHint("leave out device: WASI has no access to hardware")
	}
	path, err := findModule(s.module, cfg)
	if err != nil {
		return supervised.Process{}, err
	}
	if cacheDir != "" {
		if err := trimCache(cacheDir, maxCache); err != nil {
			return supervised.Process{}, drivers.Recoverable(fmt.Errorf("make room for machine code: %w", err))
		}
	}
	m := moduleSpec{
		Version: specVersion, Module: path, Args: append([]string{filepath.Base(path)}, s.args...), CacheDir: cacheDir,
		Interpreter: !s.compiler, MemoryPages: memoryPages(cfg.Resources),
		Folders: []folder{{cfg.LocalDir, drivers.LocalPath, false}, {cfg.SecretsDir, drivers.SecretsPath, false}, {cfg.AllocDir, drivers.AllocPath, false}},
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Env)) {
		m.Env = append(m.Env, name+"="+cfg.Env[name])
	}
	for _, v := range cfg.Mounts {
		m.Folders = append(m.Folders, folder{v.Source, v.Target, v.ReadOnly})
	}
	file := filepath.Join(cmp.Or(cfg.MemoryDir, cfg.StateDir), specFile)
	if err := m.writeSpec(durable.Swap, file); err != nil {
		return supervised.Process{}, drivers.Recoverable(err)
	}
	if err := checkModule(ctx, file); err != nil {
		return supervised.Process{}, err
	}
	process := supervised.Process{Path: "/proc/self/exe", Argv: []string{"skerry-wasm", runArg, file}, Env: processEnv, Dir: cfg.Dir}
	cfg.Resources.MemoryMaxMB = -1 // MemoryPages bounds the module's memory, and its process needs some more
	return process, process.UseCgroup(cfg)
}

// findModule returns the path of a module: absolute, or below the task's folder or its local folder. Its error says
// why a file is no module.
func findModule(module string, cfg drivers.TaskConfig) (string, error) {
	candidates := []string{module}
	if !filepath.IsAbs(module) {
		if !filepath.IsLocal(module) {
			return "", fleet.Errorf(fleet.CodeInvalid, "module %q leads out of the task's folder", module).
				WithHint("write a path below the task's folder, such as local/app.wasm, or an absolute one")
		}
		candidates = []string{filepath.Join(cfg.Dir, module), filepath.Join(cfg.LocalDir, module)}
	} else if rest, ok := strings.CutPrefix(filepath.Clean(module), drivers.LocalPath+"/"); ok {
		candidates = append([]string{filepath.Join(cfg.LocalDir, rest)}, candidates...)
	} else if rest, ok := strings.CutPrefix(filepath.Clean(module), drivers.AllocPath+"/"); ok {
		candidates = append([]string{filepath.Join(cfg.AllocDir, rest)}, candidates...)
	}
	for _, path := range candidates {
		err := checkHeader(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fleet.Errorf(fleet.CodeInvalid, "module %s: %w", path, err).
				WithHint("check that the artifact is complete, and that it was built for wasip1")
		}
		return path, nil
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "there is no module %s", candidates[0]).
		WithHint("an artifact block can fetch it: a relative path is looked for in the task's folder and in its local folder")
}

// memoryPages returns how many pages of 64 KiB the memory of a module may have.
func memoryPages(r fleet.Resources) uint32 {
	const pagesPerMB, most = 16, 1 << 16
	mb := max(r.MemoryMB, r.MemoryMaxMB)
	if r.MemoryMaxMB < 0 || mb <= 0 || mb >= most/pagesPerMB {
		return most
	}
	return uint32(mb) * pagesPerMB
}

// maxCache bounds the folder of machine code, in bytes. The least recently used files are removed first.
const maxCache = 256 << 20

// trimCache makes the folder of machine code, and removes files until it is not larger than most bytes.
func trimCache(dir string, most int64) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder of machine code: %w", err)
	}
	type entry struct {
		path string
		info fs.FileInfo
	}
	var files []entry
	var total int64
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // another start has removed it
		}
		if info, err := e.Info(); err == nil {
			files, total = append(files, entry{path, info}), total+info.Size()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list machine code: %w", err)
	}
	sorting.Slice(files, func(a, b entry) int { return a.info.ModTime().Compare(b.info.ModTime()) })
	for _, f := range files {
		if total <= most {
			return nil
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove machine code: %w", err)
		}
		total -= f.info.Size()
	}
	return nil
}
