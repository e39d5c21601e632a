// Package durable replaces files on disks that lose their power. The data directories of
// hubs and edges, the writers of files in them, and drivers call it.
//
// It starts no goroutine, and gives no hints: the caller knows what the
// file is for.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces a file's content as a whole: whoever reads it, also after a crash,
// finds the old content or the new one. When it returns, the new one stays.
func Replace(path string, content []byte, mode fs.FileMode) error {
	if err := replace(path, content, mode, true); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// ReplaceErased is Replace, and overwrites the former content with zeros. A crash between the two leaves the former content on
// blocks that are free.
func ReplaceErased(path string, content []byte, mode fs.FileMode) error {
	former, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Replace(path, content, mode)
	}
	if err != nil {
		return err
	}
	if err := Replace(path, content, mode); err != nil {
		return errors.Join(err, former.Close())
	}
	return errors.Join(overwrite(former), former.Close())
}

// Swap is Replace without waiting for the disk: a loss of power may take the new content
// back. It is for what describes something that such a loss ends, too.
func Swap(path string, content []byte, mode fs.FileMode) error {
	return replace(path, content, mode, false)
}

// Rename gives a file, whose content is flushed, another name. When it returns, that stays.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to))
}

// Erase overwrites a file with zeros, and removes it. File systems that copy on write, and flash, may keep the former bytes.
func Erase(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(overwrite(f), f.Close()); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// overwrite writes zeros over the content of a file, durably.
func overwrite(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := writeZeros(f, info.Size()); err != nil {
		return err
	}
	return f.Sync()
}

// MakeFolders makes a folder and the missing ones above it. When it returns, they stay.
func MakeFolders(path string, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if above := filepath.Dir(path); above != path {
		if err := MakeFolders(above, mode); err != nil {
			return err
		}
	}
	switch err := os.Mkdir(path, mode); {
	case errors.Is(err, fs.ErrExist): // another goroutine has made it, or it is no folder
		if info, statErr := os.Stat(path); statErr != nil || !info.IsDir() {
			return err
		}
	case err != nil:
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func replace(path string, content []byte, mode fs.FileMode, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// writeZeros writes zeros over the first size bytes of a file. It is Allocate where the file system has no call for it.
func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, 64<<10)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(size-at, int64(len(zeros)))], at); err != nil {
			return err
		}
	}
	return nil
}
