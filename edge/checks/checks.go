package checks

import (
	"cmp"
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
	Node func() fleet.Node    // this machine's node, as last read
	Mono func() time.Duration // since boot
	Now  func() time.Time     // wall clock: shown, never used for a decision
	// Changed is called when the status of an allocation's check has changed. It must not block.
	Changed func(fleet.AllocID)
	// Unhealthy restarts a task whose check has failed as often as its check_restart allows; ""
	// restarts all tasks of the allocation.
	Unhealthy func(ctx context.Context, id fleet.AllocID, task, why string) error
	Dial      Dial    // nil: the system's
	Exec      Exec    // runs script checks; nil: they fail
	Journal   Journal // gets a row when the status of a check changes; nil: there are no rows
	// Has reports whether this machine has an address now. nil: whether an interface has it; with a Dial other
	// than the system's, always true.
	Has func(host string) bool
	Log *slog.Logger
}

// Checks runs the checks of all allocations of an edge. Its methods may be called from any goroutine.
type Checks struct {
	cfg     Config
	running sync.WaitGroup

	mu       sync.Mutex
	followed map[fleet.AllocID]*followedAlloc
	devices  map[fleet.AllocID]map[string]devicesState // by task
	rows     map[fleet.AllocID]map[string]*statusRow   // by the id of the check
}

// followedAlloc is an allocation whose checks run. When they begin again, another one replaces it.
type followedAlloc struct {
	stop    context.CancelFunc
	version fleet.Index // of the allocation
	node    string      // hash of this machine's node, whose address is checked
	// since is the start of each running task, since boot, and addresses are those of networks other than the machine's.
	since     map[string]time.Duration
	addresses map[string]string
	checks    []check
	results   []fleet.CheckResult // one for each check
	passing   []time.Duration     // since when each check passes; negative: it does not
}

// New makes Checks. It starts nothing.
func New(cfg Config) (*Checks, error) {
	if cfg.Node == nil || cfg.Mono == nil || cfg.Now == nil || cfg.Changed == nil || cfg.Unhealthy == nil {
		return nil, errors.New("run checks: Node, Mono, Now, Changed and Unhealthy are required")
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
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Checks{cfg: cfg, followed: map[fleet.AllocID]*followedAlloc{}, devices: map[fleet.AllocID]map[string]devicesState{},
		rows: map[fleet.AllocID]map[string]*statusRow{}}, nil
}

// Follow starts the checks of an allocation and returns. They run until ctx ends or Forget: those of its group
// while all its tasks run, those of a task while the task runs. since is the start of each running task, as
// time since boot. If since or the checks differ from the last call, the checks begin again.
func (c *Checks) Follow(ctx context.Context, a fleet.Alloc, since map[string]time.Duration) {
	n := c.cfg.Node()
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.followed[a.ID]
	addresses := addressesOf(&a)
	if f != nil && f.version == a.AllocModifyIndex && f.node == n.DescriptionHash && maps.Equal(f.since, since) && maps.Equal(f.addresses, addresses) {
		return
	}
	todo := checksOf(&a, &n, since)
	if f != nil && maps.Equal(f.since, since) && reflect.DeepEqual(f.checks, todo) {
		f.version, f.node, f.addresses = a.AllocModifyIndex, n.DescriptionHash, addresses
		return
	}
	if f != nil {
		f.stop()
	}
	ctx, stop := context.WithCancel(ctx)
	now := &followedAlloc{stop: stop, version: a.AllocModifyIndex, node: n.DescriptionHash, since: since, addresses: addresses, checks: todo}
	for i := range now.checks {
		now.results = append(now.results, now.checks[i].pendingResult(&a))
		now.passing = append(now.passing, -1)
		if now.checks[i].countsAsPassing(now.results[i].Status) {
			now.passing[i] = c.cfg.Mono()
		}
		c.running.Go(func() { c.runCheckLoop(ctx, a.ID, now, i) })
	}
	c.followed[a.ID] = now
}

// addressesOf returns the address of an allocation in its own network, by "", and those of its tasks in networks of their
// drivers.
func addressesOf(a *fleet.Alloc) map[string]string {
	found := map[string]string{}
	if a.NetworkStatus != nil {
		found[""] = a.NetworkStatus.Address
	}
	for name, s := range a.TaskStates {
		if s.Address != "" {
			found[name] = s.Address
		}
	}
	return found
}

// Forget ends the checks of an allocation and drops their results. It does not wait.
func (c *Checks) Forget(id fleet.AllocID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.followed[id]; f != nil {
		f.stop()
		delete(c.followed, id)
	}
	delete(c.rows, id)
}

// Wait waits until all checks have ended: their contexts have, or Forget was called.
func (c *Checks) Wait() { c.running.Wait() }

// Results returns the newest results of an allocation's checks, by their ids, with those of devices that are or were
// missing; none if its checks do not run.
func (c *Checks) Results(id fleet.AllocID) map[string]fleet.CheckResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]fleet.CheckResult{}
	if f := c.followed[id]; f != nil {
		for _, r := range f.results {
			all[r.ID] = r
		}
	}
	for _, s := range c.devices[id] {
		all[s.result.ID] = s.result
	}
	return all
}

// Passing returns since when, as time since boot, all checks that count for health pass. If ok is
// false, failing names one that does not.
func (c *Checks) Passing(id fleet.AllocID) (since time.Duration, failing string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.followed[id]
	if f == nil {
		return 0, "checks have not begun", false
	}
	var bad []fleet.CheckResult
	for i := range f.checks {
		switch {
		case !f.checks[i].countsForHealth:
		case f.passing[i] < 0:
			bad = append(bad, f.results[i])
		default:
			since = max(since, f.passing[i])
		}
	}
	return since, firstFailure(bad), len(bad) == 0
}

// runCheckLoop runs the i-th check of f at once and then once per interval, stores its results and journals changes of its
// status, until ctx ends. When the check has failed as often as its check_restart allows, it restarts the task once.
func (c *Checks) runCheckLoop(ctx context.Context, id fleet.AllocID, f *followedAlloc, i int) {
	k := &f.checks[i]
	tick := time.NewTicker(max(k.Interval, time.Second))
	defer tick.Stop()
	failures, restarted, had := 0, false, false
	count, shown := counter{}, initialStatuses[k.InitialStatus]
	c.restoreStatusRow(ctx, id, f, k)
	for {
		dial, has := c.cfg.Dial, k.machineHost == "" || c.cfg.Has(k.machineHost)
		if !has {
			dial = k.loopbackFallback(dial)
		}
		status, output, code := k.probeOnce(ctx, dial, c.cfg.Exec)
		if ctx.Err() != nil {
			return
		}
		shown = count.nextStatus(k, shown, status)
		c.recordResult(id, f, i, fleet.CheckResult{Status: shown, Output: output, StatusCode: code})
		c.writeStatusRow(ctx, id, f, k, shown, output)
		switch had = had || has; {
		case !k.countsAsFailure(shown) || c.cfg.Mono() < k.started+startupGrace(k):
			failures = 0
		case had && !has: // the address went with the link, which says nothing about the task
		default:
			failures++
		}
		if r := k.CheckRestart; r != nil && r.Limit > 0 && failures >= r.Limit && !restarted {
			// Once only: the restarted tasks get checks that begin again.
			restarted = c.restartUnhealthyTask(ctx, id, k)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// startupGrace returns the time after the start of a task in which failures of its check do not count for a
// restart.
func startupGrace(k *check) time.Duration {
	if k.CheckRestart == nil {
		return 0
	}
	return k.CheckRestart.Grace
}

// restartUnhealthyTask asks for a restart of the check's task, and reports whether that is accepted. It logs an
// error.
func (c *Checks) restartUnhealthyTask(ctx context.Context, id fleet.AllocID, k *check) bool {
	why := `check "` + k.Name + `" is unhealthy`
	c.cfg.Log.Warn("restarting unhealthy task", "alloc_id", string(id), "task", k.restartTarget, "reason", why)
	if err := c.cfg.Unhealthy(ctx, id, k.restartTarget, why); err != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("unhealthy task not restarted", "alloc_id", string(id), "task", k.restartTarget, "error", err)
		return false
	}
	return true
}

// recordResult stores the result of the i-th check, unless the checks began again meanwhile. If the status
// changed, it calls Config.Changed.
func (c *Checks) recordResult(id fleet.AllocID, f *followedAlloc, i int, went fleet.CheckResult) {
	c.mu.Lock()
	if c.followed[id] != f {
		c.mu.Unlock()
		return
	}
	r := &f.results[i]
	changed := r.Status != went.Status
	r.Status, r.Output, r.StatusCode, r.Timestamp = went.Status, went.Output, went.StatusCode, c.cfg.Now().Unix()
	if changed {
		switch {
		case !f.checks[i].countsAsPassing(went.Status):
			f.passing[i] = -1
		case f.passing[i] < 0:
			f.passing[i] = c.cfg.Mono()
		}
	}
	c.mu.Unlock()
	if changed {
		c.cfg.Changed(id)
	}
}
