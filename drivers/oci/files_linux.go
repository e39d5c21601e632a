package oci

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"skerry/drivers"
	"skerry/fleet"
)

// listMounts returns the mounts of the container, in order.
func (b *bundle) listMounts() ([]specs.Mount, error) {
	all := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	if b.program.IPCMode == ModeHost {
		all[3] = bind("/dev/mqueue", "/dev/mqueue", "rw")
		all = append(all, bind("/dev/shm", "/dev/shm", "rw"))
	} else {
		all = append(all, specs.Mount{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}})
	}
	byTarget := make(map[string]string)
	for from, to := range b.chroot {
		if b.program.Image != "" {
			break // the image has them
		}
		if _, err := os.Stat(from); err == nil {
			byTarget[filepath.Clean(to)] = from
		}
	}
	for _, to := range slices.Sorted(maps.Keys(byTarget)) {
		all = append(all, bind(byTarget[to], to, "ro"))
	}
	for _, m := range []struct{ from, to, mode string }{
		{b.cfg.AllocDir, drivers.AllocPath, "rw"}, {b.cfg.LocalDir, drivers.LocalPath, "rw"}, {b.cfg.SecretsDir, drivers.SecretsPath, "rw"},
		{b.logsInAlloc(), drivers.AllocPath + "/logs", "ro"},
	} {
		if m.from != "" {
			all = append(all, bind(m.from, m.to, m.mode))
		}
	}
	files, err := b.networkFiles()
	if err != nil {
		return nil, err
	}
	all = append(all, files...)
	for _, m := range b.cfg.Mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		mounted := bind(m.Source, m.Target, mode)
		mounted.Options[2] = propagationOption(m.Propagation)
		all = append(all, mounted)
	}
	return all, nil
}

// bind returns a mount of a host folder or file.
func bind(from, to, mode string) specs.Mount {
	return specs.Mount{Destination: to, Type: "bind", Source: from, Options: []string{"rbind", mode, "rprivate"}}
}

// propagationOption returns the mount option for the propagation of a volume.
func propagationOption(propagation string) string {
	switch propagation {
	case "bidirectional":
		return "rshared"
	case "host-to-task":
		return "rslave"
	}
	return "rprivate"
}

// rootPropagation returns the mount propagation of the container's root that the volumes need.
func (b *bundle) rootPropagation() string {
	root := ""
	for _, m := range b.cfg.Mounts {
		switch option := propagationOption(m.Propagation); {
		case option == "rshared":
			return option
		case option == "rslave":
			root = option
		}
	}
	return root
}

// logsInAlloc returns the folder of the logs if it lies in the allocation's folder. It is mounted read-only, so that a
// task cannot place links where the supervisor writes as root.
func (b *bundle) logsInAlloc() string {
	if b.cfg.AllocDir != "" && filepath.Join(b.cfg.AllocDir, "logs") == filepath.Clean(b.cfg.LogDir) {
		return b.cfg.LogDir
	}
	return ""
}

// networkFiles writes resolv.conf and hosts of the task into the bundle and returns their mounts.
func (b *bundle) networkFiles() ([]specs.Mount, error) {
	n := b.cfg.Network
	var mounts []specs.Mount
	write := func(name, content string) error {
		path := filepath.Join(b.dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		mounts = append(mounts, bind(path, "/etc/"+name, "ro"))
		return nil
	}
	if content := n.ResolvConf(); content != "" {
		if err := write("resolv.conf", content); err != nil {
			return nil, err
		}
	}
	if len(n.Hosts) > 0 || n.Hostname != "" || n.Namespace != "" {
		if err := write("hosts", n.HostsFile()); err != nil {
			return nil, err
		}
	}
	return mounts, nil
}

// listDevices returns the device nodes of the container and the rules that allow them.
func (b *bundle) listDevices() ([]specs.LinuxDevice, []specs.LinuxDeviceCgroup, error) {
	var nodes []specs.LinuxDevice
	var rules []specs.LinuxDeviceCgroup
	for _, d := range b.cfg.Devices {
		var st unix.Stat_t
		if err := unix.Stat(d.HostPath, &st); err != nil {
			return nil, nil, fmt.Errorf("open device %s: %w", d.HostPath, err)
		}
		kind := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFCHR:
			kind = "c"
		case unix.S_IFBLK:
			kind = "b"
		default:
			return nil, nil, fleet.Errorf(fleet.CodeInvalid, "open device %s: it is no device", d.HostPath)
		}
		major, minor := int64(unix.Major(uint64(st.Rdev))), int64(unix.Minor(uint64(st.Rdev)))
		mode := os.FileMode(st.Mode & 0o777)
		path, access := d.TaskPath, d.Permissions
		if path == "" {
			path = d.HostPath
		}
		if access == "" {
			access = "rwm"
		}
		nodes = append(nodes, specs.LinuxDevice{Path: path, Type: kind, Major: major, Minor: minor, FileMode: &mode, UID: &b.user.UID, GID: &st.Gid})
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: access})
	}
	return nodes, rules, nil
}
