package supervised

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/drivers/record"
	"skerry/fleet"
)

// clockTick is the unit of times in /proc. USER_HZ is always 100, whatever the kernel uses internally.
const clockTick = time.Second / 100

// maxStatus bounds the bytes that are read of /proc/PID/status.
const maxStatus = 64 << 10

// Consumed returns the usage of each of the task's processes since its start: those in its cgroup, its main process,
// those in its session, and their descendants. An ended task is a fleet.CodeConflict.
func (t *task) Consumed(context.Context) ([]fleet.Consumed, error) {
	var rec taskRecord
	var sp spec
	if err := errors.Join(record.Read(t.dir, taskFile, &rec), record.Read(t.dir, specFile, &sp)); err != nil {
		return nil, fmt.Errorf("measure task %s: %w", t.id, err)
	}
	if !rec.isAlive() {
		return nil, fleet.Errorf(fleet.CodeConflict, "measure task %s: it has ended", t.id)
	}
	all := map[int]procStat{}
	for _, pid := range allPIDs() {
		if s, err := readStat(pid); err == nil && s.state != 'Z' {
			all[pid] = s
		}
	}
	var grouped []int
	if sp.Cgroup != nil {
		grouped = sp.Cgroup.Processes()
	}
	var out []fleet.Consumed
	for pid, s := range all {
		if !slices.Contains(grouped, pid) && !belongsToTask(all, rec.PID, pid) {
			continue
		}
		out = append(out, fleet.Consumed{
			PID: pid, Start: s.start, User: time.Duration(s.user) * clockTick, System: time.Duration(s.system) * clockTick,
			RSS: s.pages * uint64(os.Getpagesize()), Swap: swapBytes(pid),
		})
	}
	return out, nil
}

// belongsToTask reports whether a process is the main process of a task, in its session, or a descendant of one
// that is. all has the processes of the machine, by pid.
func belongsToTask(all map[int]procStat, main, pid int) bool {
	for range len(all) { // bounds the loop: entries that were read at different times may form a ring
		s, ok := all[pid]
		if !ok {
			return false
		}
		if pid == main || s.session == main {
			return true
		}
		pid = s.parent
	}
	return false
}

// swapBytes returns how many bytes of a process are in swap; 0 if that is not known.
func swapBytes(pid int) uint64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStatus))
	if err != nil {
		return 0
	}
	for scan := bufio.NewScanner(bytes.NewReader(b)); scan.Scan(); {
		if rest, ok := strings.CutPrefix(scan.Text(), "VmSwap:"); ok {
			kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 50)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}
