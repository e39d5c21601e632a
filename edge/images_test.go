package edge_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge"
	"skerry/edge/diskspace"
	"skerry/edge/journal"
	"skerry/edge/prefetch"
	"skerry/fleet"
	"skerry/syncproto"
)

// imageJob encodes a job with tasks of docker whose images have these names, and one of raw_exec.
func imageJob(tb testing.TB, id fleet.JobID, tasks ...fleet.Task) []byte {
	tb.Helper()
	tasks = append(tasks, fleet.Task{Name: "program", Driver: "raw_exec", Config: map[string]any{"command": "true"}})
	body, err := syncproto.EncodeJob(&fleet.Job{ID: id, Name: string(id), TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: tasks}}})
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

func imageTask(image string, templates ...fleet.Template) fleet.Task {
	return fleet.Task{Name: "web", Driver: "docker", Env: map[string]string{"TAG": "5"}, Config: map[string]any{"image": image}, Templates: templates}
}

// imageAlloc is the allocation of a job, whose body has the job's name as its hash.
func imageAlloc(id fleet.AllocID, job fleet.JobID) syncproto.DesiredAlloc {
	return syncproto.DesiredAlloc{ID: id, Namespace: fleet.DefaultNamespace, JobID: job, JobHash: string(job), TaskGroup: "g", Name: string(job) + ".g[0]"}
}

// mustChangeJournal changes the journal of an agent that does not run.
func mustChangeJournal(tb testing.TB, dir string, change func(j *journal.Journal) error) {
	tb.Helper()
	j, err := journal.Open(journal.Config{Path: filepath.Join(dir, "journal.db"), BootID: boot1, Mono: func() time.Duration { return 2 * time.Minute }})
	if err == nil {
		err = change(j)
	}
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// wantNeeded compares the images of docker that an agent needs after a reboot without a link.
func wantNeeded(tb testing.TB, dir, when string, want ...string) {
	tb.Helper()
	cfg := config(dir, nil, io.Discard)
	cfg.BootID = boot2
	e, err := edge.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	}()
	var images []string
	configs, err := e.ConfigsWithImages(tb.Context(), "docker")
	for _, c := range configs {
		images = append(images, fmt.Sprint(c["image"]))
	}
	if err != nil {
		images = []string{err.Error()}
	}
	if slices.Sort(images); !slices.Equal(images, want) {
		tb.Errorf("%s: images %q, want %q", when, images, want)
	}
}

// TestImagesThatMustStay: an agent knows from its journal, after any restart, which images tasks may need: of allocations
// that are placed, run, stop, or that a person stopped, and of prefetched jobs.
func TestImagesThatMustStay(t *testing.T) {
	dir := mustEnrolled(t)
	status := func(id fleet.AllocID, status string, hold *fleet.Hold) fleet.Transition {
		return fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: status, Hold: hold}
	}
	ended := func(tb testing.TB, hold *fleet.Hold) {
		mustChangeJournal(tb, dir, func(j *journal.Journal) error {
			return j.Record(tb.Context(), status("a-held", fleet.ClientComplete, hold))
		})
	}
	mustChangeJournal(t, dir, func(j *journal.Journal) error {
		_, err := j.PutDesired(t.Context(), syncproto.Desired{
			Index: 10, Cluster: "c",
			Bodies: []syncproto.Body{
				{Hash: "placed", Job: imageJob(t, "placed", imageTask("placed:${NOMAD_JOB_NAME}"))},
				{Hash: "running", Job: imageJob(t, "running", imageTask("${node.unique.name}/running:${TAG}"))},
				{Hash: "over", Job: imageJob(t, "over", imageTask("over:1"))},
				{Hash: "held", Job: imageJob(t, "held", imageTask("held:1"))},
				{Hash: "stopping", Job: imageJob(t, "stopping", imageTask("stopping:1"))},
				{Hash: "late", Job: imageJob(t, "late", imageTask("late:${TAG}", fleet.Template{Envvars: true}))},
			},
			Run: []syncproto.DesiredAlloc{
				imageAlloc("a-placed", "placed"), imageAlloc("a-running", "running"), imageAlloc("a-over", "over"), imageAlloc("a-held", "held"),
				imageAlloc("a-stopping", "stopping"), imageAlloc("a-late", "late"),
			},
			Stop: []syncproto.DesiredStop{{ID: "a-stopping"}, {ID: "a-unknown"}},
		})
		if err != nil {
			return err
		}
		if err := j.Record(t.Context(), status("a-running", fleet.ClientRunning, nil), status("a-stopping", fleet.ClientRunning, nil),
			status("a-over", fleet.ClientComplete, nil)); err != nil {
			return err
		}
		k, err := prefetch.Open(prefetch.Config{Journal: j, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		return k.Accept(t.Context(), []syncproto.DesiredPrefetch{
			{ID: "p1", JobID: "coming", JobHash: "1", Job: imageJob(t, "coming", imageTask("coming:${TAG}")), RequestIndex: 1},
			{ID: "p2", JobID: "gone", JobHash: "2", Job: imageJob(t, "gone", imageTask("gone:1")), RequestIndex: 2, Delete: true},
			{ID: "p3", JobID: "broken", JobHash: "3", Job: []byte{1}, RequestIndex: 3},
		})
	})
	ended(t, &fleet.Hold{By: "anna"})
	wantNeeded(t, dir, "with a held allocation", "coming:5", "held:1", "late:${TAG}", "placed:placed", "stopping:1", "test/running:5")
	mustChangeJournal(t, dir, func(j *journal.Journal) error {
		return j.Record(t.Context(), fleet.Transition{Kind: fleet.TransitionOperator, Alloc: "a-held", Released: true})
	})
	wantNeeded(t, dir, "when it is released", "coming:5", "late:${TAG}", "placed:placed", "stopping:1", "test/running:5")
	mustChangeJournal(t, dir, func(j *journal.Journal) error {
		_, err := j.PutDesired(t.Context(), syncproto.Desired{Index: 11, Cluster: "c", Run: []syncproto.DesiredAlloc{imageAlloc("a-new", "new")}})
		return err
	})
	wantNeeded(t, dir, "while a job is missing", "the job of allocation a-new is not here yet")
}

// TestImagesAreCollectedRegularly, with the time that has passed, and with the thresholds of the data directory's disk.
func TestImagesAreCollectedRegularly(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		var elapsed []time.Duration
		var short []bool
		free, inodes := int64(30*mib), int64(1000)
		e := edge.NewCollecting(edge.Config{
			Collect:    diskspace.Limits{DiskPercent: 80, InodePercent: 70},
			FreeSpace:  func(string) (int64, int64, error) { return free, 100 * mib, nil },
			FreeInodes: func(string) (int64, int64, error) { return inodes, 1000, nil },
			CollectImages: func(_ context.Context, c edge.ImageCollection) {
				elapsed, short = append(elapsed, c.Elapsed), append(short, c.IsShort("/images"))
				time.Sleep(10 * time.Second) // the daemon is slow
				free, inodes = 10*mib, inodes-250
				if len(elapsed) > 1 {
					free = 30 * mib
				}
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		e.CollectImages(ctx)
		if want := []time.Duration{time.Minute, 70 * time.Second, 70 * time.Second, 70 * time.Second}; !slices.Equal(elapsed, want) {
			t.Errorf("elapsed %v, want %v", elapsed, want)
		}
		if want := []bool{false, true, false, true}; !slices.Equal(short, want) {
			t.Errorf("short %v, want %v", short, want)
		}
	})
}
