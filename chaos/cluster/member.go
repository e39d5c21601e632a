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

// Machine is a hub or an edge.
type Machine interface {
	// Common is what hubs and edges have in common.
	Common() *Member
	// Start starts its process.
	Start() error
	// PowerCut kills the process, and what an edge's started; a disk of its own forgets what was
	// not synced.
	PowerCut() error
}

// Member is what hubs and edges have in common: a process at a place. Its methods
// may be called from any goroutine.
type Member struct {
	Name  string
	Place faultnet.Place
	Dir   string
	Disk  *disk.Disk // nil: the machine's

	net    faultnet.Network
	binary string
	args   []string

	mu   sync.Mutex
	last *process // guarded by mu: the one that was started last; nil before the first
}

// process is a process that was started. A goroutine waits for its end.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Common is the member itself.
func (m *Member) Common() *Member { return m }

// attachDisk gives the member its disk.
func (m *Member) attachDisk(make func(name, dir string) (*disk.Disk, error)) (err error) {
	if make != nil {
		m.Disk, err = make(m.Name, m.Dir)
	}
	return err
}

// detachDisk takes the disk out; nobody works on it any more.
func (m *Member) detachDisk() error {
	if m.Disk == nil {
		return nil
	}
	return m.Disk.Close()
}

// startProcess starts the program in a process group of its own, with its output appended to the log.
func (m *Member) startProcess(env []string, more ...string) error {
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

func (m *Member) lastProcess() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// LogFile is where the process writes what it has to say.
func (m *Member) LogFile() string { return m.Dir + ".log" }

// Binary is the program that the process runs.
func (m *Member) Binary() string { return m.binary }

// Running reports whether the process runs (or stands still).
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

// Pid is the process id, 0 where it does not run.
func (m *Member) Pid() int {
	if !m.Running() {
		return 0
	}
	return m.lastProcess().cmd.Process.Pid
}

// Exit is how the process ended; nil also where it has not.
func (m *Member) Exit() error {
	if p := m.lastProcess(); p != nil && !m.Running() {
		return p.err
	}
	return nil
}

// Kill ends the process with SIGKILL; what it started lives on.
func (m *Member) Kill() {
	if p := m.lastProcess(); p != nil {
		_ = p.cmd.Process.Kill() // it may be gone already
		<-p.done
	}
}

// stopBound is how long a process may take to end when it is asked to.
const stopBound = 30 * time.Second

// Stop ends the process with SIGTERM.
func (m *Member) Stop() error {
	if !m.Running() {
		return nil
	}
	p := m.lastProcess()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-p.done:
		return nil
	case <-time.After(stopBound):
		m.Kill()
		return fmt.Errorf("stop %s: it did not end within %s and was killed", m.Name, stopBound)
	}
}

// Pause stops the process in its tracks.
func (m *Member) Pause() error { return m.lastProcess().cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (m *Member) Resume() error { return m.lastProcess().cmd.Process.Signal(syscall.SIGCONT) }

// Stopped reports whether every thread of the process stands still.
func (m *Member) Stopped() (bool, error) { return proc.Stopped(m.Pid()) }

// Cut takes the member off the network, silently: packets vanish, nothing answers.
func (m *Member) Cut() (*faultnet.Imposed, error) { return m.net.Impose(m.Name, faultnet.Dead()) }
