package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry/cmd/edged"
	"skerry/edge"
	"skerry/edge/local"
	"skerry/edge/secretdirs"
	"skerry/fleet"
	"skerry/hub"
	"skerry/internal/tmpfs"
)

// patience is how long these tests wait for an expected state.
const patience = 30 * time.Second

// daemon is a hub or an edge that a test runs in its own process.
type daemon struct {
	stop func()
}

// mustRun runs a daemon until the test ends, or stop.
func mustRun(t *testing.T, run func(context.Context) error, release func() error) daemon {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stopped := false
	d := daemon{stop: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with: %v", err)
		}
		if err := release(); err != nil {
			t.Errorf("close: %v", err)
		}
	}}
	t.Cleanup(d.stop)
	return d
}

func mustHub(t *testing.T, cfg hub.Config) (*hub.Hub, daemon) {
	t.Helper()
	h, err := hub.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := mustRun(t, h.Run, h.Close)
	select {
	case <-h.Ready():
	case <-time.After(patience):
		t.Fatal("the hub is not ready")
	}
	return h, d
}

// realEdge is an edge with real drivers whose wall clock wakes up in 1970.
type realEdge struct {
	flags edged.Flags
	boot  string
}

func (b realEdge) mustStart(t *testing.T) (*edge.Edge, daemon) {
	t.Helper()
	b.flags.BootID = b.boot
	cfg, err := b.flags.EdgeConfig(slog.New(slog.DiscardHandler), "test")
	if err != nil {
		t.Fatal(err)
	}
	woke := time.Now()
	cfg.Now = func() time.Time { return time.Unix(30, 0).Add(time.Since(woke)) }
	e, err := edge.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the agent's end: its task goes on, with its secrets folder
		if err := tmpfs.DetachBelow(cfg.DataDir, secretdirs.SourcePrefix); err != nil {
			t.Error(err)
		}
	})
	return e, mustRun(t, e.Run, e.Close)
}

// mustSee polls an edge until its status is as wanted.
func mustSee(t *testing.T, e *edge.Edge, what string, ok func(local.Status) bool) local.Status {
	t.Helper()
	client, give := local.NewClient(e.Socket()), time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := client.Status(t.Context())
		if err == nil && ok(s) {
			return s
		}
		if time.Now().After(give) {
			t.Fatalf("%s: not within %s: %+v, %v", what, patience, s, err)
		}
		<-tick.C
	}
}

func connected(s local.Status) bool { return s.Link.State == "connected" && s.Link.Status == "ready" }

func runs(s local.Status) bool {
	return len(s.Allocs) == 1 && s.Allocs[0].ClientStatus == fleet.ClientRunning && s.Allocs[0].Desired == fleet.DesiredRun
}

// A board without a clock battery joins, works, reboots with no hub in reach and
// comes back, always in 1970: it keeps its certificate and its task.
func TestEdgeInTheYear1970(t *testing.T) {
	dir := t.TempDir()
	quic, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	cfg := hub.Config{DataDir: filepath.Join(dir, "hub"), Name: "h1", Bootstrap: true, QUICPort: quic}
	h, serving := mustHub(t, cfg)
	b := realEdge{boot: "11111111-1111-4111-8111-111111111111"}
	b.flags.Config = edge.Config{
		DataDir: filepath.Join(dir, "edge"), Name: "board", Hubs: []string{h.QUICAddr()}, BackoffCap: time.Second,
		TokenFile: filepath.Join(cfg.DataDir, "join-token"),
	}
	e, agent := b.mustStart(t)
	mustSee(t, e, "ready", connected)

	root := rootCommand()
	job := filepath.Join(dir, "job.json")
	if err := os.WriteFile(job, []byte(`{"Job": {"ID": "till", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "sim"}]}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	root.SetArgs([]string{"job", "run", "--detach", "--addr", "http://" + h.HTTPAddr(), job})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := mustSee(t, e, "the task runs", runs)
	certificate, err := os.ReadFile(filepath.Join(dir, "edge", "identity", "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}

	agent.stop()
	serving.stop()
	b.boot, b.flags.Config.TokenFile = "22222222-2222-4222-8222-222222222222", ""
	e, agent = b.mustStart(t)
	after := mustSee(t, e, "the task runs again, without a hub", runs)
	if after.Allocs[0].ID != before.Allocs[0].ID || connected(after) {
		t.Errorf("before the reboot %+v, and after it %+v", before, after)
	}

	h, _ = mustHub(t, cfg)
	mustSee(t, e, "ready again", func(s local.Status) bool { return connected(s) && runs(s) && s.Journal.Unacknowledged == 0 })
	if now, err := os.ReadFile(filepath.Join(dir, "edge", "identity", "cert.pem")); err != nil || string(now) != string(certificate) {
		t.Errorf("the certificate is another one: %v", err)
	}
	if a, ok := h.State().View().Alloc(before.Allocs[0].ID); !ok || a.ClientStatus != fleet.ClientRunning || a.DesiredStatus != fleet.DesiredRun {
		t.Errorf("the hub has it as %+v", a)
	}
	agent.stop()
}
