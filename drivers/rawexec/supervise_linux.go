package rawexec

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry/internal/durable"
)

const (
	// readyFD is where a supervisor says, once, how the start went.
	readyFD = 3
	// adoptedPollInterval is how often an adopted task, whose parent is gone, is looked at.
	adoptedPollInterval = 250 * time.Millisecond
	// exitRetry is how long a supervisor waits where the disk did not take the exit.
	exitRetry = time.Second
	// reapTimeout bounds the wait for killed processes: one may hang in the kernel.
	reapTimeout = 5 * time.Second
)

// startReport is what a supervisor says on readyFD.
type startReport struct {
	Err         string `json:"error"`
	Recoverable bool   `json:"recoverable"`
	Supervised  bool   `json:"supervised"` // another supervisor has the task
}

// supervisor looks after one task. All but the pumps and the reader of orders
// runs in the main goroutine.
type supervisor struct {
	dir      string
	spec     spec
	task     taskRecord
	isParent bool // it started the task itself, and so is told its exit

	signals         chan os.Signal
	control         *os.File
	controlCommands chan controlCommand
	done            chan struct{} // closed when the task has ended
	readers         sync.WaitGroup
	outputs         []*output
	interrupted     bool
}

// supervise runs a supervisor in the state folder dir and returns its exit code.
func supervise(dir string) int {
	// The program was made for more than this: few threads and a small heap keep
	// the price of a task low.
	debug.SetGCPercent(25)
	_ = os.WriteFile("/proc/self/comm", []byte("skerry-task"), 0) // for ps; it works without
	ready := os.NewFile(readyFD, "ready")
	syscall.CloseOnExec(readyFD)
	closeInherited()

	s := &supervisor{dir: dir, signals: make(chan os.Signal, 16), controlCommands: make(chan controlCommand), done: make(chan struct{})}
	// What ends other programs does not end a supervisor: it ends with its task.
	signal.Notify(s.signals, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	release, err := s.lockAndStartTask()
	s.reportStart(ready, err)
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise task:", err)
		return 1
	}
	defer release()
	if s.task.PID == 0 {
		return 0 // it had ended
	}
	exit := s.superviseUntilExit()
	s.cleanUpAndRecordExit(exit)
	return 0
}

// closeInherited closes what the agent's own parent had left open to it, which a
// task would keep open for as long as it lives. What the Go runtime has opened is
// told from that by its close-on-exec flag.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= readyFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// reportStart tells the agent that waits for the start, if it is still there.
func (s *supervisor) reportStart(w *os.File, err error) {
	var r startReport
	if err != nil {
		r.Err, r.Supervised = err.Error(), errors.Is(err, errSupervised)
		r.Recoverable = errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) ||
			errors.Is(err, unix.ETXTBSY) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
	}
	b, _ := json.Marshal(r) // cannot fail: two plain fields
	_, _ = w.Write(b)
	_ = w.Close()
}

// lockAndStartTask takes the folder and brings the task to life, whatever an earlier
// supervisor has left: ended, running, started but not noted, or not started.
// The life FIFO is opened before the lock is taken, so that who sees the lock
// held also finds the FIFO held.
func (s *supervisor) lockAndStartTask() (release func(), err error) {
	var held []*os.File
	closeAll := func() {
		for _, f := range held {
			_ = f.Close() // the process ends, too
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	life, err := openFIFO(s.dir, lifeFIFO)
	if err != nil {
		return nil, err
	}
	held = append(held, life)
	lock, err := lockFolder(s.dir)
	if err != nil {
		return nil, err
	}
	held = append(held, lock)
	var ended exitRecord
	if readRecord(s.dir, exitFile, &ended) == nil {
		return closeAll, nil
	}
	if err := readRecord(s.dir, specFile, &s.spec); err != nil {
		return nil, err
	}
	if s.control, err = openFIFO(s.dir, controlFIFO); err != nil {
		return nil, err
	}
	held = append(held, s.control)
	if err := s.openOutputs(); err != nil {
		return nil, err
	}
	if err := s.findOrStart(); err != nil {
		return nil, err
	}
	s.readers.Go(s.readControlCommands)
	for _, o := range s.outputs {
		s.readers.Go(o.copyUntilStopped)
	}
	return closeAll, nil
}

// findOrStart takes over a task that an earlier supervisor left, or starts it.
func (s *supervisor) findOrStart() error {
	if err := readRecord(s.dir, taskFile, &s.task); err == nil {
		return nil
	}
	id, found := s.findUnrecordedTask()
	if !found {
		var err error
		if id, err = s.startTaskProcess(); err != nil {
			return err
		}
		s.isParent = true
	}
	device, inode, err := folderOf(s.dir)
	if err == nil {
		s.task = taskRecord{Version: recordVersion, identity: id, Device: device, Inode: inode}
		err = writeRecord(durable.Swap, s.dir, taskFile, s.task)
	}
	if err != nil {
		// A task that is not noted must not run: nobody would find it again.
		_ = unix.Kill(-id.PID, unix.SIGKILL)
		return err
	}
	return nil
}

// findUnrecordedTask finds a task whose supervisor was killed between starting it and
// noting it: the leader of a session that has our output open.
func (s *supervisor) findUnrecordedTask() (identity, bool) {
	for _, pid := range holdersOf(s.dir) {
		if st, err := readStat(pid); err == nil && st.session == pid && st.state != 'Z' {
			return identity{BootID: s.spec.BootID, PID: pid, Start: st.start}, true
		}
	}
	return identity{}, false
}

// startTaskProcess starts the task's process, in its own session and process group.
func (s *supervisor) startTaskProcess() (identity, error) {
	// Processes that the task leaves behind become ours, so that they end with it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return identity{}, fmt.Errorf("become subreaper: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return identity{}, fmt.Errorf("open stdin: %w", err)
	}
	defer null.Close()
	files := []uintptr{null.Fd()}
	for _, name := range []string{stdoutFIFO, stderrFIFO} {
		// Not one of ours: its end must block, ours must not, and that is a
		// property of the open file.
		fd, err := unix.Open(filepath.Join(s.dir, name), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return identity{}, fmt.Errorf("open output: %w", err)
		}
		defer unix.Close(fd)
		files = append(files, uintptr(fd))
	}
	marker, err := markerOf(s.dir)
	if err != nil {
		return identity{}, err
	}
	pid, err := syscall.ForkExec(s.spec.Path, s.spec.Argv, &syscall.ProcAttr{
		Dir: s.spec.Dir, Env: append(s.spec.Env, marker), Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return identity{}, fmt.Errorf("start %s: %w", s.spec.Path, err)
	}
	st, err := readStat(pid) // it is there until we reap it
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		return identity{}, err
	}
	return identity{BootID: s.spec.BootID, PID: pid, Start: st.start}, nil
}

// readControlCommands hands on what the agent writes to the control FIFO, until that is
// closed: the supervisor itself holds it open for writing, so it has no end.
func (s *supervisor) readControlCommands() {
	lines := bufio.NewScanner(s.control)
	lines.Buffer(make([]byte, maxControlLine), maxControlLine)
	for lines.Scan() {
		o, err := parseControlCommand(strings.TrimSpace(lines.Text()))
		if err != nil {
			fmt.Fprintln(os.Stderr, "supervise task:", err)
			continue
		}
		select {
		case s.controlCommands <- o:
		case <-s.done:
			return
		}
	}
}

// superviseUntilExit carries out orders until the task has ended.
func (s *supervisor) superviseUntilExit() exitRecord {
	var kill <-chan time.Time
	var poll <-chan time.Time
	if !s.isParent {
		ticker := time.NewTicker(adoptedPollInterval)
		defer ticker.Stop()
		poll = ticker.C
	}
	for {
		if exit, ended := s.pollTaskExit(); ended {
			return exit
		}
		select {
		case sig := <-s.signals:
			s.interrupted = s.interrupted || sig != unix.SIGCHLD
		case o := <-s.controlCommands:
			if !o.stop {
				s.signalIfAlive(s.task.PID, o.signal)
				continue
			}
			s.signalIfAlive(-s.task.PID, o.signal)
			if kill == nil {
				timer := time.NewTimer(o.timeout)
				defer timer.Stop()
				kill = timer.C
			}
		case <-kill:
			s.signalIfAlive(-s.task.PID, int(unix.SIGKILL))
		case <-poll:
		}
	}
}

// signalIfAlive sends to the task (pid) or its process group (-pid), if it is still the
// process that it was.
func (s *supervisor) signalIfAlive(pid, sig int) {
	if s.task.isAlive() {
		_ = unix.Kill(pid, unix.Signal(sig)) // it may have ended: watch sees that
	}
}

// pollTaskExit reports whether the task's main process has ended, and how, and kills
// what is left of its process group. A group keeps its number for as long as it
// has members, and the kernel hands out pids in turn, so that the group that is
// killed right after its leader was reaped is still this one.
func (s *supervisor) pollTaskExit() (exitRecord, bool) {
	exit := exitRecord{Version: recordVersion, BootID: s.task.BootID}
	if !s.isParent {
		if s.task.isAlive() {
			return exit, false
		}
		exit.Code, exit.Err = -1, "lost: the task's supervisor was killed, and how the task ended was told to nobody"
		return exit, true
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			exit.Code, exit.Err = -1, fmt.Sprintf("lost: wait for task: %v", err)
			return exit, true
		case pid == 0:
			return exit, false
		case pid != s.task.PID:
			continue // something that the task had left behind
		}
		_ = unix.Kill(-s.task.PID, unix.SIGKILL)
		exit.Code = status.ExitStatus()
		if status.Signaled() {
			exit.Signal = int(status.Signal())
			exit.Code = 128 + exit.Signal
		}
		return exit, true
	}
}

// cleanUpAndRecordExit ends what is left of the task, empties its output, and writes its exit.
func (s *supervisor) cleanUpAndRecordExit(exit exitRecord) {
	deadline := time.Now().Add(reapTimeout)
	for time.Now().Before(deadline) {
		left := s.remainingProcesses()
		if len(left) == 0 {
			break
		}
		for _, m := range left {
			_ = signalProcess(m.pid, m.start, unix.SIGKILL)
		}
		<-time.After(time.Millisecond)
	}
	close(s.done)
	_ = s.control.Close() // the agent has nothing to order any more
	for _, o := range s.outputs {
		o.stopCopying()
	}
	s.readers.Wait()
	for _, o := range s.outputs {
		o.drainAndClose()
	}
	exit.FinishedAt = time.Now().UnixNano()
	exit.Interrupted = s.wasInterrupted()
	for tried := false; ; tried = true {
		err := writeRecord(durable.Replace, s.dir, exitFile, exit)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // a folder that was removed has no reader
			return
		}
		if !tried {
			fmt.Fprintln(os.Stderr, "supervise task:", err)
		}
		<-time.After(exitRetry)
	}
}

// remainingProcesses lists the processes that the task has left running.
func (s *supervisor) remainingProcesses() []member {
	if s.isParent {
		return childrenOf(os.Getpid())
	}
	// It did not start the task, so what the task left behind is not its own child.
	return membersOf(s.dir, s.task.identity)
}

// wasInterrupted reports whether somebody wanted the supervisor itself to end,
// also where that came together with the task's end.
func (s *supervisor) wasInterrupted() bool {
	for {
		select {
		case sig := <-s.signals:
			s.interrupted = s.interrupted || sig != unix.SIGCHLD
		default:
			return s.interrupted
		}
	}
}
