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
	// readyFD is the descriptor on which a supervisor reports its start, once.
	readyFD = 3
	// adoptedPollInterval is how often the supervisor checks an adopted task, because it is not its parent.
	adoptedPollInterval = 250 * time.Millisecond
	// exitRetry is the pause after the exit could not be written.
	exitRetry = time.Second
	// reapTimeout bounds the wait for killed processes: one may hang in the kernel.
	reapTimeout = 5 * time.Second
)

// startReport is the report of a supervisor on readyFD.
type startReport struct {
	Err         string `json:"error"`
	Recoverable bool   `json:"recoverable"`
	Supervised  bool   `json:"supervised"` // another supervisor has the task
}

// supervisor supervises one task. All but copying output and reading commands runs in the main goroutine.
type supervisor struct {
	dir      string
	spec     spec
	task     taskRecord
	isParent bool // it started the task itself and so receives its exit

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
	// The program is larger than this needs: few threads and a small heap keep a task cheap.
	debug.SetGCPercent(25)
	_ = os.WriteFile("/proc/self/comm", []byte("skerry-task"), 0) // for ps; optional
	ready := os.NewFile(readyFD, "ready")
	syscall.CloseOnExec(readyFD)
	closeInherited()

	s := &supervisor{dir: dir, signals: make(chan os.Signal, 16), controlCommands: make(chan controlCommand), done: make(chan struct{})}
	// A supervisor ends with its task, and not by a signal.
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

// closeInherited closes the descriptors that the agent's parent had left open, which the task would
// keep open. Descriptors of the Go runtime have the close-on-exec flag.
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

// reportStart sends the report to the agent that waits for the start, if it is still there.
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

// lockAndStartTask locks the folder and starts the task, or takes over what an earlier supervisor left:
// ended, running, started but not recorded, or not started. It opens the life FIFO before it takes the
// lock, so that whoever sees the lock also finds the FIFO open.
func (s *supervisor) lockAndStartTask() (release func(), err error) {
	var held []*os.File
	closeAll := func() {
		for _, f := range held {
			_ = f.Close() // the process ends too
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

// findOrStart takes over the task of an earlier supervisor, or starts it.
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
		// A task without a record must not run: nobody would find it again.
		_ = unix.Kill(-id.PID, unix.SIGKILL)
		return err
	}
	return nil
}

// findUnrecordedTask finds a task whose supervisor was killed between the start and the record: the
// leader of a session that has our output open.
func (s *supervisor) findUnrecordedTask() (identity, bool) {
	for _, pid := range holdersOf(s.dir) {
		if st, err := readStat(pid); err == nil && st.session == pid && st.state != 'Z' {
			return identity{BootID: s.spec.BootID, PID: pid, Start: st.start}, true
		}
	}
	return identity{}, false
}

// startTaskProcess starts the task's process in its own session and process group.
func (s *supervisor) startTaskProcess() (identity, error) {
	// Orphans of the task become children of this process, so that they end with it.
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
		// A descriptor of its own: the task's end must block and ours must not, and that is a property
		// of the open file.
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
	st, err := readStat(pid) // it exists until we reap it
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		return identity{}, err
	}
	return identity{BootID: s.spec.BootID, PID: pid, Start: st.start}, nil
}

// readControlCommands passes on the lines of the control FIFO until it is closed. The supervisor holds
// it open for writing, so it has no end.
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

// superviseUntilExit executes commands until the task has ended.
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

// signalIfAlive sends a signal to the task (pid) or its process group (-pid), if it is still the same process.
func (s *supervisor) signalIfAlive(pid, sig int) {
	if s.task.isAlive() {
		_ = unix.Kill(pid, unix.Signal(sig)) // it may have ended: pollTaskExit notices
	}
}

// pollTaskExit reports whether and how the task's main process has ended, and kills the rest of its
// process group. The group keeps its number while it has members, and the kernel assigns pids in turn,
// so the group that is killed right after its leader was reaped is still the task's.
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
			continue // a process that the task left behind
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

// cleanUpAndRecordExit kills what is left of the task, copies the rest of its output, and writes its exit.
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
	_ = s.control.Close() // no commands are executed any more
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
		if err == nil || errors.Is(err, fs.ErrNotExist) { // a removed folder has no reader
			return
		}
		if !tried {
			fmt.Fprintln(os.Stderr, "supervise task:", err)
		}
		<-time.After(exitRetry)
	}
}

// remainingProcesses returns the processes that the task left running.
func (s *supervisor) remainingProcesses() []member {
	if s.isParent {
		return childrenOf(os.Getpid())
	}
	// An adopted task is not a child, so its orphans are not either.
	return membersOf(s.dir, s.task.identity)
}

// wasInterrupted reports whether the supervisor itself was told to end, also at the same time as the task's end.
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
