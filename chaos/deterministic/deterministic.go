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
)

// Command is a program to be run.
type Command struct {
	Path   string
	Args   []string // with the program's name first
	Env    []string
	Input  []byte   // its standard input
	Output *os.File // takes the standard error, too
	Seed   uint64
}

// Environ is the whole environment of a deterministic process: what else the user has in
// his takes memory, at other addresses. Its memory is bounded: near the bound the collector
// works as it always does.
func Environ() []string {
	return []string{
		"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=3GiB",
		// Keys and signatures come from the reader that Seed replaces, and nobody listens
		// whom a quantum computer could help. A collection is one piece, and no allocation
		// is sampled.
		"GODEBUG=cryptocustomrand=1,tlsmlkem=0,asyncpreemptoff=1,gcstoptheworld=2,memprofilerate=0",
	}
}

// ExitError is a program that ended with another status than 0.
type ExitError struct{ Status string }

// Error returns the exit status in words.
func (e *ExitError) Error() string { return e.Status }

// Seed makes all that this process draws from crypto/rand follow from the seed. It is
// for a process of its own that simulates, and is called before anything is drawn.
func Seed(seed uint64) { cryptorand.Reader = newReader(seed) }

// reader is a source of bytes that may be used from any goroutine.
type reader struct {
	mu     sync.Mutex
	source *rand.ChaCha8
}

func newReader(seed uint64) io.Reader {
	key := seedBytes(seed)
	return &reader{source: rand.NewChaCha8([32]byte(append(key[:], key[:]...)))}
}

func (r *reader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source.Read(b)
}

// seedBytes are the 16 bytes that take the place of the kernel's. The runtime draws its
// own where 8 of them are 0.
func seedBytes(seed uint64) (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:8], seed^0x9e3779b97f4a7c15|1)
	binary.LittleEndian.PutUint64(b[8:], seed*0xbf58476d1ce4e5b9|1)
	return b
}

// startProcess starts the process. Its input is a file: waiting for a pipe is a matter of time.
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
