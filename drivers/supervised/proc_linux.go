package supervised

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// closeInheritedFiles closes the descriptors that the agent's parent had left open, which the task would keep
// open. Descriptors of the Go runtime have the close-on-exec flag.
func closeInheritedFiles() {
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

// procStat is the part of /proc/PID/stat that the driver needs.
type procStat struct {
	state   byte
	parent  int    // pid
	session int    // pid of the session's leader
	start   uint64 // field 22: clock ticks since boot
	user    uint64 // clock ticks
	system  uint64
	pages   uint64 // of resident memory
}

// readStat reads /proc/PID/stat. It returns an error if there is no such process.
func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, fmt.Errorf("read process: %w", err)
	}
	return parseStat(b)
}

// parseStat parses /proc/PID/stat. The second field is the program's name in parentheses, which may
// contain anything, also parentheses and blanks.
func parseStat(b []byte) (procStat, error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return procStat{}, errors.New("parse process: no name")
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return procStat{}, errors.New("parse process: too few fields")
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	start, err3 := strconv.ParseUint(fields[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return procStat{}, fmt.Errorf("parse process: %w", err)
	}
	s := procStat{state: fields[0][0], parent: parent, session: session, start: start}
	// Usage is optional: it is 0 if it cannot be read.
	s.user, _ = strconv.ParseUint(fields[11], 10, 63)
	s.system, _ = strconv.ParseUint(fields[12], 10, 63)
	if len(fields) > 21 {
		s.pages, _ = strconv.ParseUint(fields[21], 10, 50)
	}
	return s, nil
}

// isStopped reports whether the process is stopped, by SIGSTOP or a debugger.
func (s procStat) isStopped() bool { return s.state == 'T' || s.state == 't' }

// isAlive reports whether the process with that pid and start time still runs. A zombie does not run.
func (id identity) isAlive() bool {
	s, err := readStat(id.PID)
	return err == nil && s.start == id.Start && s.state != 'Z' && s.state != 'X'
}

// allPIDs returns the pids of all processes of the machine.
func allPIDs() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childrenOf returns the children of pid that are not zombies.
func childrenOf(pid int) []member {
	var found []member
	for _, p := range allPIDs() {
		if s, err := readStat(p); err == nil && s.parent == pid && s.state != 'Z' {
			found = append(found, member{p, s.start})
		}
	}
	return found
}

// outputHolders returns the pids of other processes that have the task's output open: the task and its
// descendants only, because the FIFOs are in this very folder.
func outputHolders(dir string) []int {
	var found []int
	for _, p := range allPIDs() {
		if p != os.Getpid() && holdsOutput(p, dir) {
			found = append(found, p)
		}
	}
	return found
}

// holdsOutput reports whether a process has an output FIFO of the folder dir as its stdout or stderr.
func holdsOutput(pid int, dir string) bool {
	for fd, name := range map[int]string{1: stdoutFIFO, 2: stderrFIFO} {
		var fifo, open unix.Stat_t
		if unix.Stat(filepath.Join(dir, name), &fifo) != nil ||
			unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), &open) != nil {
			continue
		}
		if fifo.Dev == open.Dev && fifo.Ino == open.Ino {
			return true
		}
	}
	return false
}

// markerVariable is set in the environment of a task's processes. Its value is the device and inode of
// the task's state folder, which a copy of the folder does not have.
const markerVariable = "SKERRY_TASK"

// markerOf returns the environment variable, with its value, that marks the processes of a state folder's task.
func markerOf(dir string) (string, error) {
	device, inode, err := folderOf(dir)
	return fmt.Sprintf("%s=%d:%d", markerVariable, device, inode), err
}

// Marker returns the environment variable, with its value, that a container of a state folder's task must have. It
// identifies the container's processes if the supervisor was killed.
func Marker(stateDir string) (string, error) { return markerOf(stateDir) }

// maxEnviron bounds the bytes that are read of a process's environment.
const maxEnviron = 1 << 20

// hasMarker reports whether a process has the marker in its environment.
func hasMarker(pid int, marker string) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false // it has ended, or belongs to another user
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	return err == nil && slices.Contains(strings.Split(string(b), "\x00"), marker)
}

// member is a process of a task. Its start time distinguishes it from a later process with the same pid.
type member struct {
	pid   int
	start uint64
}

// membersOf returns the living processes of a state folder's task, in any session: those that have its output
// open, its marker in their environment, or its session, and all descendants of these and of roots.
func membersOf(dir string, task identity, roots ...int) []member {
	marker, err := markerOf(dir)
	if err != nil {
		return nil // the folder was removed: nothing identifies its processes
	}
	all := map[int]procStat{}
	for _, pid := range allPIDs() {
		if s, err := readStat(pid); err == nil {
			all[pid] = s
		}
	}
	ours := map[int]bool{}
	alive := task.isAlive()
	for pid, s := range all {
		// A session keeps its number while it has members.
		ours[pid] = alive && s.session == task.PID || holdsOutput(pid, dir) || hasMarker(pid, marker)
	}
	for grew := true; grew; {
		grew = false
		for pid, s := range all {
			if !ours[pid] && (ours[s.parent] || slices.Contains(roots, s.parent)) {
				ours[pid], grew = true, true
			}
		}
	}
	var found []member
	for pid, is := range ours {
		s := all[pid]
		if is && pid != os.Getpid() && !slices.Contains(roots, pid) && s.state != 'Z' && s.state != 'X' {
			found = append(found, member{pid, s.start})
		}
	}
	return found
}

// signalProcess sends a signal to the process with that pid and start time, and not to another one with a
// reused pid. If it has ended, the error is ESRCH.
func signalProcess(pid int, start uint64, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err // it has ended
	}
	defer unix.Close(fd)
	// The descriptor refers to one process; check that it is the right one.
	if s, err := readStat(pid); err != nil || s.start != start {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// supervisorOf returns the supervisor of a state folder, found by its command line; false: there is none. A
// supervisor of a copy of the folder has another path.
func supervisorOf(dir string) (member, procStat, bool) {
	if !hasSupervisor(dir) {
		return member{}, procStat{}, false
	}
	for _, pid := range allPIDs() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
		if len(args) != 3 || args[1] != superviseArg || args[2] != dir {
			continue
		}
		if s, err := readStat(pid); err == nil && s.state != 'Z' {
			return member{pid, s.start}, s, true
		}
	}
	return member{}, procStat{}, false
}

// folderOf returns the device and inode of a state folder.
func folderOf(dir string) (device, inode uint64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("stat %s: %w", dir, err)
	}
	return uint64(st.Dev), st.Ino, nil // Dev is narrower on some architectures
}

// isInFolder reports whether dir is the folder in which the record was written, and not a copy.
func (t *taskRecord) isInFolder(dir string) bool {
	device, inode, err := folderOf(dir)
	return err == nil && device == t.Device && inode == t.Inode
}
