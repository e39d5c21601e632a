package network

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"skerry/internal/ownthread"
)

// createNamespace makes a network namespace with a loopback interface, and mounts it on a file, which keeps it alive.
func createNamespace(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("make the file of a network namespace: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("make the file of a network namespace: %w", err)
	}
	if err := ownthread.Run(func() error { return mountNewNamespace(path) }); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	return nil
}

// mountNewNamespace moves the calling thread into a new network namespace and mounts that on a file.
func mountNewNamespace(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := enableLoopback(); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "none", unix.MS_BIND, "")
}

// enableLoopback brings up the interface lo in the calling thread's namespace.
func enableLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, request)
}

// isNamespace reports whether a namespace is mounted at path. A file of an earlier boot is only a file.
func isNamespace(path string) bool {
	var s unix.Statfs_t
	return path != "" && unix.Statfs(path, &s) == nil && uint32(s.Type) == unix.NSFS_MAGIC
}

// removeNamespace unmounts a namespace and removes its file. A missing namespace is no error.
func removeNamespace(path string) error {
	if path == "" {
		return nil
	}
	for isNamespace(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount the network namespace %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the network namespace %s: %w", path, err)
	}
	return nil
}

// whyNoNamespaces says why this process cannot make network namespaces, or returns "".
func whyNoNamespaces() string {
	if os.Geteuid() != 0 {
		return "the agent does not run as root"
	}
	if _, err := os.Stat("/proc/self/ns/net"); err != nil {
		return "the kernel has no network namespaces"
	}
	return ""
}
