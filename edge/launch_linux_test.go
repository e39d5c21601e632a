package edge_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry/drivers/rawexec"
	"skerry/edge"
	"skerry/fleet"
	"skerry/syncproto"
)

// Each launch runs a real task from the beginning: after a launch that failed, and after a reboot between launches. The
// task's output of all launches is there.
func TestRealTaskIsLaunchedAgain(t *testing.T) {
	dir := mustEnrolled(t)
	starts := filepath.Join(dir, "starts")
	body, err := syncproto.EncodeJob(&fleet.Job{
		ID: "stock", Name: "stock", Type: fleet.JobTypeBatch,
		Periodic: &fleet.Periodic{Enabled: true, Spec: "0 * * * *", ProhibitOverlap: true, RunAtEdge: true},
		TaskGroups: []fleet.TaskGroup{{Name: "g", RestartPolicy: &fleet.RestartPolicy{Mode: fleet.RestartModeFail}, Tasks: []fleet.Task{{
			Name: "t", Driver: rawexec.Name, KillTimeout: 5 * time.Second,
			Config: map[string]any{"command": "/bin/sh", "args": []any{"-c", `echo x | tee -a ` + starts + `; test $(wc -l < ` + starts + `) -ne 2`}},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	j := mustJournal(t, dir)
	if _, err := j.PutDesired(t.Context(), syncproto.Desired{
		Index: 10, Cluster: "c", Bodies: []syncproto.Body{{Hash: "launched", Job: body}},
		Run: []syncproto.DesiredAlloc{{ID: shop, Namespace: fleet.DefaultNamespace, JobID: "stock", JobHash: "launched", TaskGroup: "g", Name: "stock.g[0]"}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	var clock atomic.Int64 // UnixNano
	clock.Store(time.Date(2026, 7, 1, 10, 30, 0, 0, time.UTC).UnixNano())
	m := &movingDescriber{changed: make(chan struct{})}
	cfg := config(dir, nil, io.Discard)
	cfg.Runners = realRunners
	cfg.Describe = func(fleet.Node) (edge.Describer, error) { return m, nil }
	cfg.Now = func() time.Time { return time.Unix(0, clock.Load()) }
	t.Setenv(envBoot, string(boot1))
	l := mustStart(t, cfg)
	says := func(what string) {
		t.Helper()
		eventually(t, func() (bool, string) {
			s, err := l.Status(t.Context())
			return err == nil && len(s.Allocs) == 1 && s.Allocs[0].ClientStatus == fleet.ClientRunning && strings.Contains(s.Allocs[0].ClientDescription, what),
				fmt.Sprintf("%+v, %v", s.Allocs, err)
		})
	}
	says("waits for its next launch")
	for hour, end := range []string{"complete", "failed", "complete"} {
		if hour == 2 {
			if err := l.stop(); err != nil {
				t.Fatal(err)
			}
			cfg.BootID = boot2
			t.Setenv(envBoot, string(boot2))
			l = mustStart(t, cfg)
		}
		clock.Add(int64(time.Hour))
		m.changeAddress(fmt.Sprintf("10.0.0.%d", hour+1)) // the agent reads its clock
		says(fmt.Sprintf("the launch for 2026-07-01T%d:00:00Z is over: %s", 11+hour, end))
	}
	for path, want := range map[string]string{starts: "x\nx\nx\n", filepath.Join(dir, "allocs", string(shop), "alloc", "logs", "t.stdout.0"): "x\nx\nx\n"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s holds %q (%v), want %q", filepath.Base(path), b, err, want)
		}
	}
}
