package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry/drivers/builtin"
	"skerry/fleet"
	"skerry/hub"
)

// testTimeout is how long a test waits for what must come.
const testTimeout = 30 * time.Second

// runningHub is a hub that a test started.
type runningHub struct {
	*hub.Hub
	tb   testing.TB
	cfg  hub.Config
	once sync.Once
	kill context.CancelFunc
	done chan error
}

// config of a hub on loopback, on ports that the system chooses, that elects
// quickly.
func config(tb testing.TB, name string) hub.Config {
	tb.Helper()
	cfg := hub.Config{
		DataDir: filepath.Join(tb.TempDir(), name), Name: name, Workers: 2, Drivers: builtin.Known(),
		Heartbeat: hub.Heartbeat{MinTTL: time.Second, Grace: time.Second},
		Raft:      hub.Raft{HeartbeatTimeout: 250 * time.Millisecond, ElectionTimeout: 250 * time.Millisecond, LeaderLease: 200 * time.Millisecond},
	}
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	return cfg
}

// cuttableSocket is a hub's socket, which can be cut as a kill -9 of the machine would: no
// packet comes or goes any more, and nobody is told.
type cuttableSocket struct {
	net.PacketConn
	cut atomic.Bool
}

func (w *cuttableSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	if w.cut.Load() {
		return len(b), nil
	}
	return w.PacketConn.WriteTo(b, to)
}

func (w *cuttableSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := w.PacketConn.ReadFrom(b)
		if err != nil || !w.cut.Load() {
			return n, from, err
		}
	}
}

func mustCuttableSocket(tb testing.TB) *cuttableSocket {
	tb.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return &cuttableSocket{PacketConn: c}
}

// mustStart opens and runs a hub until the test ends, or stop.
func mustStart(tb testing.TB, cfg hub.Config) *runningHub {
	tb.Helper()
	r := mustOpen(tb, cfg)
	r.startHub()
	return r
}

// mustOpen opens a hub, which startHub runs.
func mustOpen(tb testing.TB, cfg hub.Config) *runningHub {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	h, err := hub.Open(ctx, cfg)
	if err != nil {
		tb.Fatalf("open hub %s: %v", cfg.Name, err)
	}
	return &runningHub{Hub: h, tb: tb, cfg: cfg, done: make(chan error, 1)}
}

// startHub runs a hub until the test ends, or stopHub.
func (r *runningHub) startHub() {
	ctx, kill := context.WithCancel(context.Background())
	r.kill = kill
	go func() { r.done <- r.Run(ctx) }()
	r.tb.Cleanup(r.stopHub)
}

// stopHub ends a hub. Its data directory is then as kill -9 would leave it: nothing
// is written at the end that a restart depends on.
func (r *runningHub) stopHub() {
	r.once.Do(func() {
		r.kill()
		if err := <-r.done; err != nil {
			r.tb.Errorf("hub %s ended: %v", r.cfg.Name, err)
		}
		if err := r.Close(); err != nil {
			r.tb.Errorf("close hub %s: %v", r.cfg.Name, err)
		}
	})
}

func (r *runningHub) mustBeReady() {
	r.tb.Helper()
	select {
	case <-r.Ready():
	case err := <-r.done:
		r.done <- nil
		r.tb.Fatalf("hub %s ended: %v", r.cfg.Name, err)
	case <-time.After(testTimeout):
		r.tb.Fatalf("hub %s is not ready after %s; its state is\n%s", r.cfg.Name, testTimeout, r.describeState())
	}
}

func (r *runningHub) describeState() string {
	var b strings.Builder
	if err := r.State().View().Describe(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

// waitUntil polls until ok, and prints the state where it gives up.
func waitUntil(tb testing.TB, what string, state func() string, ok func() bool) {
	tb.Helper()
	waitWithin(tb, testTimeout, what, state, ok)
}

// waitWithin is waitUntil for what may take longer.
func waitWithin(tb testing.TB, within time.Duration, what string, state func() string, ok func() bool) {
	tb.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("%s: not within %s\n%s", what, within, state())
		}
	}
}

// requestHTTP asks the HTTP API, and decodes the answer into out where it is not nil.
func (r *runningHub) requestHTTP(method, path string, body, out any) (int, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		in = strings.NewReader(string(b))
	}
	req, err := http.NewRequestWithContext(r.tb.Context(), method, "http://"+r.HTTPAddr()+path, in)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return res.StatusCode, err
	}
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	if out != nil {
		return res.StatusCode, json.Unmarshal(text, out)
	}
	return res.StatusCode, nil
}

func (r *runningHub) mustRequest(method, path string, body, out any) {
	r.tb.Helper()
	if _, err := r.requestHTTP(method, path, body, out); err != nil {
		r.tb.Fatal(err)
	}
}

// mustRegister registers a job, and tries again when a leader is lost meanwhile: on a busy machine elections happen.
func (r *runningHub) mustRegister(job map[string]any) {
	r.tb.Helper()
	var err error
	waitUntil(r.tb, "the job is registered", func() string { return err.Error() }, func() bool {
		_, err = r.requestHTTP("PUT", "/v1/jobs", job, nil)
		return err == nil
	})
}

// job is a small one; nothing runs it unless there is an edge.
func job(id string) map[string]any {
	return map[string]any{"Job": map[string]any{
		"ID": id, "Name": id, "Type": "service", "Datacenters": []string{"dc1"},
		"TaskGroups": []any{map[string]any{
			"Name": "web", "Count": 1,
			"Tasks": []any{map[string]any{
				"Name": "server", "Driver": "raw_exec", "Config": map[string]any{"command": "/bin/sleep", "args": []string{"1000"}},
				"Resources": map[string]any{"CPU": 100, "MemoryMB": 64},
			}},
		}},
	}}
}

func TestBootstrapAndRestart(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	h := mustStart(t, cfg)
	h.mustBeReady()
	token := h.JoinToken()
	if !strings.HasPrefix(token, "skr1.") {
		t.Errorf("join token %q", token)
	}
	if info, err := os.Stat(filepath.Join(cfg.DataDir, "join-token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("join token file: %v, %v; want mode 0600", info, err)
	}
	var leader string
	h.mustRequest("GET", "/v1/status/leader", nil, &leader)
	if leader != h.QUICAddr() {
		t.Errorf("the leader is %s, want %s", leader, h.QUICAddr())
	}
	h.mustRegister(job("shop"))
	before, _ := h.State().View().Cluster()
	h.stopHub()

	cfg.Bootstrap = false // its data directory says who it is
	again := mustStart(t, cfg)
	again.mustBeReady()
	after, ok := again.State().View().Cluster()
	if !ok || after.ID != before.ID {
		t.Errorf("the cluster is %v after the restart, want %s", after, before.ID)
	}
	if _, ok := again.State().View().Job(fleet.DefaultNamespace, "shop"); !ok {
		t.Errorf("the job is gone after the restart:\n%s", again.describeState())
	}
	if again.QUICAddr() == h.QUICAddr() {
		t.Log("the system gave the same port again")
	}
	waitUntil(t, "the new addresses are registered", again.describeState, func() bool {
		a, ok := again.State().View().Hub("hub-1")
		return ok && a.QUIC == again.QUICAddr() && a.HTTP == again.HTTPAddr() && a.Gossip == again.GossipAddr()
	})
	if again.JoinToken() != token {
		t.Error("the join token changed")
	}
}

// mustCluster starts n hubs: one that bootstraps, and those that join it.
func mustCluster(t *testing.T, n int) []*runningHub {
	t.Helper()
	return mustClusterWith(t, n, func(*hub.Config) {})
}

// mustClusterWith starts n hubs of one cluster, whose configurations are changed first.
func mustClusterWith(t *testing.T, n int, change func(*hub.Config)) []*runningHub {
	t.Helper()
	cfg := config(t, "hub-1")
	change(&cfg)
	cfg.Bootstrap, cfg.Packets = true, mustCuttableSocket(t)
	hubs := []*runningHub{mustStart(t, cfg)}
	hubs[0].mustBeReady()
	for i := 2; i <= n; i++ {
		cfg := config(t, fmt.Sprintf("hub-%d", i))
		change(&cfg)
		cfg.Join, cfg.Token = []string{hubs[0].QUICAddr()}, hubs[0].HubJoinToken()
		cfg.Packets = mustCuttableSocket(t)
		hubs = append(hubs, mustStart(t, cfg))
	}
	for _, h := range hubs {
		h.mustBeReady()
	}
	return hubs
}

func leaderOf(hubs []*runningHub) *runningHub {
	for _, h := range hubs {
		if h.Leads() {
			return h
		}
	}
	return nil
}

// mustLeader waits until one of the hubs leads: each hub may have to begin to, more
// than once, before it does.
func mustLeader(tb testing.TB, hubs []*runningHub) *runningHub {
	tb.Helper()
	var leader *runningHub
	waitUntil(tb, "one of the hubs leads", func() string { return "none does" }, func() bool {
		leader = leaderOf(hubs)
		return leader != nil
	})
	return leader
}

func TestThreeHubs(t *testing.T) {
	hubs := mustCluster(t, 3)
	for i, h := range hubs {
		h.mustRegister(job(fmt.Sprint("job-", i)))
	}
	for _, h := range hubs {
		var peers []string
		h.mustRequest("GET", "/v1/status/peers", nil, &peers)
		if len(peers) != 3 {
			t.Errorf("hub %s knows the peers %v, want three", h.cfg.Name, peers)
		}
		for i := range hubs {
			h.mustRequest("GET", fmt.Sprint("/v1/job/job-", i), nil, nil) // read after write, on any hub
		}
	}
	waitUntil(t, "all hubs see three members alive", func() string { return "" }, func() bool {
		for _, h := range hubs {
			var members struct {
				Members []struct{ Name, Status string }
			}
			h.mustRequest("GET", "/v1/agent/members", nil, &members)
			alive := 0
			for _, m := range members.Members {
				if m.Status == "alive" {
					alive++
				}
			}
			if alive != 3 {
				return false
			}
		}
		return true
	})

	leader := mustLeader(t, hubs)
	started := time.Now()
	leader.cfg.Packets.(*cuttableSocket).cut.Store(true)
	rest := make([]*runningHub, 0, 2)
	for _, h := range hubs {
		if h != leader {
			rest = append(rest, h)
		}
	}
	waitUntil(t, "a job can be registered again", rest[0].describeState, func() bool {
		_, err := rest[0].requestHTTP("PUT", "/v1/jobs", job("after"), nil)
		return err == nil
	})
	t.Logf("service back %s after the leader was gone", time.Since(started).Round(time.Millisecond))
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("service back after %s, must be at most 5 s", took)
	}
	rest[1].mustRequest("GET", "/v1/job/after", nil, nil)
	leader.stopHub()

	// The one that was gone comes back on other ports, and catches up.
	cfg := leader.cfg
	cfg.Bootstrap, cfg.Join, cfg.Token, cfg.Packets = false, nil, "", mustCuttableSocket(t)
	back := mustStart(t, cfg)
	back.mustBeReady()
	if _, ok := back.State().View().Job(fleet.DefaultNamespace, "after"); !ok {
		t.Errorf("the hub that came back is ready without the newest job:\n%s", back.describeState())
	}
	all := append(rest, back)
	waitUntil(t, "all hubs have the same state", back.describeState, func() bool {
		index := all[0].State().View().Index()
		texts := map[string]bool{}
		for _, h := range all {
			v := h.State().View()
			if v.Index() != index {
				return false
			}
			texts[h.describeState()] = true
		}
		return len(texts) == 1
	})
}
