package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFile bounds the bytes that are read of a kernel file.
	maxFile = 1 << 20
	// maxCores is more than the kernel supports.
	maxCores = 1 << 16
	// removeTimeout bounds the wait for the kernel to notice that a cgroup is empty.
	removeTimeout = 2 * time.Second
)

// Hierarchy is the mount points of the machine's cgroups.
type Hierarchy struct {
	unified string
	beside  string            // secondMount if cgroup v2 is mounted there, beside v1; tasks are not limited by it
	legacy  map[string]string // by controller
}

// secondMount is where systemd mounts cgroup v2 beside v1, and where crun looks for it.
const secondMount = "/sys/fs/cgroup/unified"

// Find returns the mount points of the machine's cgroups.
func Find() (Hierarchy, error) {
	b, err := readFile("/proc/self/mountinfo")
	if err != nil {
		return Hierarchy{}, err
	}
	return parseMounts(string(b)), nil
}

// parseMounts reads the cgroup mounts from a file like /proc/self/mountinfo. A cgroup v2 that is mounted beside v1
// (hybrid) limits no tasks.
func parseMounts(mountinfo string) Hierarchy {
	h := Hierarchy{legacy: make(map[string]string)}
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(strings.TrimSpace(line), " - ")
		place, source := strings.Fields(before), strings.Fields(after)
		if !found || len(place) < 5 || len(source) < 3 {
			continue
		}
		switch source[0] {
		case "cgroup2":
			h.unified = place[4]
			if place[4] == secondMount {
				h.beside = secondMount
			}
		case "cgroup":
			for option := range strings.SplitSeq(source[2], ",") {
				if slices.Contains(controllers, option) {
					h.legacy[option] = place[4]
				}
			}
		}
	}
	if len(h.legacy) > 0 {
		h.unified = ""
	} else {
		h.beside = ""
	}
	return h
}

// Version names the kind of the machine's cgroups: v1 (also hybrid), v2, or none.
func (h Hierarchy) Version() string {
	switch {
	case len(h.legacy) > 0:
		return "v1"
	case h.unified != "":
		return "v2"
	}
	return "none"
}

// SecondMount returns the mount point of a cgroup v2 with controllers beside v1, which the OCI runtime crun refuses; "": there
// is none.
func (h Hierarchy) SecondMount() string {
	if h.beside == "" {
		return ""
	}
	b, err := readFile(filepath.Join(h.beside, "cgroup.controllers"))
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return ""
	}
	return h.beside
}

// LimitsSwap reports whether the kernel limits the swap of a cgroup.
func (h Hierarchy) LimitsSwap() bool {
	if dir, ok := h.legacy["memory"]; ok {
		_, err := os.Stat(filepath.Join(dir, "memory.memsw.limit_in_bytes"))
		return err == nil
	}
	found, _ := filepath.Glob(filepath.Join(h.unified, "*", "memory.swap.max"))
	return h.unified != "" && len(found) > 0
}

// Group returns the cgroup with that name. It does not make it.
func (h Hierarchy) Group(name string) Group {
	g := Group{}
	if h.unified != "" {
		g.Unified = filepath.Join(h.unified, parent, CleanName(name))
	}
	for controller, dir := range h.legacy {
		if g.Legacy == nil {
			g.Legacy = make(map[string]string)
		}
		g.Legacy[controller] = filepath.Join(dir, parent, CleanName(name))
	}
	return g
}

// CgroupsPath returns the path of the cgroup with that name, in the form for an OCI runtime.
func (h Hierarchy) CgroupsPath(name string) string { return "/" + parent + "/" + CleanName(name) }

// probes counts the cgroups that Probe has made. Each needs a name of its own, because tasks may start at once.
var probes atomic.Int64

// Probe makes a cgroup with limits and removes it. Its error says why tasks cannot have cgroups.
func (h Hierarchy) Probe() error {
	if h.Version() == "none" {
		return fmt.Errorf("%w: none are mounted", ErrUnavailable)
	}
	g := h.Group(fmt.Sprintf("probe-%d-%d", os.Getpid(), probes.Add(1)))
	err := g.Create(Limits{CPUShares: 100, Memory: 64 << 20})
	if err := errors.Join(err, g.Remove()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// listFolders returns the folders of the cgroup, each once.
func (g Group) listFolders() []string {
	var all []string
	if g.Unified != "" {
		all = append(all, g.Unified)
	}
	for _, dir := range g.Legacy {
		all = append(all, dir)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Create makes the cgroup with its limits. It may exist already.
func (g Group) Create(l Limits) error {
	for _, dir := range g.listFolders() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	if g.Unified != "" {
		return g.createUnified(l)
	}
	// A cgroup of v1 accepts a process only after it has cores and memory nodes.
	if dir, ok := g.Legacy["cpuset"]; ok {
		for _, d := range []string{filepath.Dir(dir), dir} {
			for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inheritSetting(d, name); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range []struct{ controller, file, value string }{
		{"cpu", "cpu.shares", positive(int64(l.CPUShares))}, {"cpuset", "cpuset.cpus", l.CPUs},
		{"memory", "memory.limit_in_bytes", positive(l.Memory)}, {"memory", "memory.soft_limit_in_bytes", positive(l.SoftMemory)},
		{"pids", "pids.max", positive(l.PIDs)},
	} {
		if s.value == "" {
			continue
		}
		dir, ok := g.Legacy[s.controller]
		if !ok {
			return fmt.Errorf("limit cgroup: the machine has no controller %s", s.controller)
		}
		if err := writeFile(dir, s.file, s.value); err != nil {
			return err
		}
	}
	if l.Memory > 0 { // a kernel without swap accounting has no such file
		if err := writeFile(g.Legacy["memory"], "memory.memsw.limit_in_bytes", positive(l.Memory)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// createUnified enables the controllers that the limits need in the cgroup's parents and sets the limits.
func (g Group) createUnified(l Limits) error {
	var wanted []string
	shares := ""
	if l.CPUShares > 0 {
		shares = strconv.Itoa(weight(l.CPUShares))
	}
	settings := []struct{ controller, file, value string }{
		{"cpu", "cpu.weight", shares}, {"cpuset", "cpuset.cpus", l.CPUs}, {"memory", "memory.max", positive(l.Memory)},
		{"memory", "memory.low", positive(l.SoftMemory)}, {"pids", "pids.max", positive(l.PIDs)},
	}
	for _, s := range settings {
		if s.value != "" && !slices.Contains(wanted, s.controller) {
			wanted = append(wanted, s.controller)
		}
	}
	for _, dir := range []string{filepath.Dir(filepath.Dir(g.Unified)), filepath.Dir(g.Unified)} {
		for _, controller := range wanted {
			if err := writeFile(dir, "cgroup.subtree_control", "+"+controller); err != nil {
				return err
			}
		}
	}
	for _, s := range settings {
		if s.value == "" {
			continue
		}
		if err := writeFile(g.Unified, s.file, s.value); err != nil {
			return err
		}
	}
	if l.Memory > 0 {
		if err := writeFile(g.Unified, "memory.swap.max", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// KeepOffCores lets the processes in the cgroup use the cores of its parent apart from some; all, if none are left.
// A cgroup that does not exist, or that knows no cores, is an fs.ErrNotExist.
func (g Group) KeepOffCores(reserved []int) error {
	if g.Unified == "" {
		dir, ok := g.Legacy["cpuset"]
		if !ok {
			return fmt.Errorf("keep cgroup off cores: no controller cpuset: %w", fs.ErrNotExist)
		}
		all, err := readFile(filepath.Join(filepath.Dir(dir), "cpuset.cpus"))
		if err != nil {
			return err
		}
		return writeFile(dir, "cpuset.cpus", withoutCores(string(all), reserved))
	}
	if len(reserved) == 0 {
		return writeFile(g.Unified, "cpuset.cpus", "\n") // those of the parent
	}
	for dir := filepath.Dir(g.Unified); ; dir = filepath.Dir(dir) {
		all, err := readFile(filepath.Join(dir, "cpuset.cpus.effective"))
		if err == nil {
			return g.createUnified(Limits{CPUs: withoutCores(string(all), reserved)})
		}
		if filepath.Dir(dir) == dir {
			return err
		}
	}
}

// withoutCores returns the cores of a list such as 0-1,3 apart from some; all, if none are left.
func withoutCores(list string, without []int) string {
	var left []string
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to > maxCores {
			return strings.TrimSpace(list)
		}
		for id := from; id <= to; id++ {
			if !slices.Contains(without, id) {
				left = append(left, strconv.Itoa(id))
			}
		}
	}
	if len(left) == 0 {
		return strings.TrimSpace(list)
	}
	return strings.Join(left, ",")
}

// inheritSetting copies a setting that is empty from the parent's folder.
func inheritSetting(dir, name string) error {
	now, err := readFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(now)) != "" {
		return nil
	}
	value, err := readFile(filepath.Join(filepath.Dir(dir), name))
	if err != nil {
		return err
	}
	return writeFile(dir, name, strings.TrimSpace(string(value)))
}

// positive returns a positive number as text, or "".
func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Add moves a process into the cgroup.
func (g Group) Add(pid int) error {
	for _, dir := range g.listFolders() {
		if err := writeFile(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// Of returns the cgroup of a process, in the hierarchies of g.
func (g Group) Of(pid int, h Hierarchy) (Group, error) {
	b, err := readFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return Group{}, err
	}
	var found Group
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if parts[1] == "" && g.Unified != "" {
			found.Unified = filepath.Join(h.unified, parts[2])
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			if _, ours := g.Legacy[controller]; ours {
				if found.Legacy == nil {
					found.Legacy = make(map[string]string)
				}
				found.Legacy[controller] = filepath.Join(h.legacy[controller], parts[2])
			}
		}
	}
	return found, nil
}

// Processes returns the pids of the processes in the cgroup; none if it does not exist.
func (g Group) Processes() []int {
	var pids []int
	for _, dir := range g.listFolders() {
		b, err := readFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// Kill kills all processes in the cgroup, apart from the caller.
func (g Group) Kill() {
	for _, pid := range g.Processes() {
		if pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
	}
}

// OOMKills returns how many processes of the cgroup the kernel's OOM killer has killed.
func (g Group) OOMKills() uint64 {
	for _, path := range []string{filepath.Join(g.Unified, "memory.events"), filepath.Join(g.Legacy["memory"], "memory.oom_control")} {
		b, err := readFile(path)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			fields := strings.Fields(string(line))
			if len(fields) == 2 && fields[0] == "oom_kill" {
				n, _ := strconv.ParseUint(fields[1], 10, 64)
				return n
			}
		}
	}
	return 0
}

// Remove removes the cgroup, which must have no processes. It may be gone already.
func (g Group) Remove() error {
	var errs []error
	for _, dir := range g.listFolders() {
		errs = append(errs, removeFolder(dir))
	}
	return errors.Join(errs...)
}

// removeFolder removes the folder of a cgroup. It retries, because the kernel reports a cgroup as busy for a moment
// after its last process has ended.
func removeFolder(dir string) error {
	for deadline := time.Now().Add(removeTimeout); ; <-time.After(5 * time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
}

// writeFile writes a setting of a cgroup.
func writeFile(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set cgroup: %w", err)
	}
	_, err = io.WriteString(f, value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set cgroup to %q: %w", value, err)
	}
	return nil
}

// readFile reads a small file of the kernel.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read cgroup: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read cgroup: %w", err)
	}
	return b, nil
}
