package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"strconv"
	"strings"

	"skerry/fleet"
)

// chownTree makes a user the owner of a file, or of a folder with all its files. An empty user changes nothing.
func chownTree(root, name, owner string) (err error) {
	if owner == "" {
		return nil
	}
	uid, gid, err := lookUpUser(owner)
	if err != nil {
		return err
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("give %s to %s: %w", name, owner, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	err = fs.WalkDir(r.FS(), path.Clean(name), func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return r.Lchown(at, uid, gid)
	})
	if err != nil {
		return fmt.Errorf("give %s to %s: %w", name, owner, err)
	}
	return nil
}

// lookUpUser returns the ids of USER or USER:GROUP, by name or number.
func lookUpUser(owner string) (uid, gid int, err error) {
	name, group, hasGroup := strings.Cut(owner, ":")
	uid, err = strconv.Atoi(name)
	gid = uid
	if u, lookErr := user.Lookup(name); lookErr == nil {
		uid, err = strconv.Atoi(u.Uid)
		if err == nil {
			gid, err = strconv.Atoi(u.Gid)
		}
	}
	if err == nil && hasGroup {
		if gid, err = strconv.Atoi(group); err != nil {
			var g *user.Group
			if g, err = user.LookupGroup(group); err == nil {
				gid, err = strconv.Atoi(g.Gid)
			}
		}
	}
	if err != nil {
		return 0, 0, fleet.Errorf(fleet.CodeInvalid, "this edge has no user %q", owner).WithHint("leave out chown, or make the user")
	}
	return uid, gid, nil
}
