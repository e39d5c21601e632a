package liveness_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
	"skerry/hub/state"
)

// cluster is a replicated state without Raft: commands apply at once, or fail
// while broken is set.
type cluster struct {
	*state.Store
	tb testing.TB

	mu      sync.Mutex
	index   fleet.Index
	broken  bool
	entries []state.Command
}

func newCluster(tb testing.TB) *cluster { return &cluster{Store: state.New(), tb: tb} }

func (c *cluster) Apply(_ context.Context, cmd state.Command) (state.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "no leader")
	}
	c.index++
	c.entries = append(c.entries, cmd)
	return c.Store.Apply(c.index, cmd), nil
}

func (c *cluster) mustApply(cmd state.Command) state.Result {
	c.tb.Helper()
	res, err := c.Apply(c.tb.Context(), cmd)
	if err != nil || res.Err != nil {
		c.tb.Fatalf("apply %T: %v, %v", cmd, err, res.Err)
	}
	return res
}

func (c *cluster) setBroken(broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
}

// statusEntries counts NodeStatus commands.
func (c *cluster) statusEntries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.entries {
		if _, ok := e.(state.NodeStatus); ok {
			n++
		}
	}
	return n
}

// mustConnect opens a session of a node, which becomes ready, and returns its epoch.
func (c *cluster) mustConnect(node fleet.NodeID, pool string) fleet.Epoch {
	c.tb.Helper()
	session := uint64(1)
	if n, ok := c.View().Node(node); ok {
		session = n.Session + 1
	}
	res := c.mustApply(state.SessionOpen{
		NodeID: node, Session: session, Instance: "instance", BootID: "boot", Hub: "hub-1",
		Node: &fleet.Node{ID: node, Name: string(node), NodePool: pool}, Now: time.Now().UnixNano(),
	})
	return res.Session.Epoch
}

func (c *cluster) nodeStatuses() string {
	var lines []string
	for n := range c.View().Nodes("") {
		lines = append(lines, fmt.Sprintf("%s=%s", n.ID, n.Status))
	}
	return strings.Join(lines, " ")
}

func (c *cluster) expectStatuses(want string) {
	c.tb.Helper()
	synctest.Wait()
	if got := c.nodeStatuses(); got != want {
		c.tb.Errorf("%s after the start: nodes %s, want %s", time.Now().Format("15:04:05.0"), got, want)
	}
}

// expectDown expects that the node n is still ready after a time, and down at most late after that.
func (c *cluster) expectDown(ready, late time.Duration) {
	c.tb.Helper()
	time.Sleep(ready)
	c.expectStatuses("n=ready")
	time.Sleep(late)
	c.expectStatuses("n=down")
}

var policy = liveness.Policy{MinTTL: 10 * time.Second, Grace: 5 * time.Second, MaxRate: 500}

func newLiveness(c *cluster, forward func(context.Context, []liveness.Heartbeat) error) *liveness.Liveness {
	return liveness.New(liveness.Config{
		Policy: policy, State: c, Apply: c, Hubs: func() int { return 1 }, Forward: forward,
	})
}

// runInBackground runs f until the test's bubble is done with it.
func runInBackground(t *testing.T, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	}
}
