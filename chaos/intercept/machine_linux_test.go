package intercept_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry/chaos/disk"
	"skerry/chaos/intercept"
	"skerry/chaos/proc"
	"skerry/edge/local"
	"skerry/fleet"
)

// edgeCommand makes this program an edge; the flags of one follow.
const edgeCommand = "run-edge"

// diskBytes is the size of a machine's disk.
const diskBytes = 96 << 20

// machine is the machine of one edge: a disk that loses unsynced writes, and an agent under a filter.
type machine struct {
	name   string
	dir    string // the data directory
	folder string // of everything that this test has of it
	args   []string
	disk   *disk.Disk
	boot   int

	agent   *intercept.Target
	ended   chan struct{} // closed when the agent has ended
	exit    error         // set before ended is closed
	targets []*intercept.Target
}

// mustMachine makes a machine that is off. Its processes, its disk and its files go with the test.
func mustMachine(t *testing.T, name, hub, token string) *machine {
	t.Helper()
	folder, err := os.MkdirTemp("", "sk-") // short: unix sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{name: name, folder: folder, dir: filepath.Join(folder, "disk", "edge")}
	m.mustHavePrograms(t)
	if m.disk, err = disk.Make(filepath.Join(folder, "disk.img"), filepath.Join(folder, "disk"), diskBytes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.killAll(), m.disk.Close()); err != nil {
			t.Errorf("remove machine %s: %v", name, err)
			return
		}
		for _, target := range m.targets {
			if err := target.WaitAll(); err != nil {
				t.Errorf("machine %s: %v", name, err)
			}
		}
		if t.Failed() {
			t.Logf("the log of machine %s is %s", name, m.logFile())
			return
		}
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	m.args = []string{edgeCommand, "--data-dir", m.dir, "--hub", hub, "--token-file", token, "--name", name,
		"--backoff-cap", "300ms", "--store-size", "8", "--log-level", "info"}
	return m
}

// programs are all that an agent and its tasks find: it asks no other runtime for its version at its start.
var programs = []string{"sh", "cat", "sleep", "runc"}

// mustHavePrograms makes the folder of the programs.
func (m *machine) mustHavePrograms(t *testing.T) {
	t.Helper()
	bin := filepath.Join(m.folder, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (m *machine) logFile() string { return filepath.Join(m.folder, "log") }

// start starts the agent in the present boot.
func (m *machine) start(handle intercept.Handler) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(m.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, append(slices.Clone(m.args), "--boot-id", m.bootID())...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(m.folder, "bin"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if m.agent, err = intercept.Start(cmd, filepath.Dir(m.dir), handle); err != nil {
		return err
	}
	m.targets = append(m.targets, m.agent)
	agent, ended := m.agent, make(chan struct{})
	m.ended = ended
	go func() {
		m.exit = agent.Wait()
		close(ended)
	}()
	return nil
}

func (m *machine) bootID() string { return fleet.DeriveUUID("boot", m.name, strconv.Itoa(m.boot)) }

// alive reports whether the agent runs.
func (m *machine) alive() bool {
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

func (m *machine) local() *local.Client { return local.NewClient(filepath.Join(m.dir, "local.sock")) }

// powerCut ends every process of the machine and loses the data that was not synced. The machine is off afterwards.
// Another test may sync all disks at that very moment: then nothing is lost, which is no mistake.
func (m *machine) powerCut() error {
	m.boot++
	if err := m.disk.PowerCut(m.killAll); err != nil && !errors.Is(err, disk.ErrRemembers) {
		return err
	}
	return nil
}

// killAll kills the agent and everything that it started, and unmounts what these mounted on the disk.
func (m *machine) killAll() error {
	pids, err := m.processes()
	if err != nil {
		return err
	}
	for len(pids) > 0 {
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if pids, err = m.processes(); err != nil {
			return err
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], m.dir+"/") {
			if err := unix.Unmount(f[1], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", f[1], err)
			}
		}
	}
	return nil
}

// processes returns the ids of all processes that name the machine's folder or have their root on its disk, and of
// their descendants.
func (m *machine) processes() ([]int, error) {
	found, err := proc.Below(m.folder)
	if err != nil {
		return nil, err
	}
	rooted, err := m.rootedOnDisk()
	if err != nil {
		return nil, err
	}
	found = append(found, rooted...)
	all := map[int]bool{}
	for _, pid := range found {
		all[pid] = true
	}
	children, err := childrenOf()
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(found); i++ {
		for _, child := range children[found[i]] {
			if !all[child] {
				all[child] = true
				found = append(found, child)
			}
		}
	}
	return found, nil
}

// rootedOnDisk returns the ids of the processes whose root is on the machine's disk: those of containers. There are
// none while the disk is not mounted: its folder is on this machine's own disk then, as every other process is.
func (m *machine) rootedOnDisk() ([]int, error) {
	disk, err := deviceOf(filepath.Join(m.folder, "disk"))
	if err != nil {
		return nil, err
	}
	for _, own := range []string{"/", m.folder} {
		if d, err := deviceOf(own); err != nil || d == disk {
			return nil, err
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if root, err := deviceOf("/proc/" + e.Name() + "/root"); err == nil && root == disk {
			found = append(found, pid)
		}
	}
	return found, nil
}

// deviceOf returns the device that a file is on.
func deviceOf(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Dev, nil
}

// childrenOf returns the ids of each process's children; ended ones that nobody waits for are left out.
func childrenOf() (map[int][]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it just ended
		}
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if parent, err := strconv.Atoi(f[1]); err == nil && f[0] != "Z" {
			children[parent] = append(children[parent], pid)
		}
	}
	return children, nil
}

// module is the command line of a process that runs a module, with its allocation and its task.
var module = regexp.MustCompile(`run-wasm-module\x00.*/tasks/([^/]+)/([^/]+)/`)

// running returns how many processes each task has that are its own program, by ALLOC/TASK.
func running(allocs map[fleet.AllocID]bool) (map[string]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		words, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue // it just ended
		}
		if m := module.FindStringSubmatch(string(words)); m != nil && allocs[fleet.AllocID(m[1])] {
			count[m[1]+"/"+m[2]]++
			continue
		}
		if env, err := proc.Environ(pid); err == nil && strings.HasSuffix(string(words), "sleep\x0086400\x00") && allocs[fleet.AllocID(env["NOMAD_ALLOC_ID"])] {
			count[env["NOMAD_ALLOC_ID"]+"/"+env["NOMAD_TASK_NAME"]]++
		}
	}
	return count, nil
}
