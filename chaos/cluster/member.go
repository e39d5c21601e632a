package cluster

import (
	"fmt"
	"os"
	"sync"
	"time"

	"skerry/chaos/clock"
	"skerry/chaos/disk"
	"skerry/chaos/faultnet"
	"skerry/chaos/proc"
)

// member is what hubs and edges have in common: a process at a place. Its methods
// may be called from any goroutine.
type member struct {
	Name  string
	Place faultnet.Place
	Dir   string
	Disk  *disk.Disk // nil: the machine's
	Clock clock.File // "": its clock cannot be moved

	net    faultnet.Network
	binary string
	args   []string

	mu   sync.Mutex
	proc *proc.Process // guarded by mu
}

// attachDisk gives the member its disk.
func (m *member) attachDisk(make func(name, dir string) (*disk.Disk, error)) (err error) {
	if make != nil {
		m.Disk, err = make(m.Name, m.Dir)
	}
	return err
}

// detachDisk takes the disk out; nobody works on it any more.
func (m *member) detachDisk() error {
	if m.Disk == nil {
		return nil
	}
	return m.Disk.Close()
}

func (m *member) startProcess(env []string, more ...string) error {
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
func (m *member) lastProcess() *proc.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
}

// LogFile is where the process writes what it has to say.
func (m *member) LogFile() string { return m.Dir + ".log" }

// Binary is the program that the process runs.
func (m *member) Binary() string { return m.binary }

// Running reports whether the process runs (or stands still).
func (m *member) Running() bool {
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
func (m *member) Pid() int {
	if !m.Running() {
		return 0
	}
	return m.lastProcess().Pid()
}

// Exit is how the process ended; nil also where it has not.
func (m *member) Exit() error {
	if p := m.lastProcess(); p != nil && !m.Running() {
		return p.Exit()
	}
	return nil
}

// Kill ends the process with SIGKILL; what it started lives on.
func (m *member) Kill() {
	if p := m.lastProcess(); p != nil {
		p.Kill()
	}
}

// Stop ends the process with SIGTERM.
func (m *member) Stop() error {
	if !m.Running() {
		return nil
	}
	return m.lastProcess().Stop(30 * time.Second)
}

// Pause stops the process in its tracks, Resume lets it go on.
func (m *member) Pause() error  { return m.lastProcess().Pause() }
func (m *member) Resume() error { return m.lastProcess().Resume() }

// Stopped reports whether every thread of the process stands still.
func (m *member) Stopped() (bool, error) { return proc.Stopped(m.Pid()) }

// Cut takes the member off the network, Heal puts it back.
func (m *member) Cut() error  { return m.net.Cut(m.Name) }
func (m *member) Heal() error { return m.net.Heal(m.Name) }
