package docker

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"skerry/drivers"
	"skerry/internal/durable"
)

// Files of a state folder.
const (
	idFile       = "id"
	exitFile     = "exit.json"
	positionFile = "logs.json"
	lockFile     = "logs.lock"
)

const (
	// recordVersion is the version of records and handles. Later releases must read it.
	recordVersion = 1
	// maxRecord bounds a record in bytes.
	maxRecord = 64 << 10
	// maxAnswer bounds what is read of an answer of the daemon that is not a log.
	maxAnswer = 8 << 20
)

// errNoRecord is wrapped by errors for a record that is missing or unreadable.
var errNoRecord = errors.New("no valid record")

// handleState is Handle.State: which container the task is.
type handleState struct {
	ContainerID string `json:"container_id"`
	BootID      string `json:"boot_id"`
}

// exitRecord is the record of how a container ended.
type exitRecord struct {
	Version    int    `json:"version"`
	Code       int    `json:"code"`
	Signal     int    `json:"signal"`
	OOM        bool   `json:"oom"`
	Err        string `json:"error"`
	FinishedAt int64  `json:"finished_at"` // UnixNano
}

// logPosition is the record of how far a container's log was copied: up to Offset of the file with that inode,
// when the allocation's files had these positions.
type logPosition struct {
	Version int             `json:"version"`
	Inode   uint64          `json:"inode"`
	Offset  int64           `json:"offset"`
	Streams [2]filePosition `json:"streams"` // stdout and stderr
}

// filePosition is a position in rotated files.
type filePosition struct {
	Number int   `json:"number"`
	Size   int64 `json:"size"`
}

// toDriverExit returns the record as drivers.Exit.
func (e *exitRecord) toDriverExit() drivers.Exit {
	return drivers.Exit{Code: e.Code, Signal: e.Signal, OOM: e.OOM, Err: e.Err, FinishedAt: time.Unix(0, e.FinishedAt)}
}

func (e *exitRecord) recordedVersion() int  { return e.Version }
func (p *logPosition) recordedVersion() int { return p.Version }

// decodeRecord decodes a record. Each error wraps errNoRecord.
func decodeRecord(b []byte, into interface{ recordedVersion() int }) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", errNoRecord, err)
	}
	if v := into.recordedVersion(); v != recordVersion {
		return fmt.Errorf("%w: version %d is not known", errNoRecord, v)
	}
	return nil
}

// readRecord reads a record of a state folder. If it is missing or invalid, the error wraps errNoRecord; other
// errors are those of the disk.
func readRecord(dir, name string, into interface{ recordedVersion() int }) error {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errNoRecord, err)
	}
	if err != nil {
		return fmt.Errorf("open record: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	return decodeRecord(b, into)
}

// writeRecord writes a record of a state folder with durable.Replace or durable.Swap.
func writeRecord(write func(string, []byte, fs.FileMode) error, dir, name string, record any) error {
	b, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if err := write(filepath.Join(dir, name), b, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// folderID returns what tells a state folder from its copies and from a later folder with the same inode: a random
// number in it, and its inode. "": the folder has no number yet.
func folderID(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, idFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read id of state folder: %w", err)
	}
	defer f.Close()
	number, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return "", fmt.Errorf("read id of state folder: %w", err)
	}
	folder, err := identity(dir)
	if err != nil {
		return "", err
	}
	return shortHash(string(number)) + "-" + folder, nil
}

// makeFolderID makes a state folder with its random number, if it has none.
func makeFolderID(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make state folder: %w", err)
	}
	if id, err := folderID(dir); id != "" || err != nil {
		return id, err
	}
	if err := durable.Swap(filepath.Join(dir, idFile), []byte(rand.Text()), 0o600); err != nil {
		return "", fmt.Errorf("write id of state folder: %w", err)
	}
	return folderID(dir)
}

// recordExit writes the exit record durably.
func recordExit(dir string, e exitRecord) error {
	e.Version = recordVersion
	return writeRecord(durable.Replace, dir, exitFile, e)
}
