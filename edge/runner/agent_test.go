package runner_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/rawexec"
	"skerry/edge/contract"
	"skerry/edge/runner"
	"skerry/fleet"
)

// The environment of an agent process: its folder, and the step at which it kills itself.
const (
	agentDir  = "TEST_RUNNER_AGENT_DIR"
	agentStep = "TEST_RUNNER_AGENT_STEP"
)

// agentMain is the main function of an agent process with one allocation. It reads "stop" and "restart"
// from its input.
func agentMain() {
	dir := os.Getenv(agentDir)
	if dir == "" {
		return
	}
	if err := runAgent(dir, os.Getenv(agentStep)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runAgent(dir, step string) error {
	b, err := os.ReadFile(filepath.Join(dir, "alloc.json"))
	if err != nil {
		return err
	}
	var alloc fleet.Alloc
	if err := json.Unmarshal(b, &alloc); err != nil {
		return err
	}
	j := mustOpenJournal(filepath.Join(dir, "journal"))
	f, err := rawFactory(dir)
	if err != nil {
		return err
	}
	f.Step = func(label string) {
		if label == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	r, err := f.New(alloc, j.lastState(), j)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch lines.Text() {
			case "stop":
				r.Stop("the test asked for it")
			case "restart":
				_ = r.Restart(ctx, "", "the test asked for it")
			}
		}
	}()
	return r.Run(ctx)
}

func rawFactory(dir string) (*runner.Factory, error) {
	driver, err := rawexec.New(rawexec.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return &runner.Factory{
		Drivers: map[string]drivers.Driver{rawexec.Name: driver},
		Node:    func() fleet.Node { return fleet.Node{} },
		Dirs:    runner.Dirs{Allocs: filepath.Join(dir, "allocs"), State: filepath.Join(dir, "tasks")},
		BootID:  "boot-1",
		Mono:    func() time.Duration { return time.Duration(time.Now().UnixNano()) }, // continues from process to process
		Now:     time.Now,
		Log:     slog.New(slog.DiscardHandler),
	}, nil
}

// process is an agent in its own process.
type process struct {
	*exec.Cmd
	tb testing.TB
	in *os.File
}

func mustAgent(tb testing.TB, dir, step string) *process {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentDir+"="+dir, agentStep+"="+step)
	cmd.Stdin, cmd.Stderr = r, os.Stderr
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p := &process{Cmd: cmd, tb: tb, in: w}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = w.Close()
	})
	return p
}

func (p *process) writeLine(what string) {
	p.tb.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *process) mustBeKilled() {
	p.tb.Helper()
	_ = p.Wait()
	if ws, ok := p.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		p.tb.Fatalf("agent: %v, want that it was killed", p.ProcessState)
	}
}

func mustWriteAlloc(tb testing.TB, dir string, alloc fleet.Alloc) {
	tb.Helper()
	b, err := json.Marshal(alloc)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "alloc.json"), b, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// shell makes a raw_exec task that records each of its starts.
func shell(name, script string) fleet.Task {
	return fleet.Task{
		Name: name, Driver: rawexec.Name, KillTimeout: 5 * time.Second,
		Config: map[string]any{"command": "/bin/sh", "args": []any{"-c", "echo $$ >> ${NOMAD_TASK_DIR}/starts\n" + script}},
	}
}

func startsOf(dir string, alloc fleet.Alloc, task string) []string {
	b, err := os.ReadFile(filepath.Join(dir, "allocs", string(alloc.ID), task, "local", "starts"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// eventually polls until ok, or fails with the last state.
func eventually(tb testing.TB, ok func() (bool, string)) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for {
		done, state := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("did not happen within 30 s: %s", state)
		}
		<-tick.C
	}
}

// awaitEvent waits until the newest event in the journal in dir is the given one.
func awaitEvent(tb testing.TB, dir, event string) *fakeJournal {
	tb.Helper()
	var j *fakeJournal
	eventually(tb, func() (bool, string) {
		j = mustOpenJournal(filepath.Join(dir, "journal"))
		story := j.rowLines()
		return len(story) > 0 && strings.Contains(story[len(story)-1], event), strings.Join(story, "\n")
	})
	return j
}

func TestKilledAtEveryStep(t *testing.T) {
	steps := []string{runner.StepReceived, runner.StepIntent, runner.StepStarted, runner.StepHandle, runner.StepRunning}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			dir, alloc := t.TempDir(), allocOf(fleet.JobTypeService, nil, shell("a", "while :; do sleep 1; done"))
			mustWriteAlloc(t, dir, alloc)
			began := time.Now()
			mustAgent(t, dir, step).mustBeKilled()

			second := mustAgent(t, dir, "")
			last := fleet.TaskStarted
			if step == runner.StepRunning {
				last = fleet.TaskRestored
			}
			awaitEvent(t, dir, last)
			eventually(t, func() (bool, string) {
				n := len(startsOf(dir, alloc, "a"))
				return n > 0, "it has not started"
			})
			if err := second.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			second.mustBeKilled()

			third := mustAgent(t, dir, "")
			awaitEvent(t, dir, fleet.TaskRestored)
			third.writeLine("stop")
			if err := third.Wait(); err != nil {
				t.Fatalf("agent: %v", err)
			}
			j := awaitEvent(t, dir, fleet.TaskKilled)
			if j.status != fleet.ClientComplete {
				t.Errorf("client status %q", j.status)
			}
			if starts := startsOf(dir, alloc, "a"); len(starts) != 1 {
				t.Errorf("%d starts, want 1", len(starts))
			}
			counts := map[string]int{}
			for _, row := range j.rows {
				counts[row.Event.Type]++
				if s := row.TaskState; s != nil && s.RunningFor > time.Since(began) {
					t.Errorf("%s: it is said to have run for %s", row.Event.Type, s.RunningFor)
				}
			}
			for _, once := range []string{fleet.TaskReceived, fleet.TaskStarted, fleet.TaskTerminated, fleet.TaskKilled} {
				if counts[once] != 1 {
					t.Errorf("%s is in the journal %d times\n  %s", once, counts[once], strings.Join(j.rowLines(), "\n  "))
				}
			}
		})
	}
}

func TestEndedWhileAway(t *testing.T) {
	dir := t.TempDir()
	alloc := allocOf(fleet.JobTypeBatch, nil, shell("a", "echo out; while [ ! -e go ]; do sleep 0.02; done; exit 0"))
	mustWriteAlloc(t, dir, alloc)
	agent := mustAgent(t, dir, "")
	awaitEvent(t, dir, fleet.TaskStarted)
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	agent.mustBeKilled()
	task := filepath.Join(dir, "allocs", string(alloc.ID), "a")
	if err := os.WriteFile(filepath.Join(task, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (bool, string) {
		_, err := os.Stat(filepath.Join(dir, "tasks", string(alloc.ID), "a", "1", "exit.json"))
		return err == nil, "no exit"
	})
	if err := mustAgent(t, dir, "").Wait(); err != nil {
		t.Fatalf("agent: %v", err)
	}
	j := awaitEvent(t, dir, fleet.TaskTerminated)
	if j.status != fleet.ClientComplete || len(startsOf(dir, alloc, "a")) != 1 {
		t.Errorf("client status %q, %d starts", j.status, len(startsOf(dir, alloc, "a")))
	}
	logs := filepath.Join(dir, "allocs", string(alloc.ID), "alloc", "logs", "a.stdout.0")
	if b, err := os.ReadFile(logs); string(b) != "out\n" {
		t.Errorf("log: %q, %v", b, err)
	}
}

// BenchmarkTenTasks measures the time from making the runners of ten allocations with one task each
// until all run.
func BenchmarkTenTasks(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		f, err := rawFactory(dir)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		runners := make([]*runner.Runner, 10)
		journals := make([]*fakeJournal, len(runners))
		done := make(chan error, len(runners))
		begin := time.Now()
		for i := range runners {
			alloc := allocOf(fleet.JobTypeService, nil, shell("a", "while :; do sleep 1; done"))
			alloc.ID = fleet.AllocID(fmt.Sprintf("alloc-%d", i))
			journals[i] = newFakeJournal()
			if runners[i], err = f.New(alloc, contract.LastState{}, journals[i]); err != nil {
				b.Fatal(err)
			}
			go func() { done <- runners[i].Run(ctx) }()
		}
		for _, j := range journals {
			j.waitForRows(ctx, func() bool { return j.status == fleet.ClientRunning })
		}
		b.ReportMetric(float64(time.Since(begin).Milliseconds()), "ms/ten")
		b.StopTimer()
		for _, r := range runners {
			r.Stop("")
		}
		for range runners {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		cancel()
		b.StartTimer()
	}
}
