package supervised

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry/drivers/cgroup"
)

// forkTask starts the task's program in its session, cgroup and network namespace and as its user, and returns its
// pid.
func (s *supervisor) forkTask(files []uintptr) (pid int, err error) {
	marker, err := markerOf(s.dir)
	if err == nil {
		err = s.spec.readArguments()
	}
	if err != nil {
		return 0, err
	}
	leave, err := s.enterCgroup()
	if err != nil {
		return 0, err
	}
	defer leave()
	err = inNetworkNamespace(s.spec.Namespace, func() error {
		pid, err = syscall.ForkExec(s.spec.Path, s.spec.Argv, &syscall.ProcAttr{
			Dir: s.spec.Dir, Env: append(s.spec.Env, marker), Files: files,
			Sys: &syscall.SysProcAttr{Setsid: true, Credential: s.spec.User.processCredential()},
		})
		return err
	})
	return pid, err
}

// processCredential returns the user for a new process; nil: that of the agent.
func (u *User) processCredential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

// giveOutputs makes the task's user the owner of its output FIFOs, so that it can open /dev/stdout.
func (s *supervisor) giveOutputs(outputs []uintptr) error {
	if s.spec.User == nil {
		return nil
	}
	for _, fd := range outputs {
		if err := unix.Fchown(int(fd), int(s.spec.User.UID), int(s.spec.User.GID)); err != nil {
			return fmt.Errorf("give output to user %d: %w", s.spec.User.UID, err)
		}
	}
	return nil
}

// enterCgroup makes the task's cgroup and moves this process into it, so that the task begins in it. leave moves
// this process back.
func (s *supervisor) enterCgroup() (leave func(), err error) {
	c := s.spec.Cgroup
	if c == nil {
		return func() {}, nil
	}
	mounts, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	before, err := c.Of(os.Getpid(), mounts)
	if err != nil {
		return nil, err
	}
	if err := c.Create(c.Limits); err != nil {
		return nil, err
	}
	leave = func() {
		if err := before.Add(os.Getpid()); err != nil {
			fmt.Fprintln(os.Stderr, "supervise task:", err)
		}
	}
	if err := c.Add(os.Getpid()); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// inNetworkNamespace runs call on a thread in the network namespace at path, or in the present one for "". A process
// that call starts is in that namespace too.
func inNetworkNamespace(path string, call func() error) error {
	if path == "" {
		return call()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- fmt.Errorf("open network namespace: %w", err)
			return
		}
		defer home.Close()
		if err := enterNetworkNamespace(path); err != nil {
			done <- err
			return
		}
		err = call()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with this goroutine
		}
		done <- err
	}()
	return <-done
}

// enterNetworkNamespace moves the present thread into a network namespace.
func enterNetworkNamespace(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// listMembers returns the processes in the cgroup of a task (nil: none), apart from this process and the supervisor.
func (c *Cgroup) listMembers(supervisor int) []member {
	if c == nil {
		return nil
	}
	var found []member
	for _, pid := range c.Processes() {
		if st, err := readStat(pid); err == nil && st.state != 'Z' && pid != os.Getpid() && pid != supervisor {
			found = append(found, member{pid, st.start})
		}
	}
	return found
}

// wasKilledForMemory reports whether the kernel's OOM killer ended a task that died of a signal. A shell reports the
// signal of its last command as an exit code. Of a task that the supervisor has killed, it may have ended another process.
func (s *supervisor) wasKilledForMemory(signal int) bool {
	return s.spec.Cgroup != nil && !s.killed && signal == int(unix.SIGKILL) && s.spec.Cgroup.OOMKills() > 0
}

// removeContainerAndCgroup removes the task's container and cgroup.
func (s *supervisor) removeContainerAndCgroup() {
	var err error
	if s.spec.Container != nil {
		err = s.deleteContainer()
	}
	if s.spec.Cgroup != nil { // without its state, the runtime does not remove the cgroup
		err = errors.Join(err, s.spec.Cgroup.Remove())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise task:", err)
	}
}
