//go:build unix

package local

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"skerry/fleet"
)

// Share lets the members of a group use the socket at path (mode 0660). Its folder becomes one that they may enter and
// not list (0710). Others keep the right to enter it: tasks of other users need it.
func Share(path, group string) error {
	g, err := user.LookupGroup(group)
	if err != nil {
		g, err = user.LookupGroupId(group)
	}
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "share the local API with group %q: there is no such group", group).
			WithHint("make it: groupadd %s", group)
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("share the local API with group %s: %w", group, err)
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("share the local API with group %s: %w", group, err)
	}
	for _, f := range []struct {
		path string
		mode os.FileMode
	}{{filepath.Dir(path), 0o710 | folder.Mode()&0o001}, {path, 0o660}} {
		if err := errors.Join(os.Chown(f.path, -1, id), os.Chmod(f.path, f.mode)); err != nil {
			return fmt.Errorf("share the local API with group %s: %w", group, err)
		}
	}
	return nil
}
