package prometheus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	_ "github.com/prometheus/prometheus/discovery/nomad" // nomad_sd_configs
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// patience bounds what a machine that is busy may take.
const patience = 2 * time.Minute

// servesMetrics has this very program be the task of the job: it serves metrics on the
// address that it names.
const servesMetrics = "TEST_SERVES_METRICS_ON"

func TestMain(m *testing.M) {
	if addr := os.Getenv(servesMetrics); addr != "" {
		err := http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "# TYPE sales_total counter\nsales_total{alloc=%q} 42\n", os.Getenv("NOMAD_ALLOC_NAME"))
		}))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const job = `
job "till" {
  group "main" {
    count = 2
    network {
      port "metrics" {}
      port "admin" {}
    }
    service {
      name     = "till"
      provider = "nomad"
      port     = "metrics"
      tags     = ["metrics", "shop"]
    }
    service {
      name     = "till-admin"
      provider = "nomad"
      port     = "admin"
    }
    task "main" {
      driver = "raw_exec"
      config {
        command = %q
      }
      env {
        %s = "127.0.0.1:${NOMAD_PORT_metrics}"
      }
    }
  }
}
`

// configuration is what a user writes: services with a tag are scraped, and named.
const configuration = `
scrape_configs:
  - job_name: fleet
    scrape_interval: 1s
    scrape_timeout: 1s
    nomad_sd_configs:
      - server: %s
        refresh_interval: 1s
    relabel_configs:
      - source_labels: [__meta_nomad_tags]
        regex: .*,metrics,.*
        action: keep
      - source_labels: [__meta_nomad_service]
        target_label: service
      - source_labels: [__meta_nomad_dc]
        target_label: dc
`

func TestPrometheusFindsServices(t *testing.T) {
	program := mustProgram(t)
	hub := mustDev(t, program)
	file := filepath.Join(t.TempDir(), "till.hcl")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, job, self, servesMetrics), 0o600); err != nil {
		t.Fatal(err)
	}
	mustSucceed(t, program, "job", "run", "--addr", hub, file)

	p := mustPrometheus(t, fmt.Sprintf(configuration, hub))
	p.mustBecome(t, `count(up{job="fleet", service="till", dc="dc1"} == 1)`, 2)
	p.mustBecome(t, `count(count by (alloc) (sales_total == 42))`, 2)
	p.mustBecome(t, `count(up)`, 2) // what has no such tag is left out

	mustSucceed(t, program, "job", "stop", "--addr", hub, "till")
	p.mustBecome(t, `count(up) or vector(0)`, 0)
}

// mustProgram is skerry, as `make build` made it, or as SKERRY names it.
func mustProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv("SKERRY")
	if program == "" {
		program = "../../bin/skerry"
	}
	program, err := filepath.Abs(program)
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Fatalf("find skerry (make build makes it): %v", err)
	}
	return program
}

// mustDev starts a hub and an edge, and returns the hub's address.
func mustDev(t *testing.T, program string) string {
	t.Helper()
	ports := freePorts(t)
	cmd := exec.Command(program, "dev", "--data-dir", t.TempDir(),
		"--http-port", ports[0], "--quic-port", ports[1], "--gossip-port", ports[2])
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		err := cmd.Wait()
		if err != nil || t.Failed() {
			t.Logf("skerry dev: %v\n%s", err, said.String())
		}
	})
	hub := "http://127.0.0.1:" + ports[0]
	until(t, "a node is ready", func() error {
		out, err := exec.Command(program, "node", "status", "--addr", hub).CombinedOutput()
		if err == nil && !bytes.Contains(out, []byte("ready")) {
			err = errors.New("no node is ready")
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return hub
}

// freePorts are three that nobody listens on, for TCP and UDP.
func freePorts(t *testing.T) (ports [3]string) {
	t.Helper()
	for i := range ports {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		if _, ports[i], err = net.SplitHostPort(tcp.Addr().String()); err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", "127.0.0.1:"+ports[i])
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
	}
	return ports
}

func mustSucceed(t *testing.T, program string, args ...string) {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}

func until(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		pause, done := context.WithTimeout(ctx, 100*time.Millisecond)
		<-pause.Done()
		done()
		if ctx.Err() != nil {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}

// server is Prometheus: what finds targets, what scrapes them, what keeps samples, and
// what answers queries, put together as its own program does.
type server struct {
	db     *tsdb.DB
	engine *promql.Engine
}

func mustPrometheus(t *testing.T, text string) *server {
	t.Helper()
	cfg, err := config.Load(text, false, log.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	logger := log.NewLogfmtLogger(log.NewSyncWriter(testOutput{t}))
	finder := discovery.NewManager(ctx, logger)
	scraper := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: 5e9}, logger, db)
	var work sync.WaitGroup
	work.Go(func() {
		if err := finder.Run(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("find targets: %v", err)
		}
	})
	work.Go(func() {
		if err := scraper.Run(finder.SyncCh()); err != nil {
			t.Errorf("scrape: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		scraper.Stop()
		work.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := scraper.ApplyConfig(cfg); err != nil {
		t.Fatal(err)
	}
	found := map[string]discovery.Configs{}
	for _, c := range cfg.ScrapeConfigs {
		found[c.JobName] = c.ServiceDiscoveryConfigs
	}
	if err := finder.ApplyConfig(found); err != nil {
		t.Fatal(err)
	}
	return &server{db: db, engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: patience})}
}

// mustBecome waits for a query to give one sample of a value.
func (p *server) mustBecome(t *testing.T, query string, want float64) {
	t.Helper()
	until(t, query, func() error {
		q, err := p.engine.NewInstantQuery(p.db, nil, query, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		v, err := q.Exec(t.Context()).Vector()
		if err == nil && (len(v) != 1 || v[0].V != want) {
			err = fmt.Errorf("it is %s, wanted %v", v, want)
		}
		return err
	})
}

// testOutput is what the test says.
type testOutput struct{ t *testing.T }

func (o testOutput) Write(b []byte) (int, error) {
	if _, err := io.WriteString(o.t.Output(), string(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
