package dockertest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a process of a daemon. A goroutine waits for its end and then closes ended.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// startProcess starts a program in a process group of its own, and appends its output to the daemon's log.
func (d *Daemon) startProcess(args []string) (*process, error) {
	log, err := os.OpenFile(d.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", d.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = d.Dir // conmon writes a file "oom" there
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "CONTAINERS_REGISTRIES_CONF="+filepath.Join(d.Dir, "registries.conf"),
		"CONTAINERS_CONF="+filepath.Join(d.Dir, "containers.conf"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	return p, nil
}

// isRunning reports whether the process has not ended. It is false for nil.
func (p *process) isRunning() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// hasPid reports whether the process has that id. It is false for nil.
func (p *process) hasPid(pid int) bool { return p != nil && p.cmd.Process.Pid == pid }

// endBySignal ends the process by a signal and waits for it. After stopTimeout it kills it. It does nothing for nil.
func (p *process) endBySignal(sig syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)             // it may be gone already
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a process held by SIGSTOP reacts to no other signal than SIGKILL
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// CutPower kills the daemon and all its containers at once, as a loss of power does, and removes the files that a
// machine keeps in memory.
func (d *Daemon) CutPower() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.killWithContainers()
}

// killWithContainers does the work of CutPower. The caller holds mu.
func (d *Daemon) killWithContainers() error {
	d.main.endBySignal(syscall.SIGKILL)
	d.containerd.endBySignal(syscall.SIGKILL)
	d.main, d.containerd = nil, nil
	if err := errors.Join(d.killContainers(), d.killPause()); err != nil {
		return err
	}
	if err := UnmountBelow(d.Dir); err != nil {
		return err
	}
	return d.removeFiles("run", "tmp", "exec", "cstate", "pid", "c.sock", "c.sock.ttrpc", "d.sock")
}

// killPause kills the process that keeps the namespaces of a Podman without root, if there is one.
func (d *Daemon) killPause() error {
	text, err := os.ReadFile(filepath.Join(d.Dir, "tmp", "pause.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	pid, wrong := strconv.Atoi(strings.TrimSpace(string(text)))
	if err = errors.Join(err, wrong); err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the pause process of %s: %w", d.Name, err)
	}
	return nil
}

// LoseContainers kills the daemon and all its containers, and removes its records of containers and images.
func (d *Daemon) LoseContainers() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.killWithContainers(); err != nil {
		return err
	}
	return d.removeFiles("data", "croot")
}

// removeFiles removes files and folders of the daemon. The caller holds mu.
func (d *Daemon) removeFiles(names ...string) error {
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(d.Dir, name)); err != nil {
			return fmt.Errorf("remove files of %s: %w", d.Name, err)
		}
	}
	return nil
}

// KillContainers kills the first process of each container without telling the daemon, and returns their number.
func (d *Daemon) KillContainers() (killed int, err error) {
	pids, err := d.FirstProcesses()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed, nil
}

// killContainers kills the processes in the daemon's containers and those that keep them, and removes their cgroups.
// The caller holds mu.
func (d *Daemon) killContainers() error {
	groups := map[string]bool{}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(stopTimeout); ; <-tick.C {
		keepers, tasks, err := d.listProcesses()
		if err != nil {
			return err
		}
		for _, pid := range tasks {
			findCgroups(pid, groups)
		}
		left := append(append(keepers, tasks...), processesIn(groups)...)
		var inUse error
		if len(left) == 0 {
			if inUse = removeCgroups(groups); inUse == nil {
				return nil
			}
		}
		for _, pid := range left {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d of %s: %w", pid, d.Name, err)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill the containers of %s: %w", d.Name, cmp.Or(inUse, fmt.Errorf("they still run: %s", describeProcesses(left))))
		}
	}
}

// describeProcesses returns the pid, the name and the state of processes, such as "17 (cat) D".
func describeProcesses(pids []int) string {
	var out []string
	for _, pid := range pids {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // an error means that it has ended
		fields := strings.Fields(string(stat))
		out = append(out, strings.Join(fields[:min(3, len(fields))], " "))
	}
	return strings.Join(out, ", ")
}

// FirstProcesses returns, for each container, the host's pid of its process 1. It works while the daemon is dead or
// hangs.
func (d *Daemon) FirstProcesses() (pids []int, err error) {
	_, tasks, err := d.Processes()
	for _, pid := range tasks {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil && isFirstProcess(string(b)) {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// isFirstProcess reports whether a process, by its status, has pid 1 in a namespace of its own.
func isFirstProcess(status string) bool {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			of := strings.Fields(ids)
			return len(of) > 1 && of[len(of)-1] == "1"
		}
	}
	return false
}

// Processes returns the processes that keep or make containers, such as containerd's shims and conmon (keepers), and
// the processes in the containers (tasks). It reads /proc, so it works while the daemon is dead or hangs.
func (d *Daemon) Processes() (keepers, tasks []int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listProcesses()
}

// listProcesses does the work of Processes. The caller holds mu.
func (d *Daemon) listProcesses() (keepers, tasks []int, err error) {
	parents, err := processParents()
	if err != nil {
		return nil, nil, err
	}
	keeper := map[int]bool{}
	for pid := range parents {
		if d.keepsContainer(pid) {
			keeper[pid] = true
			keepers = append(keepers, pid)
		}
	}
	for pid := range parents {
		for up := parents[pid]; up > 1 && !keeper[pid]; up = parents[up] {
			if keeper[up] {
				tasks = append(tasks, pid)
				break
			}
		}
	}
	return keepers, tasks, nil
}

// keeperPrograms are the daemons and the programs that keep or make containers. Docker's shims have more names.
var keeperPrograms = []string{"conmon", "podman", "runc", "crun", "dockerd", "containerd"}

// keepsContainer reports whether a process belongs to this Daemon without being one that it has started itself.
func (d *Daemon) keepsContainer(pid int) bool {
	if d.main.hasPid(pid) || d.containerd.hasPid(pid) {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false // it has just ended
	}
	program, args, _ := strings.Cut(string(b), "\x00")
	program = filepath.Base(program)
	known := strings.HasPrefix(program, "containerd-shim") || slices.Contains(keeperPrograms, program)
	return known && strings.Contains(args, d.Dir+string(filepath.Separator))
}

// processParents returns the parent of each process.
func processParents() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	parents := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has just ended
		}
		// The name, in parentheses, may hold blanks and parentheses.
		rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
		if fields := strings.Fields(rest); len(fields) > 1 && fields[0] != "Z" {
			if parents[pid], err = strconv.Atoi(fields[1]); err != nil {
				return nil, fmt.Errorf("read the parent of process %d: %w", pid, err)
			}
		}
	}
	return parents, nil
}
