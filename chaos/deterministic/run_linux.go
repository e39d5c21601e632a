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

// Keys of a process's auxiliary vector (elf.h): the address of the kernel's random bytes,
// and the address of the dynamic linker, which is 0 in a program without cgo.
const (
	atRandom = 25
	atBase   = 7
)

// processorPoll is the interval between two looks at the processor time that a program used.
const processorPoll = time.Second

// killDelay is the time between SIGQUIT, at which a Go program prints its goroutines, and SIGKILL.
const killDelay = 10 * time.Second

// Run runs the program until it ends. When ctx ends, or the program used more than c.MaxProcessorTime, it sends SIGQUIT,
// so that the program prints its goroutines, and after killDelay SIGKILL. An *ExitError means that the program itself
// failed, or used too much.
func Run(ctx context.Context, c Command) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var g errgroup.Group
	g.Go(func() error {
		// Only the tracing thread may control the process. The thread ends with this goroutine.
		runtime.LockOSThread()
		return c.runTraced(ctx, cancel)
	})
	err := g.Wait()
	if exit := (*ExitError)(nil); errors.As(context.Cause(ctx), &exit) {
		return exit
	}
	return err
}

// runTraced starts the program under ptrace, replaces its random bytes, and follows it until it ends. It
// cancels ctx with an *ExitError when the program used too much processor time. The calling goroutine must be locked to
// its thread.
func (c Command) runTraced(ctx context.Context, cancel context.CancelCauseFunc) error {
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
	if c.MaxProcessorTime > 0 {
		go c.watchProcessorTime(p.Pid, ended, cancel)
	}
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

// watchProcessorTime calls cancel with an *ExitError once the process used more than c.MaxProcessorTime. It returns then,
// or when ended is closed.
func (c Command) watchProcessorTime(pid int, ended <-chan struct{}, cancel context.CancelCauseFunc) {
	clock := int32(^pid<<3 | 2) // the clock of a process's processor time (clock_getcpuclockid)
	tick := time.NewTicker(processorPoll)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		var used unix.Timespec
		if err := unix.ClockGettime(clock, &used); err != nil {
			return // the process has ended
		}
		if time.Duration(used.Nano()) > c.MaxProcessorTime {
			cancel(&ExitError{fmt.Sprintf("used more than %s of processor time", c.MaxProcessorTime)})
			return
		}
	}
}

// tracee is a process that the present thread traces. During its start, the runtime passes the processor between
// threads, and microseconds decide whether it wakes a thread or makes one. So until the process reads its input, its
// main thread leaves a system call only when all other threads sleep.
type tracee struct {
	pid          int
	hasCThreads  bool  // the program uses cgo, which starts threads of its own
	hasReadInput bool  // the process has begun to read its input
	monitor      int   // the runtime's monitor thread, which is never resumed; 0: it does not exist yet
	others       []int // all other threads but the main one
}

// waitAny waits until a thread stops or ends: the one with that id, or any for -1. With WNOHANG in flags it returns
// EAGAIN if none has.
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

// seedRandomBytes replaces the random bytes of a process that has executed no instruction yet, and resumes it.
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
		return errors.New("the auxiliary vector has no random bytes")
	}
	if err := unix.PtraceSetOptions(t.pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("follow its threads: %w", err)
	}
	return unix.PtraceSyscall(t.pid, 0)
}

// followThreads resumes each thread that stops, except the monitor, until the process ends. It returns an *ExitError
// if the process failed.
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

// resumeThread resumes a thread that has stopped, with the signal that stopped it unless that came from
// tracing. The monitor, the first thread that a Go program makes, is never resumed.
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
		signal = 0 // the first stop of a new thread
	}
	if tid == t.pid && !t.hasReadInput {
		t.waitForOthersToSleep()
		_ = unix.PtraceSyscall(tid, signal)
		return
	}
	_ = unix.PtraceCont(tid, signal) // it may have been killed meanwhile
}

// recordNewThread records the thread that the thread `by` has made. Without cgo, the first one is the monitor.
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

// readsInput reports whether the main thread reads its standard input. It also returns true if it cannot find out.
func (t *tracee) readsInput() bool {
	call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", t.pid))
	return err != nil || strings.HasPrefix(string(call), fmt.Sprintf("%d 0x0 ", unix.SYS_READ))
}

// waitForOthersToSleep waits until all threads but the main one and the monitor sleep or have ended, and
// resumes those that stop meanwhile. It polls every 10 µs.
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

// threadState returns the letter of a thread's state, as in proc(5). It returns "" if the state cannot be read: the
// thread has ended.
func (t *tracee) threadState(tid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", t.pid, tid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(after, " ")
	return state
}

// describeStatus returns the signal or the exit status of a process that has ended, in words.
func describeStatus(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
