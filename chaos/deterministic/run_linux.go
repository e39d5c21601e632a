//go:build linux && (amd64 || arm64)

package deterministic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Entries of a process's auxiliary vector (elf.h): the address of the kernel's random
// bytes, and where the dynamic linker is: 0 in a program without cgo.
const (
	atRandom = 25
	atBase   = 7
)

// killDelay is how long a process that is told to say where it hangs has for that.
const killDelay = 10 * time.Second

// Run runs the program to its end. When ctx ends the program is told to print its
// goroutines (SIGQUIT), and is killed if that does not end it. The error of a program
// that ends badly is an *ExitError.
func Run(ctx context.Context, c Command) error {
	var g errgroup.Group
	g.Go(func() error {
		// A tracer is a thread. It is not given back: it ends with this goroutine.
		runtime.LockOSThread()
		return c.runTraced(ctx)
	})
	return g.Wait()
}

func (c Command) runTraced(ctx context.Context) error {
	p, err := c.startProcess(&syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL})
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	t := &tracee{pid: p.Pid}
	_, status, err := t.waitAny(p.Pid, 0)
	if err == nil && !status.Stopped() {
		return &ExitError{describeStatus(status)}
	}
	if err == nil {
		err = t.seedRandomBytes(c.Seed)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make %s deterministic: %w", c.Path, err), p.Kill())
	}
	ended := make(chan struct{})
	defer close(ended)
	defer context.AfterFunc(ctx, func() {
		_ = p.Signal(syscall.SIGQUIT) // it may have ended
		select {
		case <-ended:
		case <-time.After(killDelay):
			_ = p.Kill()
		}
	})()
	return t.followThreads()
}

// tracee is a process that is traced by the thread that runs. While it begins, its
// runtime hands its processor from thread to thread, and whether it finds a thread asleep
// or makes a new one is a matter of microseconds. So until it reads its input the main
// thread goes on from a system call only when all others sleep.
type tracee struct {
	pid          int
	hasCThreads  bool  // it has C in it, whose threads are not known
	hasReadInput bool  // it has read its input
	monitor      int   // the thread that is never let begin; 0: it was not made yet
	others       []int // threads but the main one and the monitor
}

// waitAny waits for a stop or an end: of one thread, or of any where id is -1.
func (t *tracee) waitAny(id, flags int) (tid int, status unix.WaitStatus, err error) {
	for {
		tid, err = unix.Wait4(id, &status, unix.WALL|unix.WNOTHREAD|flags, nil)
		if err == nil && tid == 0 {
			return 0, 0, unix.EAGAIN
		}
		if err != unix.EINTR {
			return tid, status, err
		}
	}
}

// seedRandomBytes replaces the random bytes of a process that stands before its first
// instruction, and lets it begin.
func (t *tracee) seedRandomBytes(seed uint64) error {
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", t.pid))
	if err != nil {
		return err
	}
	key := seedBytes(seed)
	replaced := false
	for ; len(vector) >= 16; vector = vector[16:] {
		switch value := binary.LittleEndian.Uint64(vector[8:]); binary.LittleEndian.Uint64(vector) {
		case atBase:
			t.hasCThreads = value != 0
		case atRandom:
			if n, err := unix.PtracePokeData(t.pid, uintptr(value), key[:]); err != nil || n != len(key) {
				return fmt.Errorf("write the random bytes: %d written: %w", n, err)
			}
			replaced = true
		}
	}
	if !replaced {
		return errors.New("the process was given no random bytes")
	}
	if err := unix.PtraceSetOptions(t.pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("follow its threads: %w", err)
	}
	return unix.PtraceSyscall(t.pid, 0)
}

// followThreads lets all threads but the monitor go on, until the process ends.
func (t *tracee) followThreads() error {
	for {
		tid, status, err := t.waitAny(-1, 0)
		switch {
		case err != nil:
			return fmt.Errorf("follow the process: %w", err)
		case tid == t.pid && (status.Exited() || status.Signaled()):
			if status.Exited() && status.ExitStatus() == 0 {
				return nil
			}
			return &ExitError{describeStatus(status)}
		case status.Stopped():
			t.resumeThread(tid, status)
		default:
			t.others = slices.DeleteFunc(t.others, func(other int) bool { return other == tid })
		}
	}
}

// resumeThread lets a thread that was stopped go on. The first thread that a Go program makes
// is the runtime's monitor: it stays where it is.
func (t *tracee) resumeThread(tid int, status unix.WaitStatus) {
	signal := int(status.StopSignal())
	switch {
	case tid == t.monitor:
		return
	case status.TrapCause() == unix.PTRACE_EVENT_CLONE:
		t.recordNewThread(tid)
		signal = 0
	case signal == int(unix.SIGTRAP)|systemCall:
		t.hasReadInput = t.hasReadInput || t.readsInput()
		signal = 0
	case signal == int(unix.SIGSTOP) || signal == int(unix.SIGTRAP):
		signal = 0 // a thread that begins
	}
	if tid == t.pid && !t.hasReadInput {
		t.waitForOthersToSleep()
		_ = unix.PtraceSyscall(tid, signal)
		return
	}
	_ = unix.PtraceCont(tid, signal) // it may have been killed meanwhile
}

// recordNewThread notes the thread that another has made.
func (t *tracee) recordNewThread(by int) {
	made, err := unix.PtraceGetEventMsg(by)
	switch {
	case err != nil:
	case t.monitor == 0 && !t.hasCThreads:
		t.monitor = int(made)
	default:
		t.others = append(t.others, int(made))
	}
}

// systemCall is added to the signal of a stop at a system call (PTRACE_O_TRACESYSGOOD).
const systemCall = 0x80

// readsInput reports whether the main thread stands in a read of its standard input.
func (t *tracee) readsInput() bool {
	call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", t.pid))
	return err != nil || strings.HasPrefix(string(call), fmt.Sprintf("%d 0x0 ", unix.SYS_READ))
}

// waitForOthersToSleep waits until all threads but the main one and the monitor wait for
// something.
func (t *tracee) waitForOthersToSleep() {
	for _, tid := range t.others {
		for state := t.threadState(tid); state != "S" && state != ""; state = t.threadState(tid) {
			if _, status, err := t.waitAny(tid, unix.WNOHANG); err == nil && status.Stopped() {
				t.resumeThread(tid, status)
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// threadState is a thread's, as proc(5) names it; "": it is gone.
func (t *tracee) threadState(tid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", t.pid, tid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(after, " ")
	return state
}

func describeStatus(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
