package intercept

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// launchEnv is the environment variable that makes a process a launcher.
const launchEnv = "SKERRY_INTERCEPT"

// listenerFD is the descriptor over which a launcher sends the listener of its filter.
const listenerFD = 3

// RunLauncher must be called first in main by a program that calls Start. In a process that Start made, it installs
// the filter, sends the listener to the parent, and executes the program to run. Otherwise it returns at once.
func RunLauncher() {
	if os.Getenv(launchEnv) == "" {
		return
	}
	runtime.LockOSThread() // the filter belongs to the thread, which must also make the exec
	err := launch(os.Args[1:])
	fmt.Fprintln(os.Stderr, "intercept:", err)
	os.Exit(1)
}

// launch replaces this process by the program. It returns only if it fails.
func launch(args []string) error {
	if len(args) == 0 {
		return errors.New("no program is named")
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	listener, err := installFilter()
	if err != nil {
		return err
	}
	// From here on each write waits for the parent's answer, which comes once the parent has the listener.
	if err := unix.Sendmsg(listenerFD, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("send the listener: %w", err)
	}
	if err := errors.Join(unix.Close(listenerFD), unix.Close(listener)); err != nil {
		return fmt.Errorf("close the listener: %w", err)
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, launchEnv+"=") })
	return fmt.Errorf("run %s: %w", path, unix.Exec(path, args, env))
}

// Offsets in the kernel's struct seccomp_data.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16 // eight bytes each; the supported machines store the lower half first
)

// installFilter makes the kernel report the file-changing calls of this thread, and returns the listener.
func installFilter() (listener int, err error) {
	if os.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return 0, fmt.Errorf("give up new privileges: %w", err)
		}
	}
	filter := makeFilter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, fmt.Errorf("install the filter: %w", errno)
	}
	return int(fd), nil
}

// makeFilter returns the instructions of the filter. It reports an open only if the flags let it make or empty a file.
func makeFilter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(test uint16, value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jt: yes, Jf: no, K: value}
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	report := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF}
	filter := []unix.SockFilter{load(offsetArch), jump(unix.BPF_JEQ, auditArch, 1, 0), allow, load(offsetNumber)}
	for number, call := range calls {
		if call.flags == 0 {
			filter = append(filter, jump(unix.BPF_JEQ, number, 0, 1), report)
			continue
		}
		filter = append(filter, jump(unix.BPF_JEQ, number, 0, 4), load(offsetArgs+uint32(call.flags)*8),
			jump(unix.BPF_JSET, unix.O_CREAT|unix.O_TRUNC, 1, 0), allow, report)
	}
	return append(filter, allow)
}
