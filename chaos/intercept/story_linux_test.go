package intercept_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/observe"
	"skerry/client"
	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/hub"
)

// center is the hub of all rounds, and the source of artifacts. Their own files are not on a machine's disk.
type center struct {
	*hub.Hub
	*client.Client
	token  string
	source string // address of the artifacts

	mu   sync.Mutex
	rows map[fleet.NodeID]*applied // guarded by mu
}

// applied has the rows of a node that the hub has applied, and the mistakes found in them.
type applied struct {
	rows  []fleet.Transition
	wrong []string
}

// mustCenter runs a hub until the test ends.
func mustCenter(t *testing.T) *center {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "hub")
	c := &center{token: filepath.Join(dir, "join-token"), rows: map[fleet.NodeID]*applied{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	h, err := hub.Open(ctx, hub.Config{
		DataDir: dir, Name: "hub-1", Bootstrap: true, Workers: 2, Applied: c.observeApplied, Log: slog.New(slog.DiscardHandler),
		Heartbeat: hub.Heartbeat{MinTTL: 5 * time.Second, Grace: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Hub = h
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	source := httptest.NewServer(http.HandlerFunc(serveArtifact))
	t.Cleanup(func() {
		cancel()
		source.Close()
		if err := <-done; err != nil {
			t.Errorf("the hub ended: %v", err)
		}
		if err := h.Close(); err != nil {
			t.Errorf("close the hub: %v", err)
		}
	})
	c.source = source.URL
	<-h.Ready()
	if c.Client, err = client.New(client.Config{Addr: h.HTTPAddr(), Timeout: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return c
}

// observeApplied records the rows that a log entry applies.
func (c *center) observeApplied(a hub.Applied) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range observe.Applied("hub-1", a, true).Effects.Batches {
		c.recordBatch(b)
	}
}

// recordBatch records the rows of a batch that were applied now. mu is held.
func (c *center) recordBatch(b check.Batch) {
	n := c.rows[b.Node]
	if n == nil {
		n = &applied{}
		c.rows[b.Node] = n
	}
	if b.Code != "" {
		return // a refused one, which is sent again
	}
	if b.Base {
		n.wrong = append(n.wrong, fmt.Sprintf("the journal was given other numbers from row %d on: it has lost rows", b.First))
	}
	for _, row := range b.Rows {
		switch last := fleet.Seq(len(n.rows)); {
		case row.Seq > b.Applied || row.Seq <= last:
		case row.Seq == last+1:
			n.rows = append(n.rows, row)
		default:
			n.wrong = append(n.wrong, fmt.Sprintf("row %d follows row %d", row.Seq, last))
		}
	}
}

// appliedRows returns a node's rows as the hub has them.
func (c *center) appliedRows(id fleet.NodeID) (rows []fleet.Transition, wrong []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.rows[id]; n != nil {
		return append(rows, n.rows...), append(wrong, n.wrong...)
	}
	return nil, nil
}

// motd is a file of the artifact: more than one write.
var motd = strings.Repeat("all is well on board\n", 20_000)

// sleepModule prints a line and then sleeps; the assembler of the tests of drivers/wasm made it.
//
//go:embed testdata/sleep.wasm
var sleepModule []byte

// serveArtifact serves an archive and a module.
func serveArtifact(w http.ResponseWriter, r *http.Request) {
	b := sleepModule
	if !strings.HasSuffix(r.URL.Path, ".wasm") {
		var err error
		if b, err = makeArchive(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(b))
}

// makeArchive makes the archive with the file motd.
func makeArchive() ([]byte, error) {
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	archive := tar.NewWriter(packed)
	if err := archive.WriteHeader(&tar.Header{Name: "motd", Mode: 0o644, Size: int64(len(motd))}); err != nil {
		return nil, err
	}
	if _, err := archive.Write([]byte(motd)); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := packed.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// shopJob has a task of each driver that runs cheaply. A version is a variable of its first task.
const shopJob = `
job "JOB" {
  datacenters = ["*"]
  constraint {
    attribute = "${node.unique.name}"
    value     = "NODE"
  }
  update {
    min_healthy_time = "0s"
  }
  group "main" {
    restart {
      attempts = 1000
      interval = "1h"
      delay    = "200ms"
      mode     = "fail"
    }
    ephemeral_disk {
      size = 10
    }
    task "raw" {
      driver       = "raw_exec"
      kill_timeout = "10s"
      logs {
        max_files     = 1
        max_file_size = 1
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "cat local/notes/motd local/conf > local/copy && exec sleep 86400"]
      }
      env {
        VERSION = "1"
      }
      artifact {
        source      = "SOURCE/notes.tar.gz"
        destination = "local/notes"
      }
      template {
        data        = "I am {{ env \"NOMAD_ALLOC_ID\" }}\n"
        destination = "local/conf"
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
    task "box" {
      driver       = "exec"
      kill_timeout = "10s"
      logs {
        max_files     = 1
        max_file_size = 1
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo started; exec /bin/sleep 86400"]
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
    task "mod" {
      driver       = "wasm"
      kill_timeout = "10s"
      logs {
        max_files     = 1
        max_file_size = 1
      }
      artifact {
        source = "SOURCE/sleep.wasm"
      }
      config {
        module = "local/sleep.wasm"
      }
      resources {
        cpu    = 20
        memory = 64
      }
    }
  }
}`

// guestJob has one task, and comes and goes.
const guestJob = `
job "JOB" {
  datacenters = ["*"]
  constraint {
    attribute = "${node.unique.name}"
    value     = "NODE"
  }
  update {
    min_healthy_time = "0s"
  }
  group "main" {
    restart {
      attempts = 1000
      interval = "1h"
      delay    = "200ms"
      mode     = "fail"
    }
    ephemeral_disk {
      size = 10
    }
    task "raw" {
      driver       = "raw_exec"
      kill_timeout = "10s"
      logs {
        max_files     = 1
        max_file_size = 1
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo hello; exec sleep 86400"]
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
  }
}`

// job reads a job file for a machine.
func (r *round) job(id, text string) (*fleet.Job, error) {
	text = strings.NewReplacer("JOB", r.jobID(id), "NODE", r.machine.name, "SOURCE", r.center.source).Replace(text)
	return jobspec.Parse(id+".hcl", []byte(text), jobspec.Options{})
}

func (r *round) jobID(id string) string { return id + "-" + r.machine.name }

// register registers a job until the hub has it.
func (r *round) register(id, text string) {
	job, err := r.job(id, text)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.center.RegisterJob(r.t.Context(), job, api.JobRegisterRequest{}); err != nil {
		r.t.Fatal(err)
	}
}

// allocs returns a job's allocations as the hub has them, the ones of the newest version first.
func (r *round) allocs(id string) []api.AllocStub {
	list, err := r.center.JobAllocs(r.t.Context(), fleet.JobID(r.jobID(id)), client.List{})
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}
