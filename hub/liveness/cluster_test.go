package liveness_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

// cluster is a replicated state without Raft, for one test.
type cluster struct {
	*statetest.Log
	tb testing.TB
}

var errNoLeader = fleet.Errorf(fleet.CodeUnavailable, "no leader")

func newCluster(tb testing.TB) *cluster { return &cluster{Log: statetest.NewLog(), tb: tb} }

func (c *cluster) mustApply(cmd state.Command) state.Result {
	c.tb.Helper()
	return c.MustApply(c.tb, cmd)
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
		Policy: policy, State: c.Store, Apply: c, Hubs: func() int { return 1 }, Forward: forward,
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
