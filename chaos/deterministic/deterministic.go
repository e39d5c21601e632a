package deterministic

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// Command is a program that Run runs, with its input and its seed.
type Command struct {
	Path   string
	Args   []string // the first is the program's name
	Env    []string // the whole environment; see Environ
	Input  []byte   // the standard input
	Output *os.File // gets standard output and standard error
	Seed   uint64   // replaces the kernel's random bytes

	// MaxProcessorTime bounds what the program may use, on Linux. 0: no bound.
	MaxProcessorTime time.Duration
}

// Environ returns the whole environment of a deterministic process. The user's own variables would take memory
// and move addresses. Memory is bounded: near the bound the garbage collector runs as usual.
func Environ() []string {
	return []string{
		"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=3GiB",
		// Keys and signatures use the reader that Seed replaces. A simulation needs no key exchange against quantum
		// computers. A collection stops the world from its beginning to its end, and no allocation is sampled.
		"GODEBUG=cryptocustomrand=1,tlsmlkem=0,asyncpreemptoff=1,gcstoptheworld=2,memprofilerate=0",
	}
}

// ExitError is the error of a program that ended by a signal or with a status other than 0, or that used more processor
// time than it may.
type ExitError struct{ Status string }

// Error returns the reason in words.
func (e *ExitError) Error() string { return e.Status }

// Seed makes all values that this process takes from crypto/rand depend only on the seed. Only a process that
// simulates may call it, before it takes any.
func Seed(seed uint64) { cryptorand.Reader = newReader(seed) }

// reader is a source of pseudo-random bytes that may be used from any goroutine.
type reader struct {
	mu     sync.Mutex
	source *rand.ChaCha8
}

// newReader returns a source whose bytes depend only on the seed.
func newReader(seed uint64) io.Reader {
	key := seedBytes(seed)
	return &reader{source: rand.NewChaCha8([32]byte(append(key[:], key[:]...)))}
}

// Read fills b with the next bytes of the source. It never fails.
func (r *reader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source.Read(b)
}

// seedBytes returns 16 bytes, made from the seed, in place of the kernel's random bytes. Neither half is 0, because
// the runtime would then draw random bytes of its own.
func seedBytes(seed uint64) (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:8], seed^0x9e3779b97f4a7c15|1)
	binary.LittleEndian.PutUint64(b[8:], seed*0xbf58476d1ce4e5b9|1)
	return b
}

// startProcess starts the program and does not wait for it. Its input is a temporary file, removed at once, because
// the duration of a read from a pipe would depend on real time.
func (c Command) startProcess(sys *syscall.SysProcAttr) (p *os.Process, err error) {
	in, err := os.CreateTemp("", "skerry-input-")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	defer func() { err = errors.Join(err, in.Close(), os.Remove(in.Name())) }()
	if _, err := in.Write(c.Input); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	p, err = os.StartProcess(c.Path, c.Args, &os.ProcAttr{Env: c.Env, Files: []*os.File{in, c.Output, c.Output}, Sys: sys})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	return p, nil
}
