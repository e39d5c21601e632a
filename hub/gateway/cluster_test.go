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
)

// cluster is a replicated state without Raft: commands apply at once, or fail
// while broken is set. Where applied is set, it is called before a command's
// caller hears of it. Where own is set, the hub shows that in place of it: what is
// applied while behind is set comes there when it is not any more.
type cluster struct {
	*state.Store
	tb  testing.TB
	own *state.Store

	mu      sync.Mutex
	behind  bool
	late    []func()
	index   fleet.Index
	broken  bool
	entries map[state.Kind]int
	applied func(state.Command)
}

func (c *cluster) Apply(_ context.Context, cmd state.Command) (state.Result, error) {
	res, err := c.applyEncoded(cmd)
	c.mu.Lock()
	applied := c.applied
	c.mu.Unlock()
	if applied != nil {
		applied(cmd)
	}
	return res, err
}

func (c *cluster) applyEncoded(cmd state.Command) (state.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "no leader")
	}
	// As Raft would: what is applied is what was decoded from the log.
	b, err := state.Encode(cmd)
	if err != nil {
		return state.Result{}, err
	}
	decoded, err := state.Decode(b)
	if err != nil {
		return state.Result{}, err
	}
	c.index++
	c.entries[cmd.Kind()]++
	if index := c.index; c.own != nil {
		c.late = append(c.late, func() { c.own.Apply(index, decoded) })
		c.catchUp()
	}
	return c.Store.Apply(c.index, decoded), nil
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

func (c *cluster) setBroken(broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
}

func (c *cluster) setApplied(f func(state.Command)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = f
}

func (c *cluster) entryCount(k state.Kind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[k]
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

// expectUnchanged fails with what is not as it was.
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
