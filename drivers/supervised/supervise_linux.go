package supervised

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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry/drivers"
	"skerry/drivers/record"
	"skerry/internal/durable"
)

const (
	// readyFD is the descriptor on which a supervisor reports its start, once.
	readyFD = 3
	// adoptedPollInterval is how often the supervisor polls an adopted task, whose parent it is not.
	adoptedPollInterval = 250 * time.Millisecond
	// exitRetry is the pause after the exit could not be written.
	exitRetry = time.Second
	// reapTimeout bounds the wait for killed processes, because one may hang in the kernel.
	reapTimeout = 5 * time.Second
)

// startReport is the report about the start of the task that a supervisor sends on readyFD.
type startReport struct {
	Err         string `json:"error"`       // "": the task runs or has ended
	Recoverable bool   `json:"recoverable"` // another try may succeed
	Supervised  bool   `json:"supervised"`  // another supervisor supervises the task
}

// supervisor supervises one task. Everything except the copying of output and the reading of commands runs in
// the main goroutine.
type supervisor struct {
	dir      string
	spec     spec
	task     taskRecord
	isParent bool // it started the task itself and so receives its exit
	killed   bool // the supervisor has killed the task

	signals         chan os.Signal // that the supervisor itself receives
	control         *os.File
	controlCommands chan controlCommand
	done            chan struct{} // closed when the task has ended
	readers         sync.WaitGroup
	outputs         []*output
	interrupted     bool // the supervisor was told to end
}

// runSupervisor supervises the task of the state folder dir until it has ended, and returns the exit code of
// this process. It is the whole program of a supervisor.
func runSupervisor(dir string) int {
	// A supervisor is the agent's large program: few threads and a small heap keep a task cheap.
	debug.SetGCPercent(25)
	_ = os.WriteFile("/proc/self/comm", []byte("skerry-task"), 0) // for ps; optional
	ready := os.NewFile(readyFD, "ready")
	syscall.CloseOnExec(readyFD)
	closeInheritedFiles()

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

// lacks are the kernel errors for a resource that is exhausted now and may be available later.
var lacks = []unix.Errno{unix.EAGAIN, unix.ENOMEM, unix.ETXTBSY, unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EDQUOT}

// reportStart writes to w, for the waiting agent, that the task was started, or the error. It closes w. It does
// nothing if the agent is gone.
func (s *supervisor) reportStart(w *os.File, err error) {
	var r startReport
	if err != nil {
		r.Err, r.Supervised = err.Error(), errors.Is(err, errSupervised)
		r.Recoverable = drivers.IsRecoverable(err) || slices.ContainsFunc(lacks, func(lack unix.Errno) bool { return errors.Is(err, lack) })
	}
	b, _ := json.Marshal(r) // cannot fail: two plain fields
	_, _ = w.Write(b)
	_ = w.Close()
}

// lockAndStartTask locks the folder, starts or adopts its task, and starts the goroutines that copy output and
// read commands; if the task has ended, it only locks. release unlocks. It opens the life FIFO before it takes
// the lock, so that a process that sees the lock also finds the FIFO open.
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
	if record.Read(s.dir, exitFile, &ended) == nil {
		return closeAll, nil
	}
	if err := record.Read(s.dir, specFile, &s.spec); err != nil {
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

// findOrStart sets s.task to the task that an earlier supervisor started, or starts the task and writes its
// record.
func (s *supervisor) findOrStart() error {
	if err := record.Read(s.dir, taskFile, &s.task); err == nil {
		s.startAdoptedContainer()
		return nil
	}
	id, found := s.findUnrecordedTask()
	if !found {
		var err error
		if id, err = s.startTaskProcess(); err != nil {
			s.removeContainerAndCgroup()
			return err
		}
		s.isParent = true
	}
	device, inode, err := folderOf(s.dir)
	if err == nil {
		s.task = taskRecord{Version: recordVersion, identity: id, Device: device, Inode: inode}
		err = record.Write(durable.Swap, s.dir, taskFile, s.task)
	}
	if err != nil {
		// A task without a record must not run: nobody would find it again.
		_ = unix.Kill(-id.PID, unix.SIGKILL)
		s.removeContainerAndCgroup()
		return err
	}
	return s.startContainer()
}

// findUnrecordedTask finds a task whose supervisor was killed between the start and the record: the leader of a
// session that has the task's output open.
func (s *supervisor) findUnrecordedTask() (identity, bool) {
	if s.spec.Container != nil {
		return identity{}, false // its program was not started: the container is created again
	}
	for _, pid := range outputHolders(s.dir) {
		if st, err := readStat(pid); err == nil && st.session == pid && st.state != 'Z' {
			return identity{BootID: s.spec.BootID, PID: pid, Start: st.start}, true
		}
	}
	return identity{}, false
}

// startTaskProcess starts the task's process in its own session and process group, with the FIFOs as its
// output.
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
		// The supervisor opens the FIFO a second time: the task's descriptor must block and the supervisor's must not,
		// and the open file has that property.
		fd, err := unix.Open(filepath.Join(s.dir, name), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return identity{}, fmt.Errorf("open output: %w", err)
		}
		defer unix.Close(fd)
		files = append(files, uintptr(fd))
	}
	if err := s.giveOutputs(files[1:]); err != nil {
		return identity{}, err
	}
	launch := s.forkTask
	if s.spec.Container != nil {
		launch = s.createContainer
	}
	pid, err := launch(files)
	if err != nil {
		return identity{}, fmt.Errorf("start %s: %w", s.spec.Path, err)
	}
	st, err := readStat(pid) // it exists until this process reaps it
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		return identity{}, err
	}
	return identity{BootID: s.spec.BootID, PID: pid, Start: st.start}, nil
}

// readControlCommands passes the commands of the control FIFO on to superviseUntilExit until the FIFO is closed
// or the task has ended. The supervisor holds the FIFO open for writing, so it has no end.
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

// superviseUntilExit executes commands to stop or signal the task until its main process has ended. It returns the
// exit.
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

// signalIfAlive sends a signal to the task's main process (pid) or its process group (-pid), if that process
// still runs.
func (s *supervisor) signalIfAlive(pid, sig int) {
	if s.task.isAlive() {
		s.killed = s.killed || sig == int(unix.SIGKILL)
		_ = unix.Kill(pid, unix.Signal(sig)) // it may have ended: pollTaskExit notices
	}
}

// pollTaskExit reports whether and how the task's main process has ended, and then kills the rest of its
// process group. The group keeps its number while it has members, and the kernel assigns pids in turn, so the
// group that is killed right after its leader was reaped is still the task's.
func (s *supervisor) pollTaskExit() (exitRecord, bool) {
	exit := exitRecord{Version: recordVersion, BootID: s.task.BootID}
	if !s.isParent {
		if s.task.isAlive() {
			return exit, false
		}
		exit.OOM = s.wasKilledForMemory(int(unix.SIGKILL))
		exit.Code, exit.Err = -1, "lost: the task's supervisor was killed, so the exit code is not known"
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
		exit.OOM = s.wasKilledForMemory(exit.Code - 128)
		return exit, true
	}
}

// cleanUpAndRecordExit kills the processes that are left of the task, copies the rest of its output, and writes
// its exit. It tries to write until it succeeds or the folder is removed.
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
	s.removeContainerAndCgroup()
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
		err := record.Write(durable.Replace, s.dir, exitFile, exit)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // a removed folder has no reader
			return
		}
		if !tried {
			fmt.Fprintln(os.Stderr, "supervise task:", err)
		}
		<-time.After(exitRetry)
	}
}

// remainingProcesses returns the processes that the task left running after its main process.
func (s *supervisor) remainingProcesses() []member {
	found := s.spec.Cgroup.listMembers(os.Getpid())
	if s.isParent {
		return append(found, childrenOf(os.Getpid())...)
	}
	// An adopted task is not a child, so its orphans are not either.
	return append(found, membersOf(s.dir, s.task.identity)...)
}

// wasInterrupted reports whether the supervisor itself got a signal to end, handled or still pending.
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
