package edge_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/rawexec"
	"skerry/drivers/supervised"
	"skerry/edge"
	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/edge/local"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/syncproto"
)

// Environment of an edge process: its data directory, the journal's step at which it kills itself, and
// how often it passes that step first.
const (
	envDir  = "EDGE_TEST_DIR"
	envStep = "EDGE_TEST_STEP"
	envSkip = "EDGE_TEST_SKIP"
	envBoot = "EDGE_TEST_BOOT" // boot id in place of the kernel's
)

func TestMain(m *testing.M) {
	supervised.Supervise()
	if dir := os.Getenv(envDir); dir != "" {
		if err := runEdgeProcess(dir, os.Getenv(envStep), os.Getenv(envSkip)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runEdgeProcess is the main function of an edge process. It prints "up" when its tasks run, and ends
// with its input; the tasks go on.
func runEdgeProcess(dir, step, skips string) error {
	skip, _ := strconv.Atoi(skips)
	cfg := config(dir, nil, io.Discard)
	cfg.BootID = fleet.BootID(os.Getenv(envBoot))
	cfg.Runners = realRunners
	cfg.Step = func(label string) error {
		if label != step {
			return nil
		}
		if skip--; skip < 0 {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			if err != nil {
				return err
			}
			select {}
		}
		return nil
	}
	e, err := edge.Open(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	go func() {
		<-e.Recovered()
		fmt.Println("up")
	}()
	if err := e.Run(ctx); err != nil {
		return err
	}
	return e.Close()
}

func realRunners(m edge.Machine) (contract.New, error) {
	raw, err := rawexec.New(rawexec.Config{BootID: os.Getenv(envBoot), Log: m.Log})
	if err != nil {
		return nil, err
	}
	f := &runner.Factory{
		Drivers: map[string]drivers.Driver{rawexec.Name: raw}, Node: m.Node, BootID: m.BootID, Mono: m.Mono, Now: m.Now, Log: m.Log,
		Dirs: runner.Dirs{Allocs: filepath.Join(m.DataDir, "allocs"), State: filepath.Join(m.DataDir, "tasks")},
	}
	return f.NewRunner, nil
}

// process is an edge in its own process.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
	up  chan bool // whether it printed "up" before it ended
}

func mustSpawn(t testing.TB, dir, step string, skip int) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envDir+"="+dir, envStep+"="+step, envSkip+"="+strconv.Itoa(skip))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, in: in, up: make(chan bool, 1)}
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		p.up <- line == "up\n"
	}()
	return p
}

// closeAndWait ends the process if it is still alive.
func (p *process) closeAndWait() error {
	_ = p.in.Close() // it may have ended
	return p.cmd.Wait()
}

// mustCounting makes a data directory with a task for each allocation that appends a line to a file at
// its start, and runs on.
func mustCounting(t testing.TB, allocs ...fleet.AllocID) (dir, starts string) {
	t.Helper()
	dir = mustEnrolled(t)
	starts = filepath.Join(dir, "starts")
	mustWant(t, dir, fleet.Task{
		Name: "t", Driver: rawexec.Name, KillTimeout: 5 * time.Second,
		Config: map[string]any{"command": "/bin/sh", "args": []any{"-c", `echo "$NOMAD_ALLOC_ID" >> ` + starts + `; exec sleep 600`}},
	}, allocs...)
	return dir, starts
}

// mustWant delivers allocations with one task to the journal of a data directory.
func mustWant(t testing.TB, dir string, task fleet.Task, allocs ...fleet.AllocID) {
	t.Helper()
	job := &fleet.Job{ID: "count", Name: "count", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{task}}}}
	body, err := syncproto.EncodeJob(job)
	if err != nil {
		t.Fatal(err)
	}
	d := syncproto.Desired{Index: 9, Full: true, Bodies: []syncproto.Body{{Hash: "h", Job: body}}}
	for _, id := range allocs {
		d.Run = append(d.Run, syncproto.DesiredAlloc{ID: id, JobID: "count", JobHash: "h", TaskGroup: "g", Name: "count.g[0]"})
	}
	j := mustJournal(t, dir)
	if _, err := j.PutDesired(context.Background(), d); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustJournal(t testing.TB, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Config{Path: filepath.Join(dir, "journal.db"), BootID: boot1, Mono: func() time.Duration { return time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// An edge is killed at each step of its journal's protocol while it starts tasks. The next one finds or
// starts each of them, once.
func TestKilledAtEveryStep(t *testing.T) {
	for _, step := range []string{
		journal.StepBegin, journal.StepInsertRow, journal.StepUpdateState, journal.StepHandle,
		journal.StepWriteCheckpoint, journal.StepCommit, journal.StepAfterCommit,
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			killed := 0
			for _, skip := range []int{0, 3, 6, 9} {
				if killAndRestart(t, step, skip) {
					killed++
				}
			}
			if killed == 0 {
				t.Error("no life of the edge passed this step")
			}
		})
	}
}

// killAndRestart reports whether the first process was killed.
func killAndRestart(t *testing.T, step string, skip int) (killed bool) {
	t.Helper()
	dir, starts := mustCounting(t, shop, batch)
	p := mustSpawn(t, dir, step, skip)
	<-p.up
	killed = p.closeAndWait() != nil
	p = mustSpawn(t, dir, "", 0)
	if !<-p.up {
		t.Fatalf("killed at %s, %d passed: the next life does not bring its tasks up", step, skip)
	}
	c := local.NewClient(filepath.Join(dir, "local.sock"))
	mustReachStatus(t, &runningEdge{Client: c}, "begun", func(local.Status) bool { // otherwise a stop precedes the task's first line
		b, err := os.ReadFile(starts)
		return err == nil && strings.Contains(string(b), string(shop)) && strings.Contains(string(b), string(batch))
	})
	mustStopAll(t, c)
	if err := p.closeAndWait(); err != nil {
		t.Fatalf("the next life ended with %v", err)
	}
	b, err := os.ReadFile(starts)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []fleet.AllocID{shop, batch} {
		if n := strings.Count(string(b), string(id)); n != 1 {
			t.Errorf("killed at %s, %d passed: %s was started %d times", step, skip, id, n)
		}
	}
	mustRecordOnce(t, dir)
	return killed
}

func mustStopAll(t testing.TB, c *local.Client) {
	t.Helper()
	ctx := context.Background()
	for _, id := range []fleet.AllocID{shop, batch} {
		if err := c.Stop(ctx, local.StopRequest{Alloc: id, MayReturn: true}); err != nil {
			t.Fatal(err)
		}
	}
	mustReachStatus(t, &runningEdge{Client: c}, "stopped", func(s local.Status) bool {
		return s.Allocs[0].ClientStatus == fleet.ClientComplete && s.Allocs[1].ClientStatus == fleet.ClientComplete
	})
}

// mustRecordOnce checks that the journal is sound and has nothing twice.
func mustRecordOnce(t testing.TB, dir string) {
	t.Helper()
	j := mustJournal(t, dir)
	defer j.Close()
	if q := j.Quarantined(); len(q) != 0 {
		t.Errorf("quarantined: %+v", q)
	}
	ts, err := j.History(context.Background(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for i, tr := range ts {
		if tr.Seq != fleet.Seq(i+1) {
			t.Fatalf("row %d comes where row %d should", tr.Seq, i+1)
		}
		if tr.Event != nil {
			told[string(tr.Alloc)+" "+tr.Event.Type]++
		}
	}
	for _, id := range []fleet.AllocID{shop, batch} {
		for _, event := range []string{fleet.TaskReceived, fleet.TaskStarted, fleet.TaskTerminated} {
			if n := told[string(id)+" "+event]; n != 1 {
				t.Errorf("%q of %s is told %d times", event, id, n)
			}
		}
	}
}
