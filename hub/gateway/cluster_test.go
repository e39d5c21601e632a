package gateway_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

// cluster is a replicated state without Raft. Where attempted is set, it is called
// with each command before the command's caller has the answer. Where own is set,
// that is the state of the hub: while behind is set, entries wait before they are
// applied to it.
type cluster struct {
	*statetest.Log
	tb  testing.TB
	own *state.Store

	mu        sync.Mutex
	behind    bool
	late      []func()
	attempted func(state.Command)
}

func newCluster(tb testing.TB, lags bool) *cluster {
	c := &cluster{Log: statetest.NewLog(), tb: tb}
	if lags {
		c.own = state.New()
		c.Applied = c.applyToOwn
	}
	return c
}

var errNoLeader = fleet.Errorf(fleet.CodeUnavailable, "no leader")

func (c *cluster) Apply(ctx context.Context, cmd state.Command) (state.Result, error) {
	res, err := c.Log.Apply(ctx, cmd)
	c.mu.Lock()
	attempted := c.attempted
	c.mu.Unlock()
	if attempted != nil {
		attempted(cmd)
	}
	return res, err
}

func (c *cluster) applyToOwn(index fleet.Index, cmd state.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, func() { c.own.Apply(index, cmd) })
	c.catchUp()
}

// catchUp brings the hub's own state to where the cluster is, unless that is to stay
// behind.
func (c *cluster) catchUp() {
	if c.behind {
		return
	}
	for _, apply := range c.late {
		apply()
	}
	c.late = nil
}

func (c *cluster) setBehind(behind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = behind
	c.catchUp()
}

// catchUpOne brings a hub's own state that stays behind one entry further.
func (c *cluster) catchUpOne() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late[0]()
	c.late = c.late[1:]
}

func (c *cluster) mustApply(cmd state.Command) state.Result {
	c.tb.Helper()
	res, err := c.Apply(c.tb.Context(), cmd)
	if err != nil || res.Err != nil {
		c.tb.Fatalf("apply %T: %v, %v", cmd, err, res.Err)
	}
	return res
}

func (c *cluster) setAttempted(f func(state.Command)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempted = f
}

// describeState is the whole state as text, but for how far the log is applied.
func (c *cluster) describeState() string {
	c.tb.Helper()
	var b strings.Builder
	if err := c.View().Describe(&b); err != nil {
		c.tb.Fatalf("describe the state: %v", err)
	}
	var kept []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, `index "applied"`) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// expectUnchanged fails with each line of the state that has changed.
func (c *cluster) expectUnchanged(tb testing.TB, before string) {
	tb.Helper()
	was := strings.Split(before, "\n")
	for line := range strings.SplitSeq(c.describeState(), "\n") {
		if !slices.Contains(was, line) {
			tb.Errorf("the state changed: %s", line)
		}
	}
}

// waitForState waits for the state to be as wanted.
func (c *cluster) waitForState(what string, ok func(v *state.View) bool) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	for {
		if ok(c.View()) {
			return
		}
		// Tables change one after the other: look again soon as well.
		pause, done := context.WithTimeout(ctx, 10*time.Millisecond)
		<-pause.Done()
		done()
		if ctx.Err() != nil {
			c.tb.Fatalf("%s: not within %s; the state is\n%s", what, patience, c.describeState())
		}
	}
}

func (c *cluster) mustNode(id fleet.NodeID) *fleet.Node {
	c.tb.Helper()
	n, ok := c.View().Node(id)
	if !ok {
		c.tb.Fatalf("node %s is not in the state:\n%s", id, c.describeState())
	}
	return n
}
