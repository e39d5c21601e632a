package proc_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"skerry/chaos/proc"
	"skerry/drivers/cgroup"
)

// TestBelow finds what belongs to a directory in each of the ways it may, and not what
// belongs to one whose name begins alike: a power cut of one machine leaves the tenth on.
func TestBelow(t *testing.T) {
	root := t.TempDir()
	dir, alike := filepath.Join(root, "edge-1"), filepath.Join(root, "edge-10")
	for _, d := range []string{dir, alike} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	started := map[string][]int{}
	for _, d := range []string{dir, alike} {
		for _, configure := range []func(cmd *exec.Cmd){
			func(cmd *exec.Cmd) { cmd.Dir = d },
			func(cmd *exec.Cmd) { cmd.Env = []string{"HOME=" + d} },
			func(cmd *exec.Cmd) { cmd.Env = []string{"FILES=/tmp:" + d + "/logs"} },
			func(cmd *exec.Cmd) { cmd.Args[0] = d + "/sleep" },
			func(cmd *exec.Cmd) { cmd.Args[0] = alike + " " + d },
		} {
			cmd := exec.Command("sleep", "600")
			cmd.Env = []string{"A=b"}
			configure(cmd)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() {
				_ = cmd.Process.Kill() // it may be gone
				<-ended
			})
			started[d] = append(started[d], cmd.Process.Pid)
		}
	}
	// The last one of dir names both.
	for d, want := range map[string][]int{dir: started[dir], alike: append(slices.Clone(started[alike]), started[dir][4])} {
		got, err := proc.Below(d)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("below %s there are %v, %v, want %v", filepath.Base(d), got, err, want)
		}
	}
	if err := proc.KillBelow(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := proc.Below(alike); err != nil || len(got) != len(started[alike]) {
		t.Errorf("of %v there are %v left, %v", started[alike], got, err)
	}
}

// TestBelowFindsTasksInContainers finds a task whose environment names the folder of its allocation as its container
// sees it, and not a task of an allocation with the same id below another directory.
func TestBelowFindsTasksInContainers(t *testing.T) {
	root := t.TempDir()
	seen := filepath.Join(root, "as-in-the-container")
	for _, edge := range []string{"edge-1", "edge-2"} {
		if err := os.MkdirAll(filepath.Join(root, edge, "allocs", "a1", "alloc"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "edge-1", "allocs", "a1", "alloc"), seen); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	cmd.Dir, cmd.Env = "/", []string{"NOMAD_ALLOC_ID=a1", "NOMAD_ALLOC_DIR=" + seen}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Kill() // it may be gone
		<-ended
	}()
	for edge, want := range map[string][]int{"edge-1": {cmd.Process.Pid}, "edge-2": nil} {
		if got, err := proc.Below(filepath.Join(root, edge)); err != nil || !slices.Equal(got, want) {
			t.Errorf("below %s there are %v, %v, want %v", edge, got, err, want)
		}
	}
}

// TestProcessorTime: the time of this process grows while it works.
func TestProcessorTime(t *testing.T) {
	before, err := proc.ProcessorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var used time.Duration
	for n := 0; used < 100*time.Millisecond; n++ {
		if n > 1e9 {
			t.Fatal("no processor time is counted")
		}
		if n%1e5 != 0 {
			continue
		}
		now, err := proc.ProcessorTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		used = now - before
	}
	if _, err := proc.ProcessorTime(1 << 30); err == nil {
		t.Error("the processor time of no process")
	}
}

// TestKillBelowRemovesCgroups kills a process in a cgroup of its own. Without the removal, a machine on which fleets
// are rebooted again and again collects thousands of cgroups, and everything on it becomes slower.
func TestKillBelowRemovesCgroups(t *testing.T) {
	mounts, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	if err := mounts.Probe(); err != nil {
		t.Skip(err)
	}
	g := mounts.Group("kill-below-" + strconv.Itoa(os.Getpid()))
	if err := g.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("sleep", "600")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := proc.KillBelow(dir); err != nil {
		t.Fatal(err)
	}
	<-ended
	for _, folder := range append(slices.Collect(maps.Values(g.Legacy)), g.Unified) {
		if _, err := os.Stat(folder); folder != "" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("cgroup %s is left: %v", folder, err)
		}
	}
}
