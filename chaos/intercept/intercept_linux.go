package intercept

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Handler decides about a call while the calling thread waits. For 0 the kernel performs the call; otherwise the call
// fails with that error. Calls of all processes are handled one after the other.
type Handler func(c *Call) syscall.Errno

// Target is a program that Start started.
type Target struct {
	// Set once.
	cmd      *exec.Cmd
	program  string // path of the program's file
	folder   string
	handle   Handler
	listener int
	answers  errgroup.Group
}

// notification is the kernel's struct seccomp_notif.
type notification struct {
	id     uint64
	pid    uint32 // the calling thread
	flags  uint32
	number uint32
	arch   uint32
	at     uint64
	args   [6]uint64
}

// answer is the kernel's struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// Start starts a command under a filter, and calls handle before each call that changes a file below the folder. The
// present program must have called RunLauncher first in its main.
func Start(cmd *exec.Cmd, folder string, handle Handler) (*Target, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	program, err := filepath.EvalSymlinks(cmd.Path)
	if err != nil {
		return nil, fmt.Errorf("start a program under a filter: %w", err)
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return nil, fmt.Errorf("start a program under a filter: %w", err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start a program under a filter: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "listener"), os.NewFile(uintptr(ends[1]), "listener")
	defer func() { _ = ours.Close() }()
	cmd.Args = append([]string{"intercept", cmd.Path}, cmd.Args[1:]...)
	if cmd.Path, err = os.Executable(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a program under a filter: %w", err), theirs.Close())
	}
	cmd.Env = append(cmd.Environ(), launchEnv+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start a program under a filter: %w", err)
	}
	t := &Target{cmd: cmd, program: program, folder: folder, handle: handle}
	if t.listener, err = receiveListener(ours); err != nil {
		return nil, errors.Join(fmt.Errorf("start a program under a filter: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	t.answers.Go(t.answerCalls)
	return t, nil
}

// receiveListener receives the listener of a filter from the launcher.
func receiveListener(from *os.File) (int, error) {
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(from.Fd()), make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("receive the listener: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return 0, errors.Join(errors.New("the launcher sent no listener"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, fmt.Errorf("receive the listener: %w", err)
	}
	return fds[0], nil
}

// PID returns the id of the program's process.
func (t *Target) PID() int { return t.cmd.Process.Pid }

// Wait waits for the end of the program, as exec.Cmd does. Remaining children keep running, and their calls are still
// handled.
func (t *Target) Wait() error { return t.cmd.Wait() }

// WaitAll waits until every process with the filter has ended, and returns the first error of answerCalls.
func (t *Target) WaitAll() error { return t.answers.Wait() }

// answerCalls answers the kernel until no process has the filter.
func (t *Target) answerCalls() error {
	defer func() { _ = unix.Close(t.listener) }()
	for {
		var n notification
		if err := t.askKernel(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
			ended, pollErr := t.allEnded()
			switch {
			case ended || pollErr != nil:
				return pollErr
			case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR): // the thread was killed
				continue
			}
			return fmt.Errorf("receive a call: %w", err)
		}
		reply := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if errno := t.judgeCall(&n); errno != 0 {
			reply.errno, reply.flags = -int32(errno), 0
		}
		if err := t.askKernel(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&reply)); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("answer a call: %w", err)
		}
	}
}

// judgeCall returns the handler's decision, or 0 for a call that changes no file below the folder.
func (t *Target) judgeCall(n *notification) syscall.Errno {
	c, ok := t.readCall(n)
	if !ok {
		return 0
	}
	return t.handle(c)
}

// allEnded reports whether every process with the filter has ended.
func (t *Target) allEnded() (bool, error) {
	fds := []unix.PollFd{{Fd: int32(t.listener)}}
	if _, err := unix.Poll(fds, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("poll the listener: %w", err)
	}
	return fds[0].Revents&unix.POLLHUP != 0, nil
}

// askKernel sends an ioctl to the listener.
func (t *Target) askKernel(request uint, value unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(t.listener), uintptr(request), uintptr(value)); errno != 0 {
		return errno
	}
	return nil
}
