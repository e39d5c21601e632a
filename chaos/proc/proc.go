// Package proc finds, inspects and kills real processes by /proc: those of hubs and edges, and those
// that edges leave running. It starts no goroutine and persists nothing.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// Stopped reports whether all threads of a process are stopped (SIGSTOP).
func Stopped(pid int) (bool, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false, fmt.Errorf("read the threads of process %d: %w", pid, err)
	}
	for _, t := range threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, t.Name()))
		if err != nil {
			continue // it just ended
		}
		// The state stands behind the name, which is in parentheses.
		_, rest, _ := strings.Cut(string(b), ") ")
		if !strings.HasPrefix(rest, "T") {
			return false, nil
		}
	}
	return true, nil
}

// Below returns the ids of the processes that belong to a directory: they work in it or below it, their command line
// or environment contains it, or they are tasks in containers that see a folder of it. This process is left out.
func Below(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if belongs(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// belongs reports whether a process belongs to a directory, as Below defines it.
func belongs(pid int, dir string) bool {
	base := fmt.Sprintf("/proc/%d/", pid)
	if cwd, err := os.Readlink(base + "cwd"); err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
		return true
	}
	for _, f := range []string{"cmdline", "environ"} {
		if b, err := os.ReadFile(base + f); err == nil && names(string(b), dir) {
			return true
		}
	}
	return isTaskInContainer(pid, dir)
}

// isTaskInContainer reports whether a process is in a container of an edge's task: the shared folder of its
// allocation, as the container sees it, is the one below dir. Nothing else of such a process names dir.
func isTaskInContainer(pid int, dir string) bool {
	env, err := Environ(pid)
	alloc := env["NOMAD_ALLOC_ID"]
	if err != nil || alloc == "" || alloc != filepath.Base(alloc) {
		return false
	}
	inside, err := os.Stat(fmt.Sprintf("/proc/%d/root/%s", pid, env["NOMAD_ALLOC_DIR"]))
	if err != nil {
		return false
	}
	outside, err := os.Stat(filepath.Join(dir, "allocs", alloc, "alloc"))
	return err == nil && os.SameFile(inside, outside)
}

// names reports whether a text contains the path of dir or of something in it. A longer name with
// the same beginning does not count: edge-1 is not edge-10.
func names(text, dir string) bool {
	for {
		_, after, found := strings.Cut(text, dir)
		if !found {
			return false
		}
		if after == "" || !strings.ContainsRune("-._", rune(after[0])) && !unicode.IsLetter(rune(after[0])) && !unicode.IsDigit(rune(after[0])) {
			return true
		}
		text = after
	}
}

// killBound is the maximum time until killed processes are gone: on a loaded machine a container takes a while.
const killBound = 20 * time.Second

// KillBelow kills every process that belongs to a directory (Below), again and again until none is
// left, and removes their cgroups. It returns an error if some are left after killBound.
func KillBelow(dir string) error {
	cgroups := map[string]bool{}
	for deadline := time.Now().Add(killBound); ; time.Sleep(5 * time.Millisecond) {
		pids, err := Below(dir)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			removeCgroups(cgroups)
			return nil
		}
		for _, pid := range pids {
			for _, path := range cgroupPaths(strconv.Itoa(pid)) {
				cgroups[path] = true
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill the processes below %s: %v still run", dir, pids)
		}
	}
}

// Resident returns the resident set size of a process, in bytes.
func Resident(pid int) (int64, error) { return smaps(pid, "Rss:") }

// Proportional returns the proportional set size of a process, in bytes.
func Proportional(pid int) (int64, error) { return smaps(pid, "Pss:") }

// Peak returns the largest resident set size that a process has had, in bytes.
func Peak(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the peak memory of process %d: %w", pid, err)
	}
	return kib(string(b), "VmHWM:", pid)
}

// smaps returns a field of a process's smaps_rollup file, in bytes.
func smaps(pid int, field string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return kib(string(b), field, pid)
}

// kib finds the line "FIELD NUMBER kB" in a text and returns the number in bytes. pid is for errors.
func kib(text, field string, pid int) (int64, error) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == field {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: no %s", pid, field)
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 on each architecture that Skerry is built for.
const clockTick = time.Second / 100

// ProcessorTime returns the processor time that a process has used since it started, without its children.
func ProcessorTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name in parentheses may have spaces
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the processor time of process %d: %d fields", pid, len(fields))
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(user+system) * clockTick, nil
}

// Files returns the number of open files of a process.
func Files(pid int) (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, fmt.Errorf("list the files of process %d: %w", pid, err)
	}
	return len(open), nil
}

// CommandLine returns the arguments of a process, each with a NUL behind it, which every user of the machine may read.
func CommandLine(pid int) ([]byte, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, fmt.Errorf("read the command line of process %d: %w", pid, err)
	}
	return b, nil
}

// Environ returns the environment with which a process was started.
func Environ(pid int) (map[string]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil, fmt.Errorf("read the environment of process %d: %w", pid, err)
	}
	env := map[string]string{}
	for kv := range strings.SplitSeq(string(b), "\x00") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env, nil
}

// LeadsGroup reports whether a process is the leader of a process group, as the first process of a
// task is.
func LeadsGroup(pid int) bool {
	group, err := syscall.Getpgid(pid)
	return err == nil && group == pid
}

// Program returns the path of a process's executable.
func Program(pid int) (string, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return "", fmt.Errorf("find the program of process %d: %w", pid, err)
	}
	return path, nil
}
