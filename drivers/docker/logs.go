package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"skerry/drivers"
	"skerry/drivers/logfile"
	"skerry/drivers/record"
	"skerry/internal/durable"
)

const (
	// firstLogPoll and lastLogPoll bound the pause before a container's log is read again: short after output, long
	// for a quiet container.
	firstLogPoll = 50 * time.Millisecond
	lastLogPoll  = 500 * time.Millisecond
	// positionInterval is how often the position is recorded while there is output. After a crash of the agent, the
	// bytes that it had already written since then are counted and skipped.
	positionInterval = 2 * time.Second
	// lockPatience bounds the wait for another goroutine that copies the same log.
	lockPatience = 10 * time.Second
	// maxLogLine bounds a line of the daemon's log. The daemons cut output into pieces of 16 KiB.
	maxLogLine = 1 << 20
	// logChunk is the number of log bytes read at once.
	logChunk = 16 << 10
)

// logFormat is the format of a daemon's log of a container.
type logFormat int

const (
	jsonLog logFormat = iota // Docker: {"log":"text\n","stream":"stdout","time":"…"}
	k8sLog                   // Podman: TIME stdout F text
)

// streamNames are the streams of a container, in the order of logPosition.Streams.
var streamNames = [2]string{"stdout", "stderr"}

// logCopy copies a container's output from the daemon's log files to those of the allocation.
type logCopy struct {
	path     string // of the daemon's newest log file; older ones have .1, .2, …
	format   logFormat
	files    int // number of log files that the daemon keeps
	dir      string
	position logPosition
	out      [2]*logfile.Rotator
	skip     [2]int64 // bytes that were written before the agent died
	file     *os.File // nil: none open
	rest     []byte   // the beginning of an incomplete line
	chunk    [logChunk]byte
	savedAt  time.Time
	unsaved  bool
}

// newRotators returns the writers of an allocation's log files for a task.
func newRotators(cfg drivers.TaskConfig) [2]*logfile.Rotator {
	files, mb := cfg.Logs.MaxFiles, cfg.Logs.MaxFileSizeMB
	if files <= 0 {
		files = logfile.DefaultFiles
	}
	if mb <= 0 {
		mb = logfile.DefaultFileMB
	}
	var out [2]*logfile.Rotator
	for i, name := range streamNames {
		out[i] = &logfile.Rotator{Dir: cfg.LogDir, Prefix: cfg.Task + "." + name, MaxFiles: files, MaxBytes: int64(mb) << 20}
	}
	return out
}

// recordLogStart records the positions in the allocation's files at which the output of a new container begins.
func recordLogStart(cfg drivers.TaskConfig) error {
	p := logPosition{Version: recordVersion}
	for i, r := range newRotators(cfg) {
		p.Streams[i].Number, p.Streams[i].Size = r.Position()
	}
	return record.Write(durable.Swap, cfg.StateDir, positionFile, p)
}

// copyLogs copies the container's output until ended is closed and all of it is copied, or ctx ends.
func (t *task) copyLogs(ctx context.Context, ended <-chan struct{}) {
	c, release := t.openLogCopy(ctx, ended)
	if c == nil {
		return
	}
	defer release()
	pause := firstLogPoll
	for over := false; ; {
		copied, err := c.copyAvailable()
		if err != nil {
			t.driver.log.Warn("output of a container not copied: trying again", "task_id", t.cfg.ID, "error", err)
		}
		switch {
		case over || ctx.Err() != nil:
			return
		case copied:
			pause = firstLogPoll
		default:
			pause = min(2*pause, lastLogPoll)
		}
		c.saveIfDue(false)
		select {
		case <-ended:
			over = true
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// copyRest copies the output of an ended container that is not copied yet.
func (t *task) copyRest(ctx context.Context) {
	if t.logPath == "" && t.container != "" {
		if c, err := t.driver.inspectContainer(ctx, t.container, requestTimeout); err == nil && c != nil {
			t.logPath = c.LogPath
		}
	}
	ended := make(chan struct{})
	close(ended)
	t.copyLogs(ctx, ended)
}

// openLogCopy opens the container's log for copying at its recorded position, when nobody else copies it. It returns
// nil if there is no log, the job disabled it, or lockPatience is over.
func (t *task) openLogCopy(ctx context.Context, ended <-chan struct{}) (*logCopy, func()) {
	if t.logPath == "" || t.cfg.Logs.Disabled {
		return nil, nil
	}
	var patience <-chan time.Time
	for {
		lock, err := lockPath(filepath.Join(t.cfg.StateDir, lockFile))
		if err != nil {
			t.driver.log.Warn("output of a container not copied", "task_id", t.cfg.ID, "error", err)
			return nil, nil
		}
		if lock != nil {
			c := newLogCopy(t.cfg, t.logPath, t.driver.quirks)
			return c, func() {
				c.closeFiles()
				_ = lock.Close()
			}
		}
		select {
		case <-ended: // the other goroutine copies the rest
			ended, patience = nil, time.After(lockPatience)
		case <-patience:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		case <-time.After(firstLogPoll):
		}
	}
}

// newLogCopy makes a logCopy that begins at the position in the task's state folder.
func newLogCopy(cfg drivers.TaskConfig, path string, q quirks) *logCopy {
	c := &logCopy{path: path, format: q.logFormat, files: q.logFiles, dir: cfg.StateDir, out: newRotators(cfg), savedAt: time.Now()}
	if err := record.Read(cfg.StateDir, positionFile, &c.position); err != nil {
		c.position = logPosition{Version: recordVersion}
		return c
	}
	for i, s := range c.position.Streams {
		c.skip[i] = c.out[i].BytesSince(s.Number, s.Size)
	}
	return c
}

// copyAvailable copies everything that the daemon has written, and reports whether there was anything.
func (c *logCopy) copyAvailable() (bool, error) {
	copied := false
	for {
		if c.file == nil {
			if found, err := c.openNext(); !found || err != nil {
				return copied, err
			}
		}
		n, err := c.copyFile()
		copied = copied || n > 0
		if err != nil {
			return copied, err
		}
		if !c.isReplaced() {
			return copied, nil
		}
		if n, err = c.copyFile(); err != nil { // written just before the daemon began a new file
			return copied || n > 0, err
		}
		_ = c.file.Close()
		c.file = nil
	}
}

// openNext opens the log file after the current one, or the file of the recorded position if none is open yet. It
// returns false if there is none.
func (c *logCopy) openNext() (bool, error) {
	var numbers []uint64
	var paths []string
	for i := c.files; i >= 0; i-- {
		path := c.path
		if i > 0 {
			path += "." + strconv.Itoa(i)
		}
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("find log: %w", err)
		}
		numbers, paths = append(numbers, fileNumber(info)), append(paths, path)
	}
	next, offset := 0, int64(0) // the oldest file, if the one of the position is gone
	for i, n := range numbers {
		if n == c.position.Inode {
			next, offset = i, c.position.Offset
			if len(c.rest) > 0 || c.isFinished(paths[i]) && i+1 < len(numbers) {
				next, offset = i+1, 0
			}
		}
	}
	if next >= len(paths) {
		return false, nil
	}
	f, err := os.Open(paths[next])
	if err != nil {
		return false, fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && fileNumber(info) != numbers[next] {
		return false, f.Close() // rotated meanwhile: the next call finds it
	}
	if err == nil {
		if info.Size() < offset {
			offset = 0
		}
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	c.file, c.rest = f, c.rest[:0]
	c.position.Inode, c.position.Offset = numbers[next], offset
	return true, nil
}

// isFinished reports whether all of a file was copied.
func (c *logCopy) isFinished(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() <= c.position.Offset
}

// isReplaced reports whether the daemon now writes to another file than the open one.
func (c *logCopy) isReplaced() bool {
	info, err := os.Stat(c.path)
	return err == nil && fileNumber(info) != c.position.Inode
}

// copyFile copies the complete lines of the open file, and returns how many bytes it has read.
func (c *logCopy) copyFile() (int64, error) {
	var total int64
	for {
		n, err := c.file.Read(c.chunk[:])
		total += int64(n)
		c.rest = append(c.rest, c.chunk[:n]...)
		c.copyLines()
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, fmt.Errorf("read log: %w", err)
		}
		c.saveIfDue(false)
	}
}

// copyLines writes the complete lines of rest, and leaves the beginning of the next one.
func (c *logCopy) copyLines() {
	left := c.rest
	for {
		line, after, complete := bytes.Cut(left, []byte{'\n'})
		if !complete {
			break
		}
		if stream, text, ok := parseLogLine(c.format, line); ok {
			skipped := min(c.skip[stream], int64(len(text)))
			c.skip[stream] -= skipped
			_, _ = c.out[stream].Write(text[skipped:]) // never fails
		}
		c.position.Offset += int64(len(line)) + 1
		c.unsaved = true
		left = after
	}
	if len(left) > maxLogLine { // too long for a line of container output
		c.position.Offset += int64(len(left))
		left = nil
	}
	c.rest = append(c.rest[:0], left...)
}

// saveIfDue records the position every positionInterval, or now.
func (c *logCopy) saveIfDue(now bool) {
	if !c.unsaved || !now && time.Since(c.savedAt) < positionInterval {
		return
	}
	p := c.position
	for i, r := range c.out {
		p.Streams[i].Number, p.Streams[i].Size = r.Position()
	}
	if record.Write(durable.Swap, c.dir, positionFile, p) == nil { // a failed write is repeated the next time
		c.unsaved, c.savedAt = false, time.Now()
	}
}

// closeFiles records the position and closes the files.
func (c *logCopy) closeFiles() {
	c.saveIfDue(true)
	if c.file != nil {
		_ = c.file.Close()
	}
	for _, r := range c.out {
		_ = r.Close()
	}
}

// parseLogLine returns the stream and the text of a line of a daemon's log, without its newline; false if it is
// not a line of a container.
func parseLogLine(format logFormat, line []byte) (stream int, text []byte, ok bool) {
	var name string
	switch format {
	case jsonLog:
		var entry struct {
			Log    string `json:"log"`
			Stream string `json:"stream"`
		}
		if json.Unmarshal(line, &entry) != nil {
			return 0, nil, false
		}
		name, text = entry.Stream, []byte(entry.Log)
	case k8sLog:
		parts := bytes.SplitN(line, []byte(" "), 4)
		if len(parts) < 4 || len(parts[2]) != 1 {
			return 0, nil, false
		}
		name, text = string(parts[1]), parts[3]
		if parts[2][0] == 'F' {
			text = append(bytes.Clone(text), '\n')
		}
	}
	for i, s := range streamNames {
		if s == name {
			return i, text, true
		}
	}
	return 0, nil, false
}
