package oci

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"skerry/drivers"
	"skerry/drivers/supervised"
	"skerry/fleet"
	"skerry/internal/durable"
)

// Names in the folder of unpacked images: DIGEST/root is the root of an image, DIGEST/users has a file for each
// allocation that may need it.
const (
	rootDir  = "root"
	usersDir = "users"
	partDir  = ".part" // an image that is being unpacked
)

// openInTask opens a folder of a task by the path that the task's config block has. It leads out of the task's folders
// by no link.
func openInTask(cfg drivers.TaskConfig, name string) (root *os.Root, err error) {
	dir, rest := cfg.Dir, path.Clean(name)
	for prefix, folder := range map[string]string{drivers.AllocPath: cfg.AllocDir, drivers.LocalPath: cfg.LocalDir, drivers.SecretsPath: cfg.SecretsDir} {
		if below, ok := strings.CutPrefix(rest, prefix+"/"); ok {
			dir, rest = folder, below
		}
	}
	outer, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the task: %w", err)
	}
	defer func() { err = errors.Join(err, outer.Close()) }()
	return outer.OpenRoot(rest)
}

// unpackImage unpacks the image of a task's OCI layout, unless it is unpacked already, and returns it with the folder of
// its root. The folder stays until the state folder of the task's allocation is removed.
func (i *Isolation) unpackImage(ctx context.Context, cfg drivers.TaskConfig, name string) (*image, string, error) {
	layout, err := openInTask(cfg, name)
	if err != nil {
		return nil, "", fleet.Errorf(fleet.CodeInvalid, "use the image %s: %w", name, err).WithHint("fetch it with an artifact block: its folder is an OCI layout below local")
	}
	defer layout.Close()
	img, err := readLayout(layout)
	if err == nil && i.images == "" {
		err = fleet.Errorf(fleet.CodeUnsupported, "this edge has no folder for unpacked images")
	}
	var root string
	if err == nil {
		i.unpacking.Lock()
		defer i.unpacking.Unlock()
		root, err = i.unpackOnce(ctx, cfg, layout, img)
	}
	if err != nil {
		return nil, "", fmt.Errorf("use the image %s: %w", name, err)
	}
	return img, root, nil
}

// unpackOnce unpacks an image into the folder of its digest, and removes the images that no allocation may need.
func (i *Isolation) unpackOnce(ctx context.Context, cfg drivers.TaskConfig, layout *os.Root, img *image) (string, error) {
	dir := filepath.Join(i.images, img.digest.Encoded())
	user := filepath.Join(dir, usersDir, filepath.Base(allocState(cfg)))
	if _, err := os.Stat(dir); err == nil {
		return filepath.Join(dir, rootDir), drivers.Recoverable(writeUser(user, cfg))
	}
	if err := os.MkdirAll(i.images, 0o700); err != nil {
		return "", drivers.Recoverable(err)
	}
	if err := i.removeUnused(); err != nil {
		return "", drivers.Recoverable(err)
	}
	part := filepath.Join(i.images, partDir)
	if err := i.unpackInto(ctx, filepath.Join(part, rootDir), layout, img); err != nil {
		if fleet.CodeOf(err) == fleet.CodeInternal { // the disk is full, or the agent ends
			err = drivers.Recoverable(err)
		}
		return "", errors.Join(err, os.RemoveAll(part))
	}
	err := writeUser(filepath.Join(part, usersDir, filepath.Base(user)), cfg)
	if err == nil {
		err = durable.FlushFolder(part)
	}
	if err == nil {
		err = durable.Rename(part, dir)
	}
	return filepath.Join(dir, rootDir), drivers.Recoverable(err)
}

// allocState returns the state folder of a task's allocation: a task's state folder is ALLOC/TASK/ATTEMPT.
func allocState(cfg drivers.TaskConfig) string { return filepath.Dir(filepath.Dir(cfg.StateDir)) }

// writeUser records the state folder of an allocation that may need an image.
func writeUser(name string, cfg drivers.TaskConfig) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return durable.Replace(name, []byte(allocState(cfg)), 0o600)
}

// unpackInto unpacks all layers of an image into a new folder.
func (i *Isolation) unpackInto(ctx context.Context, dir string, layout *os.Root, img *image) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return drivers.Recoverable(err)
	}
	free, _, err := durable.FreeSpace(dir)
	if err != nil {
		return drivers.Recoverable(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return drivers.Recoverable(err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	w := &layerWriter{ctx: ctx, layout: layout, root: root, bytes: max(min(i.maxBytes, free-spareDisk), 0), files: i.maxFiles}
	for _, l := range img.layers {
		if err := w.unpackLayer(l); err != nil {
			return err
		}
	}
	for name, mode := range mountPoints { // a root that is read-only gets no more
		err := root.Mkdir(name, 0o755)
		if err == nil {
			err = root.Chmod(name, mode)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return drivers.Recoverable(err)
		}
	}
	return nil
}

// removeUnused removes the images of which all allocations have ended.
func (i *Isolation) removeUnused() error {
	list, err := os.ReadDir(i.images)
	for _, f := range list {
		dir := filepath.Join(i.images, f.Name())
		if f.Name() != partDir && isUsed(dir) {
			continue
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// isUsed reports whether an allocation that has an image still has its state folder.
func isUsed(dir string) bool {
	users, err := os.ReadDir(filepath.Join(dir, usersDir))
	for _, u := range users {
		var state []byte
		if state, err = os.ReadFile(filepath.Join(dir, usersDir, u.Name())); err != nil {
			break
		}
		if _, gone := os.Stat(string(state)); !errors.Is(gone, fs.ErrNotExist) {
			return true
		}
	}
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}

// maxAccounts bounds the bytes that are read of an image's passwd or group.
const maxAccounts = 1 << 20

// userOfImage returns a user as images name it: USER or USER:GROUP, by name or number.
func userOfImage(root, name string) (*supervised.User, error) {
	files, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	userName, groupName, hasGroup := strings.Cut(name, ":")
	u := &supervised.User{Name: userName}
	account := findAccount(files, "etc/passwd", userName)
	number := userName
	if account != nil {
		number, u.Name = account[2], account[0]
	}
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "find user %q: the image has no such user", userName)
	}
	u.UID = uint32(id)
	group := ""
	if account != nil {
		group = account[3]
	}
	if hasGroup {
		group = groupName
		if found := findAccount(files, "etc/group", groupName); found != nil {
			group = found[2]
		}
	}
	if group == "" {
		return u, nil
	}
	if id, err = strconv.ParseUint(group, 10, 32); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "find group %q: the image has no such group", group)
	}
	u.GID = uint32(id)
	return u, nil
}

// findAccount returns the fields of the line of a passwd or group file with a name or a number, or nil.
func findAccount(files *os.Root, file, name string) []string {
	f, err := openFile(files, file)
	if err != nil {
		return nil
	}
	defer f.Close()
	var byNumber []string
	for lines := bufio.NewScanner(io.LimitReader(f, maxAccounts)); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		switch {
		case len(fields) < 4:
		case fields[0] == name:
			return fields
		case fields[2] == name && byNumber == nil:
			byNumber = fields
		}
	}
	return byNumber
}
