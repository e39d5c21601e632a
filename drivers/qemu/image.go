package qemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skerry/drivers"
	"skerry/fleet"
)

// findImage returns the path and the format of a task's image. With its links resolved, the image must lie in the
// task's folders or in a folder that this edge allows.
func (d *Driver) findImage(image string, cfg drivers.TaskConfig) (path, format string, err error) {
	candidates := []string{image}
	clean := filepath.Clean(image)
	if !filepath.IsAbs(image) {
		candidates = []string{filepath.Join(cfg.Dir, image), filepath.Join(cfg.LocalDir, image)}
	} else if rest, ok := strings.CutPrefix(clean, drivers.LocalPath+"/"); ok {
		candidates = []string{filepath.Join(cfg.LocalDir, rest), image}
	} else if rest, ok := strings.CutPrefix(clean, drivers.AllocPath+"/"); ok {
		candidates = []string{filepath.Join(cfg.AllocDir, rest), image}
	}
	for _, candidate := range candidates {
		real, err := filepath.EvalSymlinks(candidate)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", fleet.Errorf(fleet.CodeInvalid, "image %s: %w", candidate, err)
		}
		if !isWithin(real, append([]string{cfg.Dir, cfg.LocalDir, cfg.AllocDir}, d.cfg.ImagePaths...)) {
			return "", "", fleet.Errorf(fleet.CodeForbidden, "image %s is not in the task's folders, nor in a folder that this edge allows", real).
				WithHint("an artifact block fetches it into the task's folder; the edge's operator allows folders with --qemu-image-path")
		}
		format, err := checkImage(real)
		if err != nil {
			return "", "", fleet.Errorf(fleet.CodeInvalid, "image %s: %w", real, err).
				WithHint("check that the artifact is complete; qemu-img check examines an image, and qemu-img convert makes one without others below it")
		}
		return real, format, nil
	}
	return "", "", fleet.Errorf(fleet.CodeInvalid, "there is no image %s", candidates[0]).
		WithHint("an artifact block can fetch it: a relative path is looked for in the task's folder and in its local folder")
}

// isWithin reports whether a path without links lies in one of the folders.
func isWithin(path string, folders []string) bool {
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(folder)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(real, path); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// sectorSize is the unit of a disk's size.
const sectorSize = 512

// checkImage returns the format of an image, so that QEMU need not guess it. It refuses an image that names other
// files, because the task could read those.
func checkImage(path string) (format string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", errors.New("it is not a file")
	case info.Size() == 0:
		return "", errors.New("it is empty")
	}
	head := make([]byte, sectorSize)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return formatOf(head[:n], info.Size())
}

// formatOf returns the format of an image of size bytes by its first sector.
func formatOf(head []byte, size int64) (string, error) {
	text := string(head)
	switch {
	case strings.HasPrefix(text, "QFI\xfb"):
		return "qcow2", checkQCOW2(head, size)
	case strings.HasPrefix(text, "vhdxfile"):
		return "vhdx", nil
	case strings.HasPrefix(text, "conectix"):
		return "vpc", nil
	case len(head) >= 68 && strings.HasPrefix(text[64:], "\x7f\x10\xda\xbe"):
		return "vdi", nil
	case strings.HasPrefix(text, "KDMV"), strings.HasPrefix(text, "COWD"), strings.HasPrefix(text, "# Disk DescriptorFile"):
		return "", errors.New("the format vmdk is not supported")
	case size%sectorSize != 0:
		return "", fmt.Errorf("it is no disk image: it has %d bytes, and no whole number of sectors", size)
	}
	return "raw", nil
}

// checkQCOW2 checks the header of a qcow2 image.
func checkQCOW2(head []byte, size int64) error {
	if len(head) < 104 {
		return errors.New("it is cut off within its header")
	}
	be := binary.BigEndian
	version, backing, clusterBits := be.Uint32(head[4:]), be.Uint64(head[8:]), be.Uint32(head[20:])
	l1Entries, l1, refcounts, refcountClusters := be.Uint32(head[36:]), be.Uint64(head[40:]), be.Uint64(head[48:]), be.Uint32(head[56:])
	switch {
	case version < 2 || version > 3:
		return fmt.Errorf("its format, qcow2 of version %d, is not supported", version)
	case clusterBits < 9 || clusterBits > 21:
		return errors.New("its header is corrupt")
	case backing != 0:
		return errors.New("it has a backing file, which is not supported")
	case version == 3 && be.Uint64(head[72:])&(1<<2) != 0:
		return errors.New("its data is in another file, which is not supported")
	case version == 3 && be.Uint64(head[72:])&(1<<1) != 0:
		return errors.New("it is marked as corrupt")
	}
	end := max(l1+8*uint64(l1Entries), refcounts+uint64(refcountClusters)<<clusterBits)
	if l1 > uint64(size) || refcounts > uint64(size) || end > uint64(size) {
		return fmt.Errorf("it is cut off: it has %d bytes of at least %d", size, end)
	}
	return nil
}
