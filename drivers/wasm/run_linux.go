package wasm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	wasmsys "github.com/tetratelabs/wazero/sys"

	"golang.org/x/sys/unix"

	"skerry/drivers"
)

// Exit codes of the process itself. A module's own code is passed through.
const (
	exitRefused = 125 // the module is faulty
	exitFailed  = 126 // something else went wrong before the module ran
	exitTrapped = 134 // the module trapped: 128 + SIGABRT, as with wasmtime
)

// RunModule must be called in main, right after supervised.Supervise, and in the TestMain of tests that run modules.
// It returns at once, unless this driver started the process: then it runs or checks the module and ends the
// process.
func RunModule() {
	if len(os.Args) != 3 || os.Args[1] != runArg && os.Args[1] != checkArg {
		return
	}
	syscall.Exit(runProcess(os.Args[1] == runArg, os.Args[2])) // skips what os.Exit does at the end of an agent
}

// runProcess is the whole program of the process. It returns its exit code.
func runProcess(run bool, file string) int {
	debug.SetGCPercent(25)
	if run {
		dieOfSignals()
	}
	code, err := compileAndRun(context.Background(), run, file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "skerry: "+strings.TrimSpace(err.Error()))
	}
	return code
}

// dieOfSignals restores the default action of every signal that ends a program. Go's runtime ignores some of them.
func dieOfSignals() {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGQUIT, unix.SIGABRT, unix.SIGIO, unix.SIGSYS)
	go func() {
		n, ok := (<-caught).(syscall.Signal)
		if !ok {
			return
		}
		var usual [8]uint64 // a zeroed struct sigaction means the default action on every architecture
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&usual)), 0, 8, 0, 0)
		_ = unix.Kill(os.Getpid(), n)
	}()
}

// compileAndRun compiles the module of a spec, and runs it if run is set. It returns the exit code of the process.
func compileAndRun(ctx context.Context, run bool, file string) (int, error) {
	b, err := readBounded(file, maxSpec)
	if err != nil {
		return exitFailed, fmt.Errorf("read the record of a module: %w", err)
	}
	m, err := decodeSpec(b)
	if err != nil {
		return exitFailed, err
	}
	cfg := wazero.NewRuntimeConfig()
	if m.Interpreter {
		cfg = wazero.NewRuntimeConfigInterpreter()
	}
	cfg = cfg.WithMemoryLimitPages(m.MemoryPages)
	if m.CacheDir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(m.CacheDir)
		if err != nil {
			return exitFailed, fmt.Errorf("open the machine code of module %s: %w", m.Module, err)
		}
		cfg = cfg.WithCompilationCache(cache)
	}
	runtime := wazero.NewRuntimeWithConfig(ctx, cfg)
	compiled, err := compileModule(ctx, runtime, &m)
	if drivers.IsRecoverable(err) {
		return exitFailed, err // the module is sound: the disk has no space for its machine code
	}
	if err != nil {
		return exitRefused, err
	}
	if !run {
		return 0, nil
	}
	debug.SetGCPercent(100)
	debug.FreeOSMemory() // frees the module's bytes
	return runCompiled(ctx, runtime, compiled, &m)
}

// compileModule compiles a module and checks that it is a program for WASI preview 1.
func compileModule(ctx context.Context, runtime wazero.Runtime, m *moduleSpec) (wazero.CompiledModule, error) {
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
		return nil, fmt.Errorf("provide WASI: %w", err)
	}
	b, err := readBounded(m.Module, maxModule)
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", m.Module, err)
	}
	compiled, err := runtime.CompileModule(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("compile module %s: %w", m.Module, err)
	}
	if _, ok := compiled.ExportedFunctions()["_start"]; !ok {
		return nil, fmt.Errorf("module %s is no program: it exports no function _start", m.Module)
	}
	for _, f := range compiled.ImportedFunctions() {
		if module, name, _ := f.Import(); module != wasi_snapshot_preview1.ModuleName {
			return nil, fmt.Errorf("module %s imports %s of %s, but there is only WASI preview 1 (%s)", m.Module, name, module, wasi_snapshot_preview1.ModuleName)
		}
	}
	return compiled, nil
}

// runCompiled runs a module until it ends, and returns its exit code.
func runCompiled(ctx context.Context, runtime wazero.Runtime, compiled wazero.CompiledModule, m *moduleSpec) (int, error) {
	fsConfig := wazero.NewFSConfig()
	for _, f := range m.Folders {
		if f.Host == "" {
			continue
		}
		sandbox, err := openSandbox(f.Host, f.ReadOnly)
		if err != nil {
			return exitFailed, fmt.Errorf("open folder %s of the module: %w", f.Guest, err)
		}
		with, ok := fsConfig.(sysfs.FSConfig)
		if !ok {
			return exitFailed, errors.New("open folders of the module: not supported")
		}
		fsConfig = with.WithSysFSMount(sandbox, f.Guest)
	}
	cfg := wazero.NewModuleConfig().WithName("").WithArgs(m.Args...).WithFSConfig(fsConfig).
		WithStdout(os.Stdout).WithStderr(os.Stderr).WithStdin(os.Stdin).
		WithSysWalltime().WithSysNanotime().WithSysNanosleep().WithRandSource(randomSource{})
	for _, kv := range m.Env {
		name, value, _ := strings.Cut(kv, "=")
		cfg = cfg.WithEnv(name, value)
	}
	_, err := runtime.InstantiateModule(ctx, compiled, cfg)
	var exit *wasmsys.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return int(min(exit.ExitCode(), math.MaxUint8)), nil
	}
	return exitTrapped, fmt.Errorf("module %s was ended: %w", m.Module, err)
}

// randomSource gives a module the random numbers of the kernel.
type randomSource struct{}

// Read fills p.
func (randomSource) Read(p []byte) (int, error) { return unix.Getrandom(p[:min(len(p), 256)], 0) }
