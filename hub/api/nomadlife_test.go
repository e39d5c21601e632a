package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/cmd/edged"
	"skerry/drivers/supervised"
	"skerry/edge"
	"skerry/fleet"
	daemon "skerry/hub"
)

// patience is how long a test waits for an expected state.
const patience = 60 * time.Second

// TestMain lets this program be the supervisor of a task: raw_exec starts its own program
// for that, which would run all tests again.
func TestMain(m *testing.M) {
	supervised.Supervise()
	os.Exit(m.Run())
}

// answer is one answer of a hub, as it went over the wire.
type answer struct {
	method, path string
	status       int
	body         []byte
}

// recorder is a transport that keeps the answers of hubs. It keeps the bodies of streams as far as the client read
// them.
type recorder struct {
	mu      sync.Mutex
	answers []*answer
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	a := &answer{method: req.Method, path: req.URL.EscapedPath(), status: resp.StatusCode}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, a)
	resp.Body = &recordedBody{resp.Body, r, a}
	return resp, nil
}

type recordedBody struct {
	io.ReadCloser
	r *recorder
	a *answer
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	b.a.body = append(b.a.body, p[:n]...)
	return n, err
}

// successfulAnswers returns the answers so far that were no refusals.
func (r *recorder) successfulAnswers() []answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []answer
	for _, a := range r.answers {
		if a.status < 400 {
			out = append(out, answer{a.method, a.path, a.status, bytes.Clone(a.body)})
		}
	}
	return out
}

// devCluster is one hub and two edges in this process, as skerry dev runs them, and Nomad's
// published client of it.
type devCluster struct {
	*nomad.Client
	tb    testing.TB
	said  *recorder
	addr  string
	port  string // of the hub's HTTP API
	nodes []fleet.NodeID
}

func mustDevCluster(tb testing.TB) *devCluster {
	tb.Helper()
	dir, log := tb.TempDir(), slog.New(slog.DiscardHandler)
	h, err := daemon.Open(tb.Context(), daemon.Config{
		DataDir: filepath.Join(dir, "hub"), Name: "hub1", Bootstrap: true, Bind: "127.0.0.1", Version: "1.2.3", Log: log,
		Heartbeat: daemon.Heartbeat{MinTTL: time.Second, Grace: time.Second},
	})
	if err != nil {
		tb.Fatal(err)
	}
	runUntilEnd(tb, h.Run, h.Close)
	select {
	case <-h.Ready():
	case <-time.After(patience):
		tb.Fatal("the hub is not ready")
	}
	c := &devCluster{tb: tb, said: &recorder{}, addr: "http://" + h.HTTPAddr()}
	if _, c.port, err = net.SplitHostPort(h.HTTPAddr()); err != nil {
		tb.Fatal(err)
	}
	for _, name := range []string{"edge1", "edge2"} {
		flags := edged.Flags{Bind: "127.0.0.1", TotalCPU: 8000, TotalMemMB: 8000, Config: edge.Config{
			DataDir: filepath.Join(dir, name), Name: name, Datacenter: "dc1", Site: "shop-" + name, NodePool: fleet.DefaultPool, NodeClass: "till",
			Meta: map[string]string{"rack": name}, Hubs: []string{h.QUICAddr()}, TokenFile: filepath.Join(dir, "hub", "join-token"), KeepTerminal: 50,
		}}
		flags.Reserved = fleet.Resources{CPU: 100, MemoryMB: 100, DiskMB: 100}
		flags.Network = edged.Network{ReservedPorts: "22,8000-8010", Hosts: []string{"lan=127.0.0.1"}, MinDynamic: fleet.MinDynamicPort, MaxDynamic: fleet.MaxDynamicPort}
		cfg, err := flags.EdgeConfig(log, "1.2.3")
		if err != nil {
			tb.Fatal(err)
		}
		e, err := edge.Open(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		c.nodes = append(c.nodes, e.NodeID())
		runUntilEnd(tb, e.Run, e.Close)
	}
	if c.Client, err = nomad.NewClient(&nomad.Config{Address: c.addr, HttpClient: &http.Client{Transport: c.said}}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.stopAllJobs) // tasks outlive the edge that started them
	return c
}

// stopAllJobs stops every job and waits until no task runs.
func (c *devCluster) stopAllJobs() {
	jobs, _, err := c.Jobs().List(nil)
	if err != nil {
		c.tb.Errorf("list the jobs to stop: %v", err)
	}
	for _, j := range jobs {
		if _, _, err := c.Jobs().DeregisterOpts(j.ID, &nomad.DeregisterOptions{NoShutdownDelay: true}, nil); err != nil {
			c.tb.Errorf("stop job %s: %v", j.ID, err)
		}
	}
	c.waitUntil("no task runs", func() string {
		allocs, _, err := c.Allocations().List(nil)
		for _, a := range allocs {
			if a.ClientStatus == nomad.AllocClientStatusRunning || a.ClientStatus == nomad.AllocClientStatusPending {
				return a.Name + " is " + a.ClientStatus
			}
		}
		return missingOf(0, 0, err)
	})
}

// runUntilEnd runs a daemon until the test ends.
func runUntilEnd(tb testing.TB, run func(context.Context) error, closeIt func() error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	tb.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			tb.Errorf("a daemon ended: %v", err)
		}
		if err := closeIt(); err != nil {
			tb.Errorf("close a daemon: %v", err)
		}
	})
}

// waitUntil polls until missing returns "", and prints its last text if it gives up.
func (c *devCluster) waitUntil(what string, missing func() string) {
	c.tb.Helper()
	deadline, tick := time.NewTimer(patience), time.NewTicker(50*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		said := missing()
		if said == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			c.tb.Fatalf("%s: %s after %s", what, said, patience)
		}
	}
}

// mustSucceed fails the test on an error; ok passes an answer of Nomad's client on.
func (c *devCluster) mustSucceed(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatal(err)
	}
}

// getRawPath reads a path that Nomad's client has no method for.
func (c *devCluster) getRawPath(path string) []byte {
	c.tb.Helper()
	body, err := c.Raw().Response(path, nil)
	c.mustSucceed(err)
	defer body.Close()
	b, err := io.ReadAll(body)
	c.mustSucceed(err)
	return b
}

// putRawPath sends a body to a path that Nomad's client has no method for.
func (c *devCluster) putRawPath(path string, body any) {
	c.tb.Helper()
	var out json.RawMessage
	_, err := c.Raw().Write(path, body, &out, nil)
	c.mustSucceed(err)
}
