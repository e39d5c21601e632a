package api_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/hub/state"
)

// mustSave takes a snapshot as Nomad's client does.
func mustSave(tb testing.TB, c *nomad.Client) []byte {
	tb.Helper()
	in, err := c.Operator().Snapshot(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	file, err := io.ReadAll(in)
	if err != nil {
		tb.Fatal(err)
	}
	return file
}

// Nomad's client restores the snapshot that it saved: jobs registered since are gone, and a query that waits for a
// later index returns.
func TestSnapshotIsRestored(t *testing.T) {
	h, srv, c := mustServe(t)
	mustApply(t, h, state.ClusterInit{Cluster: state.Cluster{ID: "c1"}})
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	file := mustSave(t, c)
	for _, id := range []string{"web", "later"} {
		job := exampleJob(id)
		job.TaskGroups[0].Count = new(int)
		if _, _, err := c.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, meta, err := c.Jobs().Info("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	type heard struct {
		job  *nomad.Job
		meta *nomad.QueryMeta
		err  error
	}
	waiting := make(chan heard, 1)
	go func() {
		job, m, err := c.Jobs().Info("web", &nomad.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute})
		waiting <- heard{job, m, err}
	}()

	if _, err := c.Operator().SnapshotRestore(bytes.NewReader(file), nil); err != nil {
		t.Fatal(err)
	}
	got := <-waiting
	if got.err != nil || *got.job.TaskGroups[0].Count != 2 || got.meta.LastIndex <= meta.LastIndex {
		t.Errorf("who waited for a change hears of %+v: %v", got.meta, got.err)
	}
	if _, _, err := c.Jobs().Info("later", nil); err == nil {
		t.Error("a job that was registered after the snapshot is there")
	}

	before := h.store.View().Index()
	for name, bad := range map[string][]byte{
		"damaged":   append(bytes.Clone(file[:len(file)-9]), 1, 2, 3, 4, 5, 6, 7, 8, 9),
		"truncated": file[:len(file)/2],
		"foreign":   []byte("{}"),
		"empty":     nil,
	} {
		_, err := c.Operator().SnapshotRestore(bytes.NewReader(bad), nil)
		if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("a snapshot that is %s: %v", name, err)
		}
	}
	endless, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL+"/v1/operator/snapshot", io.LimitReader(zeros{}, state.MaxSnapshot+2))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(endless); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a body without an end: %s", resp.Status)
		}
	}
	if now := h.store.View().Index(); now != before {
		t.Errorf("what was refused has come to the log: entry %d, was %d", now, before)
	}
}

// zeros is a body that does not end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
