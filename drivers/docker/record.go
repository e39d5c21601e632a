package docker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"skerry/drivers"
	"skerry/drivers/record"
	"skerry/internal/durable"
)

// Files of a state folder.
const (
	idFile       = "id"
	exitFile     = "exit.json"
	positionFile = "logs.json"
	lockFile     = "logs.lock"
	resolvFile   = "resolv.conf"
	hostsFile    = "hosts"
)

const (
	// recordVersion is the version of records and handles. Later releases must read it.
	recordVersion = 1
	// maxFolderID bounds the random number of a state folder in bytes.
	maxFolderID = 64
	// maxAnswer bounds an answer of the daemon, except logs.
	maxAnswer = 8 << 20
)

// handleState is the content of Handle.State: it identifies the task's container.
type handleState struct {
	ContainerID string `json:"container_id"`
	BootID      string `json:"boot_id"`
	Folder      string `json:"folder"` // identity of the task's state folder; "": an older release wrote it
}

// exitRecord records how a container ended.
type exitRecord struct {
	Version    int    `json:"version"`
	Code       int    `json:"code"`
	Signal     int    `json:"signal"`
	OOM        bool   `json:"oom"`
	Err        string `json:"error"`
	FinishedAt int64  `json:"finished_at"` // UnixNano
}

// logPosition records how far a container's log is copied: up to Offset of the file with that inode. Streams are the
// positions in the allocation's files at that moment.
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

// ValidateRecord returns an error for an unknown version.
func (e *exitRecord) ValidateRecord() error { return checkVersion(e.Version) }

// ValidateRecord returns an error for an unknown version.
func (p *logPosition) ValidateRecord() error { return checkVersion(p.Version) }

// checkVersion returns an error for a record of a version that this release does not know.
func checkVersion(version int) error {
	if version != recordVersion {
		return fmt.Errorf("version %d is not known", version)
	}
	return nil
}

// folderID identifies a state folder, as opposed to its copies and to a later folder with the same inode: it joins the
// folder's random number and its inode. "" means that the folder has no number yet.
func folderID(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, idFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read id of state folder: %w", err)
	}
	defer f.Close()
	number, err := io.ReadAll(io.LimitReader(f, maxFolderID))
	if err != nil {
		return "", fmt.Errorf("read id of state folder: %w", err)
	}
	folder, err := identity(dir)
	if err != nil {
		return "", err
	}
	return shortHash(string(number)) + "-" + folder, nil
}

// makeFolderID makes a state folder and its random number, if missing.
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
	return record.Write(durable.Replace, dir, exitFile, e)
}
