// Package hashchain keeps the lines (JSON) of an audit in files. hub/audit and edge/audit append to them, and the commands
// that show an audit check them.
//
// Each line has the hash of the line before, so that none can be changed or left out unless all behind it are written
// anew. The files are named by the number of their first line, and have mode 0600. A line is written when Append returns,
// and is flushed to the disk within a second: a kill of the process loses none, a loss of power the last second. On a full
// disk entries are counted, and the count is written down when there is space again.
//
// Append may be called by many goroutines. Run flushes, and waits while there is nothing to flush; the owner runs it.
package hashchain

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skerry/internal/durable"
	"skerry/internal/pace"
)

// Bounds of the files.
const (
	// FileBytes is the size from which on another file is begun, and Files how many are kept: 1 GiB in all.
	FileBytes = 16 << 20
	Files     = 64

	flushInterval = time.Second
	suffix        = ".jsonl"
)

// Config of a Log. All but FileBytes and Files is required; those are 0 for the constants.
type Config[E any] struct {
	Dir string // made with the first entry
	// Stamp sets the number of an entry and the hash of the line before. In JSON the number is "Seq", the hash "Prev".
	Stamp     func(e *E, seq uint64, prev string)
	Lost      func(n uint64) E // the entry that says that n entries could not be written
	Log       *slog.Logger
	FileBytes int64
	Files     int
}

// Log is a chain of entries in files.
type Log[E any] struct {
	cfg     Config[E]
	written chan struct{} // tells Run that something is not flushed

	mu   sync.Mutex
	file *os.File // nil: there is none yet
	size int64    // of file, in whole lines
	next uint64   // number of the next entry
	prev string   // hash of the last line
	lost uint64   // entries that could not be written
	// appended is closed by the next entry; nil: nobody waits for one.
	appended chan struct{}
}

// Open finds the end of the audit. It removes half a line that a loss of power left there.
func Open[E any](cfg Config[E]) (*Log[E], error) {
	if cfg.FileBytes == 0 {
		cfg.FileBytes = FileBytes
	}
	if cfg.Files == 0 {
		cfg.Files = Files
	}
	l := &Log[E]{cfg: cfg, written: make(chan struct{}, 1), next: 1}
	firsts, err := l.listFiles()
	if err != nil || len(firsts) == 0 {
		return l, err
	}
	if err := l.openLast(firsts[len(firsts)-1]); err != nil {
		return nil, errors.Join(fmt.Errorf("open the audit: %w", err), l.Close())
	}
	return l, nil
}

// openLast opens the last file, and reads its lines.
func (l *Log[E]) openLast(first uint64) error {
	path := l.filePath(first)
	var err error
	if l.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	l.next = first
	lines := bufio.NewReader(l.file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				l.cfg.Log.Warn("half a line removed from the end of the audit", "path", path, "bytes", len(line))
			}
			return l.dropHalfLine()
		}
		if err != nil {
			return err
		}
		var e struct{ Seq uint64 }
		if err := json.Unmarshal(line, &e); err != nil || e.Seq != l.next {
			return fmt.Errorf("read %s: entry %d is damaged", path, l.next)
		}
		l.size += int64(len(line))
		l.next, l.prev = e.Seq+1, Hash(bytes.TrimSuffix(line, []byte{'\n'}))
	}
}

// dropHalfLine cuts off what follows the last whole line of the file.
func (l *Log[E]) dropHalfLine() error {
	if err := l.file.Truncate(l.size); err != nil {
		return err
	}
	_, err := l.file.Seek(l.size, io.SeekStart)
	return err
}

// Run flushes what is written, within a second, until ctx ends.
func (l *Log[E]) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.written:
		}
		if !pace.Rest(ctx, flushInterval) {
			return nil
		}
		select {
		case <-l.written: // meanwhile
		default:
		}
		if _, err := l.Flush(); err != nil {
			l.cfg.Log.Error("audit not flushed to the disk", "error", err)
		}
	}
}

// Close flushes and closes the file.
func (l *Log[E]) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.file.Sync(), l.file.Close())
	l.file = nil
	return err
}

// Append writes an entry. A failure is logged, and the entry counts as lost; ok is false then.
func (l *Log[E]) Append(e E) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.appendEntry(e)
	if err == nil {
		return true
	}
	if l.lost == 0 {
		l.cfg.Log.Error("audit not written, entries are lost until it can be", "error", err)
	}
	l.lost++
	return false
}

// TryAppend writes an entry. A failure is no loss: the caller has the entry, and tries again.
func (l *Log[E]) TryAppend(e E) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appendEntry(e)
}

// appendEntry writes an entry, and before it how many were lost.
func (l *Log[E]) appendEntry(e E) error {
	if lost := l.lost; lost > 0 {
		if err := l.appendLine(l.cfg.Lost(lost)); err != nil {
			return err
		}
		l.cfg.Log.Info("audit writes again", "lost", lost)
		l.lost = 0
	}
	return l.appendLine(e)
}

// Last returns the number of the last entry; 0: there is none.
func (l *Log[E]) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// Flush makes what is written durable, and returns the number of the last entry.
func (l *Log[E]) Flush() (last uint64, err error) {
	l.mu.Lock()
	file, last := l.file, l.next-1
	l.mu.Unlock()
	if file == nil {
		return last, nil
	}
	if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // Append may have begun another file: it has flushed this one
		return last, fmt.Errorf("flush the audit: %w", err)
	}
	return last, nil
}

// appendLine writes one line. A failure leaves the file as it was.
func (l *Log[E]) appendLine(e E) error {
	l.cfg.Stamp(&e, l.next, l.prev)
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if l.file == nil || l.size >= l.cfg.FileBytes {
		if err := l.beginFile(); err != nil {
			return err
		}
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return errors.Join(err, l.dropHalfLine())
	}
	l.size += int64(len(line)) + 1
	l.next, l.prev = l.next+1, Hash(line)
	if l.appended != nil {
		close(l.appended)
		l.appended = nil
	}
	select {
	case l.written <- struct{}{}:
	default:
	}
	return nil
}

// beginFile begins another file, and removes the oldest ones beyond Config.Files.
func (l *Log[E]) beginFile() error {
	if err := durable.MakeFolders(l.cfg.Dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(l.filePath(l.next), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if old := l.file; old != nil {
		if err := errors.Join(old.Sync(), old.Close()); err != nil {
			l.cfg.Log.Error("audit not flushed to the disk", "error", err)
		}
	}
	l.file, l.size = file, 0
	firsts, err := l.listFiles()
	if err != nil {
		return err
	}
	for _, first := range firsts[:max(0, len(firsts)-l.cfg.Files)] {
		if err := os.Remove(l.filePath(first)); err != nil {
			l.cfg.Log.Warn("old file of the audit not removed", "error", err)
		}
	}
	return nil
}

// Copy writes the lines of the entries after a number, as they are in the files: each line with one Write.
func (l *Log[E]) Copy(w io.Writer, after uint64) error {
	r := l.ReadAfter(after)
	defer r.Close()
	for last := l.Last(); r.after < last; {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = w.Write(line)
		}
		if err != nil {
			return fmt.Errorf("read the audit: %w", err)
		}
	}
	return nil
}

// AwaitAfter waits until there is an entry after a number, or ctx ends.
func (l *Log[E]) AwaitAfter(ctx context.Context, after uint64) error {
	for {
		l.mu.Lock()
		if l.next-1 > after {
			l.mu.Unlock()
			return nil
		}
		if l.appended == nil {
			l.appended = make(chan struct{})
		}
		appended := l.appended
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-appended:
		}
	}
}

// listFiles returns the numbers of the files' first entries, in order.
func (l *Log[E]) listFiles() ([]uint64, error) {
	entries, err := os.ReadDir(l.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the files of the audit: %w", err)
	}
	var firsts []uint64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), suffix)
		if first, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

func (l *Log[E]) filePath(first uint64) string {
	return filepath.Join(l.cfg.Dir, fmt.Sprintf("%020d%s", first, suffix))
}

// Hash returns the hash of a line, without its end.
func Hash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}
