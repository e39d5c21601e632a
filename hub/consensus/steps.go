package consensus

import (
	"fmt"

	"github.com/hashicorp/raft-wal/types"
)

// Labels of the steps of the log's disk protocol, for Config.DiskStep.
const (
	StepCreate = "create" // create a file of the log
	StepWrite  = "write"  // write entries
	StepSync   = "sync"   // make written entries durable
	StepDelete = "delete" // delete a file that a snapshot made superfluous
	StepVote   = "vote"   // store raft's term or vote
)

// DiskSteps returns all labels.
func DiskSteps() []string { return []string{StepCreate, StepWrite, StepSync, StepDelete, StepVote} }

// steppedFS calls step before each step on a file. If step returns an error, the operation fails with it.
type steppedFS struct {
	types.VFS
	step func(label string) error
}

// Create creates a file, after the step StepCreate.
func (f steppedFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if err := f.step(StepCreate); err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	return f.wrapSteppedFile(f.VFS.Create(dir, name, size))
}

func (f steppedFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	return f.wrapSteppedFile(f.VFS.OpenWriter(dir, name))
}

// Delete deletes a file, after the step StepDelete.
func (f steppedFS) Delete(dir, name string) error {
	if err := f.step(StepDelete); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return f.VFS.Delete(dir, name)
}

// wrapSteppedFile adds the steps to an opened file; an error is passed through.
func (f steppedFS) wrapSteppedFile(file types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	return steppedFile{file, f.step}, nil
}

// steppedFile is a file of a steppedFS.
type steppedFile struct {
	types.WritableFile
	step func(label string) error
}

// WriteAt writes to the file, after the step StepWrite.
func (f steppedFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.step(StepWrite); err != nil {
		return 0, err
	}
	return f.WritableFile.WriteAt(b, at)
}

// Sync makes the written data durable, after the step StepSync.
func (f steppedFile) Sync() error {
	if err := f.step(StepSync); err != nil {
		return err
	}
	return f.WritableFile.Sync()
}
