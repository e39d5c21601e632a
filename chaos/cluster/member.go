package cluster

import (
	"fmt"
	"os"
	"sync"
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
	proc *proc.Process // guarded by mu
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

func (m *Member) startProcess(env []string, more ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory of %s: %w", m.Name, err)
	}
	cmd := m.net.Command(m.Name, m.binary, append(append([]string{}, m.args...), more...)...)
	cmd.Env = append(os.Environ(), env...)
	p, err := proc.Start(cmd, m.LogFile())
	if err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	m.proc = p
	return nil
}

// lastProcess is the process that was started last, nil before the first.
func (m *Member) lastProcess() *proc.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
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
	case <-p.Done():
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
	return m.lastProcess().Pid()
}

// Exit is how the process ended; nil also where it has not.
func (m *Member) Exit() error {
	if p := m.lastProcess(); p != nil && !m.Running() {
		return p.Exit()
	}
	return nil
}

// Kill ends the process with SIGKILL; what it started lives on.
func (m *Member) Kill() {
	if p := m.lastProcess(); p != nil {
		p.Kill()
	}
}

// Stop ends the process with SIGTERM.
func (m *Member) Stop() error {
	if !m.Running() {
		return nil
	}
	return m.lastProcess().Stop(30 * time.Second)
}

// Pause stops the process in its tracks.
func (m *Member) Pause() error { return m.lastProcess().Pause() }

// Resume lets a paused process go on.
func (m *Member) Resume() error { return m.lastProcess().Resume() }

// Stopped reports whether every thread of the process stands still.
func (m *Member) Stopped() (bool, error) { return proc.Stopped(m.Pid()) }

// Cut takes the member off the network, silently: packets vanish, nothing answers.
func (m *Member) Cut() (*faultnet.Imposed, error) { return m.net.Impose(m.Name, faultnet.Dead()) }
