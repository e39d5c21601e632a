package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry/chaos/disk"
)

// environment is the environment variable that holds a process's role in a cell.
const environment = "SKERRY_CHAOS_CELL"

const (
	housekeeper = "keeper"
	inhabitant  = "run"
)

// Inside reports whether this process is the run in a cell.
func Inside() bool { return os.Getenv(environment) == inhabitant }

// Keeper reports whether this process is the keeper of a cell: it has to call Keep and then exit.
func Keeper() bool { return os.Getenv(environment) == housekeeper }

// Enter runs this program again in a cell, with the same arguments, and waits for it. When ctx is
// done or this process dies, the run gets SIGTERM. A run that fails is an *exec.ExitError.
func Enter(ctx context.Context) error {
	cmd, err := self(housekeeper)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET,
		Setpgid:    true, // this process passes a terminal's interrupt on
		Pdeathsig:  syscall.SIGTERM,
	}
	// Pdeathsig is sent when the thread that started the process ends, so keep that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make a cell for the run: %w", err)
	}
	ended := make(chan struct{})
	stopped := context.AfterFunc(ctx, func() {
		select {
		case <-ended:
		default:
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
		}
	})
	defer stopped()
	err = cmd.Wait()
	close(ended)
	return err
}

// self returns the command that runs this program again, with the role in its environment.
func self(role string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), environment+"="+role)
	return cmd, nil
}

// Keep sets up the cell, starts the run in it, passes SIGTERM and SIGINT on to it, and returns its
// exit code. The caller has to exit with that code at once.
func Keep() (code int, err error) {
	if err := furnish(); err != nil {
		return 1, err
	}
	cmd, err := self(inhabitant)
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start the run in its cell: %w", err)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(asked)
	// Use only the id of the process: wait, below, reaps it.
	run := cmd.Process.Pid
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-asked:
				_ = syscall.Kill(run, syscall.SIGTERM)
			case <-over:
				return
			}
		}
	}()
	code, err = wait(run)
	// A process that waits for a frozen disk cannot be killed.
	return code, errors.Join(err, disk.ThawAll())
}

// wait reaps child processes until the process run has ended, and returns its exit code.
func wait(run int) (code int, err error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait for the run: %w", err)
		case pid == run && status.Exited():
			return status.ExitStatus(), nil
		case pid == run && status.Signaled():
			return 1, fmt.Errorf("the run was ended by a signal: %s", status.Signal())
		}
	}
}

// ownFolders are folders of the cell alone: the names of network namespaces, and what runtimes of containers note,
// which would outlive the cell elsewhere.
var ownFolders = []string{"netns", "containerd", "runc", "crun"}

// furnish sets up the cell: its own /proc, its own directory of network namespaces, and a loopback
// device. It returns an error unless this is the first process of a PID namespace.
func furnish() error {
	if os.Getpid() != 1 {
		return errors.New("keep a cell: this is not the first process of a PID namespace")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts in the cell: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc in the cell: %w", err)
	}
	for _, name := range ownFolders {
		dir := filepath.Join("/run", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount %s in the cell: %w", dir, err)
		}
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("give the cell a loopback device: %w: %s", err, out)
	}
	return nil
}
