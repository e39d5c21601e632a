// Package tasklog reads the output of tasks: the files TASK.stdout.N and TASK.stderr.N of an allocation. Drivers
// rotate them: N grows, and the oldest are removed. The local API and the requests of hubs use it.
//
// A Reader belongs to one goroutine, and starts none. Nothing is stored.
package tasklog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
)

// Values of Request.Stream and Request.Origin.
const (
	Stdout      = "stdout"
	Stderr      = "stderr"
	OriginStart = "start"
	OriginEnd   = "end"
)

// pollEvery is how often a follower checks for more output.
const pollEvery = 200 * time.Millisecond

// Request says which output of a task is read, and from where.
type Request struct {
	Dir    string // of the allocation's logs
	Task   string
	Stream string // "" is Stdout
	Offset int64  // bytes from Origin, not negative; a larger offset than the output is all of it
	Origin string // "" is OriginStart
	Follow bool
	// Ended reports that nothing more will be written; a follower then ends at the end of the output. nil: never.
	Ended func() bool
}

// Reader reads a task's output, which lies in several files, as one stream. It belongs to one goroutine.
type Reader struct {
	ctx    context.Context // ends a follower
	cancel context.CancelFunc
	req    Request
	file   *os.File // nil: none yet
	number int      // of file
	at     int64    // in file: offset of the next Read
}

// Open returns a Reader at the start that the request names. An output that does not exist yet is empty. An
// invalid request is a fleet.CodeInvalid.
func Open(ctx context.Context, req Request) (*Reader, error) {
	req.Stream = cmp.Or(req.Stream, Stdout)
	req.Origin = cmp.Or(req.Origin, OriginStart)
	switch {
	case req.Task == "" || strings.ContainsAny(req.Task, `/\`):
		return nil, fleet.Errorf(fleet.CodeInvalid, "read logs: %q is not a task's name", req.Task)
	case req.Stream != Stdout && req.Stream != Stderr:
		return nil, fleet.Errorf(fleet.CodeInvalid, "read logs: the stream is %q, not %q or %q", req.Stream, Stdout, Stderr)
	case req.Origin != OriginStart && req.Origin != OriginEnd:
		return nil, fleet.Errorf(fleet.CodeInvalid, "read logs: the origin is %q, not %q or %q", req.Origin, OriginStart, OriginEnd)
	case req.Offset < 0:
		return nil, fleet.Errorf(fleet.CodeInvalid, "read logs: the offset %d is negative", req.Offset)
	}
	r := &Reader{req: req, number: -1}
	r.ctx, r.cancel = context.WithCancel(ctx)
	if err := r.seekToStart(); err != nil {
		return nil, errors.Join(fmt.Errorf("read logs of task %s: %w", req.Task, err), r.Close())
	}
	return r, nil
}

// Read reads the next bytes of the output, and returns io.EOF at its end. With Follow it waits there for more,
// and returns io.EOF once Ended reports true, or the error of the context.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		// Before reading, so that everything written before the end is read.
		ended := r.req.Ended != nil && r.req.Ended()
		next, more, err := r.nextFileNumber(r.number)
		if err != nil {
			return 0, err
		}
		// Once the next file exists, the current one is complete.
		if n, err := r.readCurrentFile(p); n > 0 || err != nil {
			return n, err
		}
		switch {
		case more:
			if err := r.openFile(next); err != nil {
				return 0, err
			}
			continue
		case !r.req.Follow || ended:
			return 0, io.EOF
		}
		if !pace.Rest(r.ctx, pollEvery) {
			return 0, context.Cause(r.ctx)
		}
	}
}

// Position returns the number of the file and the offset in it after the last Read. The bytes of one Read lie
// in one file.
func (r *Reader) Position() (number int, offset int64) { return r.number, r.at }

// Close closes the open file. A Read that waits returns an error.
func (r *Reader) Close() error {
	r.cancel()
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// readCurrentFile reads from the open file; 0 at its end, or if none is open.
func (r *Reader) readCurrentFile(p []byte) (int, error) {
	if r.file == nil {
		return 0, nil
	}
	n, err := r.file.Read(p)
	r.at += int64(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// openFile replaces the open file by another one, at its start. If that was removed meanwhile, none is open.
func (r *Reader) openFile(number int) error {
	f, err := os.Open(r.filePath(number))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if r.file != nil {
		_ = r.file.Close() // it was only read
	}
	r.file, r.number, r.at = f, number, 0
	if err != nil {
		r.file = nil
	}
	return nil
}

// filePath returns the path of the output's file with a number.
func (r *Reader) filePath(number int) string {
	return filepath.Join(r.req.Dir, r.filePrefix()+strconv.Itoa(number))
}

// filePrefix returns the part of the file names before their number.
func (r *Reader) filePrefix() string { return r.req.Task + "." + r.req.Stream + "." }

// nextFileNumber returns the number of the first file after number; false: there is none.
func (r *Reader) nextFileNumber(number int) (next int, ok bool, err error) {
	files, err := r.fileNumbers()
	for _, n := range files {
		if n > number {
			return n, true, err
		}
	}
	return 0, false, err
}

// fileNumbers returns the numbers of the existing files, in order; none if the folder is missing.
func (r *Reader) fileNumbers() ([]int, error) {
	entries, err := os.ReadDir(r.req.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), r.filePrefix())
		if n, err := strconv.Atoi(rest); ok && err == nil && n >= 0 && strconv.Itoa(n) == rest {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// seekToStart opens the file that contains the start of the request.
func (r *Reader) seekToStart() error {
	files, err := r.fileNumbers()
	if err != nil || len(files) == 0 {
		return err
	}
	sizes := make([]int64, len(files))
	var total int64
	for i, n := range files {
		info, err := os.Stat(r.filePath(n))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		sizes[i] = info.Size()
		total += sizes[i]
	}
	skip := min(r.req.Offset, total)
	if r.req.Origin == OriginEnd {
		skip = total - skip
	}
	i := 0
	for ; i < len(files)-1 && skip >= sizes[i]; i++ {
		skip -= sizes[i]
	}
	if err := r.openFile(files[i]); err != nil || r.file == nil {
		return err
	}
	r.at, err = r.file.Seek(skip, io.SeekStart)
	return err
}
