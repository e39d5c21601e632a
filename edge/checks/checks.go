package checks

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"sync"
	"time"

	"skerry/fleet"
)

// Config of Checks. Node, Mono, Now, Changed and Unhealthy are required.
type Config struct {
	Node func() fleet.Node    // the machine as described last
	Mono func() time.Duration // since boot
	Now  func() time.Time     // wall clock: shown, never decided on
	// Changed is told that how an allocation's checks stand is not what it was. It must
	// not block.
	Changed func(fleet.AllocID)
	// Unhealthy has a task restarted whose check failed as often as its check_restart
	// allows; "" is all tasks of the allocation.
	Unhealthy func(ctx context.Context, id fleet.AllocID, task, why string) error
	Dial      Dial // nil: the system's
	// Has reports whether this machine has an address now. nil: an interface of it does,
	// or, where Dial is not the system's, any.
	Has func(host string) bool
	Log *slog.Logger
}

// Checks runs the checks of all allocations of an edge.
type Checks struct {
	cfg     Config
	running sync.WaitGroup

	mu       sync.Mutex
	followed map[fleet.AllocID]*followedAlloc
}

// followedAlloc is an allocation whose checks are done.
type followedAlloc struct {
	stop    context.CancelFunc
	version fleet.Index // of the allocation
	node    string      // hash of the node's description
	since   map[string]time.Duration
	checks  []check
	results []Result        // of each check
	passing []time.Duration // since when each passes; less than 0: it does not
}

// New makes Checks; nothing is done yet.
func New(cfg Config) (*Checks, error) {
	if cfg.Node == nil || cfg.Mono == nil || cfg.Now == nil || cfg.Changed == nil || cfg.Unhealthy == nil {
		return nil, errors.New("run checks: the configuration is not complete")
	}
	if cfg.Has == nil {
		cfg.Has = onMachine
		if cfg.Dial != nil {
			cfg.Has = func(string) bool { return true }
		}
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Checks{cfg: cfg, followed: map[fleet.AllocID]*followedAlloc{}}, nil
}

// Follow does the checks of an allocation until ctx ends: of its group while all its
// tasks run, of a task while that does. since is when each running task started, in
// time since boot. Where that is not what it was in the last call, or what is checked is
// not, they begin anew.
func (c *Checks) Follow(ctx context.Context, a fleet.Alloc, since map[string]time.Duration) {
	n := c.cfg.Node()
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.followed[a.ID]
	if f != nil && f.version == a.AllocModifyIndex && f.node == n.DescriptionHash && maps.Equal(f.since, since) {
		return
	}
	todo := checksOf(&a, &n, since)
	if f != nil && maps.Equal(f.since, since) && reflect.DeepEqual(f.checks, todo) {
		f.version, f.node = a.AllocModifyIndex, n.DescriptionHash
		return
	}
	if f != nil {
		f.stop()
	}
	ctx, stop := context.WithCancel(ctx)
	now := &followedAlloc{stop: stop, version: a.AllocModifyIndex, node: n.DescriptionHash, since: since, checks: todo}
	for i := range now.checks {
		now.results = append(now.results, now.checks[i].pendingResult(&a))
		now.passing = append(now.passing, -1)
		c.running.Go(func() { c.runCheckLoop(ctx, a.ID, now, i) })
	}
	c.followed[a.ID] = now
}

// Forget ends the checks of an allocation.
func (c *Checks) Forget(id fleet.AllocID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.followed[id]; f != nil {
		f.stop()
		delete(c.followed, id)
	}
}

// Wait returns when all checks have ended.
func (c *Checks) Wait() { c.running.Wait() }

// Results are how the checks of an allocation went last, by their ids.
func (c *Checks) Results(id fleet.AllocID) map[string]Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]Result{}
	if f := c.followed[id]; f != nil {
		for _, r := range f.results {
			all[r.ID] = r
		}
	}
	return all
}

// Passing says since when, in time since boot, all checks of an allocation pass that an
// update waits for; where they do not, it says which, and ok is false.
func (c *Checks) Passing(id fleet.AllocID) (since time.Duration, failing string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.followed[id]
	if f == nil {
		return 0, "checks have not begun", false
	}
	var bad []Result
	for i := range f.checks {
		switch {
		case !f.checks[i].countsForHealth:
		case f.passing[i] < 0:
			bad = append(bad, f.results[i])
		default:
			since = max(since, f.passing[i])
		}
	}
	return since, describe(bad), len(bad) == 0
}

// runCheckLoop does one check, and what follows from it, until ctx ends.
func (c *Checks) runCheckLoop(ctx context.Context, id fleet.AllocID, f *followedAlloc, i int) {
	k := &f.checks[i]
	tick := time.NewTicker(max(k.Interval, time.Second))
	defer tick.Stop()
	failures, restarted, had := 0, false, false
	for {
		dial, has := c.cfg.Dial, k.machineHost == "" || c.cfg.Has(k.machineHost)
		if !has {
			dial = k.loopbackFallback(dial)
		}
		status, output, code := k.probeOnce(ctx, dial)
		if ctx.Err() != nil {
			return
		}
		c.recordResult(id, f, i, Result{Status: status, Output: output, StatusCode: code})
		switch had = had || has; {
		case status == Success || c.cfg.Mono() < k.started+startupGrace(k):
			failures = 0
		case had && !has: // the address went with the link: that says nothing of the task
		default:
			failures++
		}
		if r := k.CheckRestart; r != nil && r.Limit > 0 && failures >= r.Limit && !restarted {
			// Once: the tasks that start then have checks that begin anew.
			restarted = c.restartUnhealthyTask(ctx, id, k)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func startupGrace(k *check) time.Duration {
	if k.CheckRestart == nil {
		return 0
	}
	return k.CheckRestart.Grace
}

// restartUnhealthyTask reports whether the task is being restarted.
func (c *Checks) restartUnhealthyTask(ctx context.Context, id fleet.AllocID, k *check) bool {
	why := `check "` + k.Name + `" is unhealthy`
	c.cfg.Log.Warn("task is restarted", "alloc_id", string(id), "task", k.restartTarget, "reason", why)
	if err := c.cfg.Unhealthy(ctx, id, k.restartTarget, why); err != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("unhealthy task is not restarted", "alloc_id", string(id), "task", k.restartTarget, "error", err)
		return false
	}
	return true
}

// recordResult keeps how a check went, unless it belongs to what has ended meanwhile.
func (c *Checks) recordResult(id fleet.AllocID, f *followedAlloc, i int, went Result) {
	c.mu.Lock()
	if c.followed[id] != f {
		c.mu.Unlock()
		return
	}
	r := &f.results[i]
	changed := r.Status != went.Status
	r.Status, r.Output, r.StatusCode, r.Timestamp = went.Status, went.Output, went.StatusCode, c.cfg.Now().Unix()
	if changed {
		f.passing[i] = -1
		if went.Status == Success {
			f.passing[i] = c.cfg.Mono()
		}
	}
	c.mu.Unlock()
	if changed {
		c.cfg.Changed(id)
	}
}
