package rawexec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// procStat is what is needed of /proc/PID/stat.
type procStat struct {
	state   byte
	parent  int
	session int
	start   uint64 // field 22: clock ticks since boot
	user    uint64 // ticks spent
	system  uint64
	pages   uint64 // of memory that it has
}

func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, fmt.Errorf("read process: %w", err)
	}
	return parseStat(b)
}

// parseStat reads a line of /proc/PID/stat. The second field is the program's
// name in parentheses, and may hold anything, also parentheses and blanks.
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
	// What it uses is not needed to know it by, and is 0 where it cannot be read.
	s.user, _ = strconv.ParseUint(fields[11], 10, 63)
	s.system, _ = strconv.ParseUint(fields[12], 10, 63)
	if len(fields) > 21 {
		s.pages, _ = strconv.ParseUint(fields[21], 10, 50)
	}
	return s, nil
}

// alive reports whether the very process of id still runs. One that has ended
// and only waits to be reaped does not.
func (id identity) alive() bool {
	s, err := readStat(id.PID)
	return err == nil && s.start == id.Start && s.state != 'Z' && s.state != 'X'
}

// processes lists the pids of the machine.
func processes() []int {
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

// childrenOf lists the processes whose parent is pid and that are not zombies.
func childrenOf(pid int) []int {
	var found []int
	for _, p := range processes() {
		if s, err := readStat(p); err == nil && s.parent == pid && s.state != 'Z' {
			found = append(found, p)
		}
	}
	return found
}

// holdersOf lists the processes, other than this one, that have the task's
// output open: the task and its descendants, and nobody else's, as the FIFOs are
// in this very folder.
func holdersOf(dir string) []int {
	var found []int
	for _, p := range processes() {
		if p != os.Getpid() && holdsOutput(p, dir) {
			found = append(found, p)
		}
	}
	return found
}

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

// folderOf returns device and inode of the state folder.
func folderOf(dir string) (device, inode uint64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("stat %s: %w", dir, err)
	}
	return uint64(st.Dev), st.Ino, nil // Dev is narrower on some architectures
}

// here reports whether the task belongs to the folder that its record lies in.
func (t *taskRecord) here(dir string) bool {
	device, inode, err := folderOf(dir)
	return err == nil && device == t.Device && inode == t.Inode
}
