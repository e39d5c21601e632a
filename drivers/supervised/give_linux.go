package supervised

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skerry/drivers"
	"skerry/drivers/cgroup"
	"skerry/fleet"
)

// UseUser makes the process run as the user of the task, who becomes the owner of the task's folders. Without a user
// in the job file it does nothing.
func (p *Process) UseUser(cfg drivers.TaskConfig) error {
	if cfg.User == "" {
		return nil
	}
	u, err := FindUser(cfg.User)
	if err != nil {
		return err
	}
	if int(u.UID) == os.Geteuid() {
		return nil
	}
	if os.Geteuid() != 0 {
		return fleet.Errorf(fleet.CodeInvalid, "run as user %q: the agent does not run as root", cfg.User)
	}
	if err := GiveFolders(cfg, u); err != nil {
		return err
	}
	if err := letPass(cfg.Dir); err != nil {
		return err
	}
	p.User = u
	for _, home := range []string{"HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name} {
		name, _, _ := strings.Cut(home, "=")
		if _, own := cfg.Env[name]; !own {
			p.Env = append(slices.DeleteFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }), home)
		}
	}
	return nil
}

// UseCgroup gives the process a cgroup of its own with the limits of the task, if this machine has cgroups.
func (p *Process) UseCgroup(cfg drivers.TaskConfig) error {
	mounts, err := cgroup.Find()
	if err == nil {
		err = mounts.Probe()
	}
	if errors.Is(err, cgroup.ErrUnavailable) {
		return nil // the fingerprint reports that tasks are not limited
	}
	if err != nil {
		return err
	}
	marker, err := markerOf(cfg.StateDir)
	if err != nil {
		return err
	}
	_, instance, _ := strings.Cut(marker, "=")
	p.Cgroup = &Cgroup{Group: mounts.Group(cfg.ID + "." + instance), Limits: LimitsOf(cfg)}
	return nil
}

// CgroupVersion returns the kind of the machine's cgroups, or an error that says why tasks have none.
func CgroupVersion() (string, error) {
	mounts, err := cgroup.Find()
	if err != nil {
		return "", err
	}
	return mounts.Version(), mounts.Probe()
}

// everybody is the permission of folders that tasks of several users share.
const everybody = 0o777

// GiveFolders makes a user the owner of a task's own folders, and opens the allocation's shared ones to all users. It
// does not touch their contents, and refuses links, which an earlier attempt of the task may have made.
func GiveFolders(cfg drivers.TaskConfig, u *User) error {
	own := func(f *os.File) error { return f.Chown(int(u.UID), int(u.GID)) }
	for _, dir := range []string{cfg.Dir, cfg.LocalDir, cfg.SecretsDir, filepath.Join(cfg.Dir, "tmp")} {
		if dir == "" {
			continue
		}
		if err := changeFolder(dir, own); err != nil {
			return err
		}
	}
	if cfg.AllocDir == "" {
		return nil
	}
	if err := changeFolder(cfg.AllocDir, func(f *os.File) error { return f.Chmod(0o755) }); err != nil {
		return err
	}
	for _, name := range []string{"data", "tmp"} {
		if err := changeFolder(filepath.Join(cfg.AllocDir, name), func(f *os.File) error { return f.Chmod(everybody) }); err != nil {
			return err
		}
	}
	return nil
}

// changeFolder calls change with a folder that must not be a link. It skips a missing folder.
func changeFolder(dir string, change func(f *os.File) error) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open folder of the task: %w", err)
	}
	if err := errors.Join(change(f), f.Close()); err != nil {
		return fmt.Errorf("change folder of the task: %w", err)
	}
	return nil
}
