package consensus

import (
	"fmt"

	"github.com/hashicorp/raft-wal/types"
)

// Labels of the steps of the log's disk protocol, as Config.DiskStep is given them.
const (
	StepCreate = "create" // a new file of the log
	StepWrite  = "write"  // entries
	StepSync   = "sync"   // they become durable
	StepDelete = "delete" // a file that a snapshot made superfluous
	StepVote   = "vote"   // what raft must not forget besides entries
)

// DiskSteps returns all of them.
func DiskSteps() []string { return []string{StepCreate, StepWrite, StepSync, StepDelete, StepVote} }

// steppedFS asks before each step whether it may fail.
type steppedFS struct {
	types.VFS
	step func(label string) error
}

func (f steppedFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if err := f.step(StepCreate); err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	return f.wrapSteppedFile(f.VFS.Create(dir, name, size))
}

func (f steppedFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	return f.wrapSteppedFile(f.VFS.OpenWriter(dir, name))
}

func (f steppedFS) Delete(dir, name string) error {
	if err := f.step(StepDelete); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return f.VFS.Delete(dir, name)
}

func (f steppedFS) wrapSteppedFile(file types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	return steppedFile{file, f.step}, nil
}

type steppedFile struct {
	types.WritableFile
	step func(label string) error
}

func (f steppedFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.step(StepWrite); err != nil {
		return 0, err
	}
	return f.WritableFile.WriteAt(b, at)
}

func (f steppedFile) Sync() error {
	if err := f.step(StepSync); err != nil {
		return err
	}
	return f.WritableFile.Sync()
}
