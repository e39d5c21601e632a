package allocs_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// countedJournal is a journal on the disk, and how many transactions it has committed.
type countedJournal struct {
	*journal.Journal
	commits *atomic.Int64
}

func mustOpenCounted(t *testing.T) countedJournal {
	t.Helper()
	j, start := countedJournal{commits: &atomic.Int64{}}, time.Now()
	var err error
	j.Journal, err = journal.Open(journal.Config{
		Path: filepath.Join(t.TempDir(), "journal.db"), BootID: boot1, Mono: func() time.Duration { return time.Since(start) },
		Step: func(label string) error {
			if label == journal.StepCommit {
				j.commits.Add(1)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// deploymentOf is a delivery of allocations of one deployment, whose health their tasks decide.
func deploymentOf(t *testing.T, count int) syncproto.Desired {
	t.Helper()
	w := want("", 0)
	w.Alloc.Job.TaskGroups[0].Update = &fleet.Update{HealthCheck: "task_states", MinHealthyTime: 10 * time.Second, HealthyDeadline: time.Minute}
	body, err := syncproto.EncodeJob(w.Alloc.Job)
	if err != nil {
		t.Fatal(err)
	}
	d := syncproto.Desired{Index: 7, Full: true, Cluster: "c", Term: 1, Bodies: []syncproto.Body{{Hash: "h", Job: body}}}
	for i := range count {
		d.Run = append(d.Run, syncproto.DesiredAlloc{
			ID: fleet.AllocID(fmt.Sprintf("alloc-%02d", i)), Name: fmt.Sprintf("shop.g[%d]", i), JobID: "shop", JobHash: "h", TaskGroup: "g", Deployment: "d1",
		})
	}
	return d
}

// lateRunner is a runner that reports how many runners were made when it begins.
type lateRunner struct {
	contract.Runner
	begins func()
}

func (r lateRunner) Run(ctx context.Context) error { r.begins(); return r.Runner.Run(ctx) }

// TestStartsShareCommits counts what starting the allocations of one delivery, and deciding their health, commits. How many
// rows of runners share a commit depends on the disk: it checks that all are made before the first begins.
func TestStartsShareCommits(t *testing.T) {
	const count = 20
	synctest.Test(t, func(t *testing.T) {
		j, f := mustOpenCounted(t), &factory{}
		var made atomic.Int64
		newRunner := func(a fleet.Alloc, last contract.LastState, rec contract.Recorder) (contract.Runner, error) {
			made.Add(1)
			r, err := f.newRunner(a, last, rec)
			return lateRunner{r, func() {
				if n := made.Load(); n != count {
					t.Errorf("a runner begins when %d are made, want %d", n, count)
				}
			}}, err
		}
		a, err := allocs.New(allocs.Config{Journal: j, NewRunner: newRunner, BootID: boot1, Dir: t.TempDir(), TasksDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		<-a.Recovered()

		before := j.commits.Load()
		if _, _, err := a.Deliver(ctx, deploymentOf(t, count)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// The delivery, a row of each runner, and the begin of all watches of their health.
		if n := j.commits.Load() - before; n > count+2 {
			t.Errorf("%d allocations started with %d commits, want %d at most", count, n, count+2)
		}
		before = j.commits.Load()
		time.Sleep(11 * time.Second) // virtual time
		synctest.Wait()
		if n := j.commits.Load() - before; n != 1 {
			t.Errorf("the health of %d allocations was recorded with %d commits, want 1", count, n)
		}
		for i := range count {
			s, _ := j.State(fleet.AllocID(fmt.Sprintf("alloc-%02d", i)))
			if s.ClientStatus != fleet.ClientRunning || s.Healthy == nil || !*s.Healthy {
				t.Errorf("allocation %d is %q, healthy %v", i, s.ClientStatus, s.Healthy)
			}
		}
	})
}
