package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// Environment of the child of TestKilledAtEveryStep: it works on a journal, notes the rows that were reported durable,
// and dies at a step.
const (
	envPath = "JOURNAL_TEST_PATH"
	envStep = "JOURNAL_TEST_STEP"
	envSkip = "JOURNAL_TEST_SKIP" // how often the step is passed first
)

func TestMain(m *testing.M) {
	if path := os.Getenv(envPath); path != "" {
		os.Exit(workUntilKilled(path, os.Getenv(envStep), os.Getenv(envSkip)))
	}
	os.Exit(m.Run())
}

// scriptRows is the number of rows that a script records, besides some others.
const scriptRows = 560

// script writes everything that a journal can store, enough for a compaction and a checkpoint. told is
// called with each label whose write was reported as durable.
func script(j *journal.Journal, m *machine, told func(label string)) error {
	ctx := context.Background()
	for i := range scriptRows {
		label := fmt.Sprintf("row %d", i)
		m.advanceClocks(time.Second)
		tr := taskEvent(i%2, "t", fleet.TaskRunning, label)
		if i%5 == 0 {
			tr = status(i%2, fleet.ClientRunning)
			tr.ClientDescription = label
		}
		if err := j.Record(ctx, tr); err != nil {
			return err
		}
		told(label)
		for _, step := range []struct {
			at    int
			label string
			do    func() error
		}{
			{10, "desired", func() error { _, err := j.PutDesired(ctx, delivery(7)); return err }},
			{20, "handle", func() error {
				return j.PutHandle(ctx, allocID(0), "t", []byte("handle"), taskEvent(0, "t", fleet.TaskRunning, "handle"))
			}},
			{30, "link", func() error { return j.PutLink(ctx, journal.Link{Session: uint64(i)}, nil) }},
			{40, "stop", func() error {
				return j.Stop(ctx, syncproto.DesiredStop{ID: allocID(1), Reason: "on site"}, fleet.Transition{Kind: fleet.TransitionOperator, Alloc: allocID(1), Message: "stop"})
			}},
			{50, "ended", func() error { return j.Record(ctx, status(2, fleet.ClientComplete)) }},
			{51, "removed", func() error { return j.Remove(ctx, allocID(2)) }},
			{200, "acknowledged", func() error { j.Acknowledge(fleet.Seq(i - 100)); return nil }},
			{201, "beat", func() error { return noteHeartbeat(j, 0, m.wall.UnixNano()) }},
		} {
			if step.at != i%(scriptRows/2) {
				continue
			}
			if err := step.do(); err != nil {
				return err
			}
			told(step.label)
		}
	}
	return nil
}

// delivery is a desired state of three allocations, the last of them stopped.
func delivery(index fleet.Index) syncproto.Desired {
	job := &fleet.Job{ID: "shop", Name: "shop", TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{{Name: "t"}}}}}
	body, err := syncproto.EncodeJob(job)
	if err != nil {
		panic(err)
	}
	d := syncproto.Desired{
		Index: index, Full: true, Cluster: "c", Term: 3,
		Bodies: []syncproto.Body{{Hash: "h", Job: body}},
		Stop:   []syncproto.DesiredStop{{ID: allocID(2), Reason: "scaled down"}},
	}
	for i := range 3 {
		d.Run = append(d.Run, syncproto.DesiredAlloc{ID: allocID(i), JobID: "shop", JobHash: "h", TaskGroup: "g"})
	}
	return d
}

// crashConfig causes compactions within the script.
func crashConfig(m *machine, path string) journal.Config {
	cfg := m.journalConfig(path)
	cfg.MaxBytes = 120 << 10
	cfg.Paranoid = false
	return cfg
}

// verify opens the journal after a crash and checks that everything that was reported as durable is there.
func verify(t *testing.T, m *machine, path string, told []string) *journal.Journal {
	t.Helper()
	cfg := crashConfig(m, path)
	cfg.Paranoid = true
	j := mustOpen(t, cfg)
	if q := j.Quarantined(); len(q) > 0 {
		t.Fatalf("a crash damaged the database: %+v", q)
	}
	ctx := context.Background()
	has := map[string]bool{}
	for _, l := range told {
		has[l] = true
	}
	seen := map[string]int{}
	for _, tr := range mustReadAll(t, j) {
		switch {
		case tr.Event != nil:
			seen[tr.Event.Type]++
		case tr.ClientDescription != "":
			seen[tr.ClientDescription]++
		}
	}
	first := j.Head().First
	for i := range scriptRows {
		label := fmt.Sprintf("row %d", i)
		// Rows are reported in order, so a compacted one has a number below the first.
		if has[label] && seen[label] == 0 && fleet.Seq(i+1) >= first {
			t.Errorf("%s was told to be durable and is gone", label)
		}
		if seen[label] > 1 {
			t.Errorf("%s is there %d times", label, seen[label])
		}
	}
	want, err := j.Desired(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if has["desired"] != (want.Index == 7) && has["desired"] {
		t.Errorf("desired state was told to be durable; its index is %d", want.Index)
	}
	if want.Index == 7 {
		if a := want.Allocs[allocID(0)]; a.Alloc.Job == nil {
			t.Error("desired state is half there: no body")
		}
		if _, ok := want.Allocs[allocID(2)]; !ok && !j.States()[allocID(2)].Terminal() {
			t.Error("an allocation that has not ended was removed")
		}
	}
	if has["stop"] && !want.Allocs[allocID(1)].Stop {
		t.Error("a stop was told to be durable and is gone")
	}
	handles, err := j.Handles(ctx, allocID(0))
	if err != nil || has["handle"] && string(handles["t"]) != "handle" {
		t.Errorf("handles: %v, %v", handles, err)
	}
	if l := j.Link(); has["link"] && l.Session == 0 {
		t.Errorf("link: %+v", l)
	}
	return j
}

var errStep = errors.New("this step fails")

func TestFailedAtEveryStep(t *testing.T) {
	for _, label := range journal.Steps() {
		t.Run(label, func(t *testing.T) {
			for skip := range 3 {
				m, path := newMachine(), dbPath(t)
				cfg := crashConfig(m, path)
				passed := 0
				cfg.Step = func(l string) error {
					if l != label {
						return nil
					}
					if passed++; passed == skip+1 {
						return errStep
					}
					return nil
				}
				j := mustOpen(t, cfg)
				var told []string
				err := script(j, m, func(l string) { told = append(told, l) })
				if err != nil && !errors.Is(err, errStep) {
					t.Fatal(err)
				}
				if passed == 0 {
					t.Fatalf("the script never reaches this step")
				}
				mustClose(t, j)
				j = verify(t, m, path, told)
				mustRecord(t, j, status(9, fleet.ClientRunning))
				mustClose(t, j)
			}
		})
	}
}

// TestHandleAndWhatItSays fails each step of writing a handle with its row: after the next open both
// are there, or neither.
func TestHandleAndWhatItSays(t *testing.T) {
	ctx := context.Background()
	for label, durable := range map[string]bool{
		journal.StepBegin: false, journal.StepHandle: false, journal.StepInsertRow: false,
		journal.StepUpdateState: false, journal.StepCommit: false, journal.StepAfterCommit: true,
	} {
		t.Run(label, func(t *testing.T) {
			m, path := newMachine(), dbPath(t)
			cfg, armed := m.journalConfig(path), false
			cfg.Step = func(l string) error {
				if armed && l == label {
					return errStep
				}
				return nil
			}
			j := mustOpen(t, cfg)
			armed = true
			err := j.PutHandle(ctx, allocID(0), "t", []byte("handle"), taskEvent(0, "t", fleet.TaskRunning, "why"))
			if armed = false; !errors.Is(err, errStep) {
				t.Fatalf("put handle: %v, want the step's error", err)
			}
			mustClose(t, j)
			j = mustOpen(t, m.journalConfig(path))
			handles, err := j.Handles(ctx, allocID(0))
			if err != nil {
				t.Fatal(err)
			}
			want := [3]int{}
			if durable {
				want = [3]int{1, 1, 1}
			}
			if got := [3]int{len(handles), len(mustReadAll(t, j)), len(j.States())}; got != want {
				t.Errorf("handles, rows, states: %v, want %v", got, want)
			}
			mustClose(t, j)
		})
	}
}

// workUntilKilled is the child's main function.
func workUntilKilled(path, label, skips string) int {
	var skip int
	fmt.Sscan(skips, &skip)
	m := newMachine()
	cfg := crashConfig(m, path)
	cfg.Step = func(l string) error {
		if l != label {
			return nil
		}
		if skip--; skip < 0 {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill() // SIGKILL
			}
			if err == nil {
				select {}
			}
		}
		return nil
	}
	j, err := journal.Open(cfg)
	if err == nil {
		err = script(j, m, func(l string) { fmt.Println(l) })
	}
	if err == nil {
		err = j.Close()
	}
	fmt.Fprintln(os.Stderr, "not killed:", err)
	return 3
}

func TestKilledAtEveryStep(t *testing.T) {
	for _, label := range journal.Steps() {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			for _, skip := range []string{"0", "1"} {
				path := filepath.Join(t.TempDir(), "journal.db")
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), envPath+"="+path, envStep+"="+label, envSkip+"="+skip)
				var complaints strings.Builder
				cmd.Stderr = &complaints
				out, err := cmd.Output()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Exited() {
					t.Fatalf("the child was not killed at %s: %v %s", label, err, complaints.String())
				}
				m := newMachine()
				m.advanceClocks(time.Hour)
				j := verify(t, m, path, strings.Split(strings.TrimSpace(string(out)), "\n"))
				mustClose(t, j)
			}
		})
	}
}
