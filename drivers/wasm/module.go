package wasm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

const (
	specFile    = "wasm.json" // in the state folder
	specVersion = 1
	maxSpec     = 8 << 20   // bytes
	maxModule   = 256 << 20 // bytes
	maxSections = 1 << 12   // of a module
	// checkTimeout bounds the compilation of a module. A board of one slow core compiles about 1 MiB in a second.
	checkTimeout = 5 * time.Minute
	maxMessage   = 1 << 10 // bytes of the reason why a module is refused
)

// Hidden arguments of the agent's program; the path of a spec follows them.
const (
	runArg   = "run-wasm-module"
	checkArg = "check-wasm-module"
)

// processEnv is the environment of the process that runs a module: one thread and a small heap keep a task cheap. The
// module's own environment is in its spec.
var processEnv = []string{"GOMAXPROCS=1", "GOTRACEBACK=single"}

// moduleSpec is the record that tells a process which module to run, and how.
type moduleSpec struct {
	Version     int      `json:"version"`
	Module      string   `json:"module"` // absolute path
	Args        []string `json:"args"`   // with the module's name first
	Env         []string `json:"env"`    // NAME=value
	CacheDir    string   `json:"cache_dir"`
	Interpreter bool     `json:"interpreter"`
	MemoryPages uint32   `json:"memory_pages"` // most pages of 64 KiB
	Folders     []folder `json:"folders"`
}

// folder is a folder of the machine that the module sees at a path.
type folder struct {
	Host     string `json:"host"`
	Guest    string `json:"guest"`
	ReadOnly bool   `json:"read_only"`
}

// writeSpec encodes the spec and writes it to a file.
func (m *moduleSpec) writeSpec(replace func(path string, content []byte, mode fs.FileMode) error, path string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", specFile, err)
	}
	if err := replace(path, b, 0o600); err != nil {
		return fmt.Errorf("write the record of a module: %w", err)
	}
	return nil
}

// decodeSpec decodes and validates a spec.
func decodeSpec(b []byte) (moduleSpec, error) {
	var m moduleSpec
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("decode the record of a module: %w", err)
	}
	if m.Version != specVersion || m.Module == "" || len(m.Args) == 0 || m.MemoryPages == 0 || m.MemoryPages > 1<<16 {
		return m, fmt.Errorf("decode the record of a module: version %d is not known, or a field is missing", m.Version)
	}
	return m, nil
}

// readBounded reads a file of at most most bytes.
func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("it is larger than %d bytes", most)
	}
	return b, nil
}

// checkHeader returns an error for a file that is not a complete module: its header is wrong, or its sections do not
// end with the file. It reads the headers only.
func checkHeader(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a file")
	case info.Size() > maxModule:
		return fmt.Errorf("it is larger than %d MiB", maxModule>>20)
	}
	return checkSections(f, info.Size())
}

// checkSections reads the headers of the sections of a module of size bytes.
func checkSections(r io.ReadSeeker, size int64) error {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil || !bytes.Equal(head[:4], []byte("\x00asm")) {
		return errors.New("it is no WebAssembly module")
	}
	if !bytes.Equal(head[4:], []byte{1, 0, 0, 0}) {
		return errors.New("it is no core module of version 1 (components are not supported)")
	}
	at := int64(len(head))
	for range maxSections {
		if at == size {
			return nil
		}
		if _, err := r.Seek(at, io.SeekStart); err != nil {
			return err
		}
		in := bufio.NewReaderSize(r, 16)
		if _, err := in.ReadByte(); err != nil {
			return fmt.Errorf("read section: %w", err)
		}
		length, n, err := readLength(in)
		if err != nil {
			return err
		}
		if at += 1 + int64(n) + int64(length); at > size {
			return fmt.Errorf("it is cut off: it has %d bytes of at least %d", size, at)
		}
	}
	return errors.New("it has too many sections")
}

// readLength reads an unsigned LEB128 number of 32 bits, and returns how many bytes it has.
func readLength(r io.ByteReader) (value uint32, n int, err error) {
	for shift := 0; shift < 35; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, 0, errors.New("it is cut off within a section's length")
		}
		n++
		value |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return value, n, nil
		}
	}
	return 0, 0, errors.New("a section's length is not valid")
}

// checkModule compiles a module in a process of its own, which also writes the machine code into the cache folder. The
// error is permanent if the module is faulty.
func checkModule(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", checkArg, file)
	cmd.Env, cmd.Dir = processEnv, "/"
	var said strings.Builder
	cmd.Stderr = &boundedWriter{&said}
	err := cmd.Run()
	if err == nil {
		return nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitRefused {
		return fleet.Errorf(fleet.CodeInvalid, "%s", strings.TrimSpace(said.String())).
			WithHint("build the module for wasip1, and give the task enough memory")
	}
	return drivers.Recoverable(fmt.Errorf("compile module: %w: %s", errors.Join(err, ctx.Err()), strings.TrimSpace(said.String())))
}

// boundedWriter keeps the first maxMessage bytes that are written.
type boundedWriter struct{ text *strings.Builder }

// Write keeps the bytes that fit, and never fails.
func (w *boundedWriter) Write(p []byte) (int, error) {
	w.text.WriteString(strings.ToValidUTF8(string(p[:min(len(p), max(maxMessage-w.text.Len(), 0))]), ""))
	return len(p), nil
}
