package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"skerry/chaos/disk"
	"skerry/chaos/faultnet"
	"skerry/chaos/proc"
)

// Machine is the machine of a hub or an edge.
type Machine interface {
	// Common returns the part that hubs and edges share.
	Common() *Member
	// Start starts the process.
	Start() error
	// PowerCut kills the process; on an edge also all processes that it started. If the machine
	// has its own disk, data that was not synced is lost.
	PowerCut() error
}

// Member is the part that hubs and edges share: a process at a place in the network. Its
// methods may be called from any goroutine.
type Member struct {
	Name  string
	Place faultnet.Place
	Dir   string
	Disk  *disk.Disk // its own disk; nil: none

	net    faultnet.Network
	binary string
	args   []string

	mu   sync.Mutex
	last *process // guarded by mu: the process that was started last; nil: none was
}

// process is a process that was started. A goroutine waits for its end and then closes done.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Common returns the member itself.
func (m *Member) Common() *Member { return m }

// attachDisk makes and mounts the member's disk; nil: it gets none.
func (m *Member) attachDisk(make func(name, dir string) (*disk.Disk, error)) (err error) {
	if make != nil {
		m.Disk, err = make(m.Name, m.Dir)
	}
	return err
}

// detachDisk unmounts the member's disk, if it has one. No process may use it any more.
func (m *Member) detachDisk() error {
	if m.Disk == nil {
		return nil
	}
	return m.Disk.Close()
}

// WithPower calls do while the power of the member's disk is not cut: it waits until a power cut is over.
func (m *Member) WithPower(do func() error) error {
	if m.Disk == nil {
		return do()
	}
	return m.Disk.WithPower(do)
}

// startPowered starts the program with more variables and arguments, in its own process group, and appends its output to the log file,
// unless it runs. The disk has power.
func (m *Member) startPowered(env []string, more ...string) error {
	if m.Running() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory of %s: %w", m.Name, err)
	}
	log, err := os.OpenFile(m.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", m.Name, err)
	}
	defer log.Close()
	cmd := m.net.Command(m.Name, m.binary, append(append([]string{}, m.args...), more...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	m.last = p
	return nil
}

// lastProcess returns the process that was started last; nil: none was.
func (m *Member) lastProcess() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// LogFile returns the path of the file with the process's output.
func (m *Member) LogFile() string { return m.Dir + ".log" }

// Binary returns the path of the member's program.
func (m *Member) Binary() string { return m.binary }

// Running reports whether the process runs or is paused.
func (m *Member) Running() bool {
	p := m.lastProcess()
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Pid returns the process id; 0 if the process does not run.
func (m *Member) Pid() int {
	if !m.Running() {
		return 0
	}
	return m.lastProcess().cmd.Process.Pid
}

// Exit returns the error with which the last process ended; nil if it ended without one or still runs.
func (m *Member) Exit() error {
	if p := m.lastProcess(); p != nil && !m.Running() {
		return p.err
	}
	return nil
}

// Kill ends the process with SIGKILL and waits for its end; processes that it started live on.
func (m *Member) Kill() {
	if p := m.lastProcess(); p != nil {
		_ = p.cmd.Process.Kill() // it may be gone already
		<-p.done
	}
}

// stopBound is the maximum time from SIGTERM to the end of a process.
const stopBound = 30 * time.Second

// Stop ends the process with SIGTERM and waits for its end. After stopBound it kills it and returns
// an error.
func (m *Member) Stop() error { return m.endBy(syscall.SIGTERM) }

// endBy sends a signal to the process and waits for its end.
func (m *Member) endBy(signal syscall.Signal) error {
	if !m.Running() {
		return nil
	}
	p := m.lastProcess()
	_ = p.cmd.Process.Signal(signal) // it may be gone already
	select {
	case <-p.done:
		return nil
	case <-time.After(stopBound):
		m.Kill()
		return fmt.Errorf("end %s by %s: it did not end within %s and was killed", m.Name, signal, stopBound)
	}
}

// Dump ends the process with SIGQUIT, at which a Go program writes all of its goroutines to its output, and waits for its end. After
// stopBound it kills it and returns an error. It does nothing to a process that has ended.
func (m *Member) Dump() error { return m.endBy(syscall.SIGQUIT) }

// Pause sends SIGSTOP to the process.
func (m *Member) Pause() error { return m.lastProcess().cmd.Process.Signal(syscall.SIGSTOP) }

// Resume sends SIGCONT to the process.
func (m *Member) Resume() error { return m.lastProcess().cmd.Process.Signal(syscall.SIGCONT) }

// Stopped reports whether all threads of the process are stopped.
func (m *Member) Stopped() (bool, error) { return proc.Stopped(m.Pid()) }

// Cut cuts the member off from all others without an answer to its packets, until the result is
// lifted.
func (m *Member) Cut() (*faultnet.Imposed, error) { return m.net.Impose(m.Name, faultnet.Dead()) }
