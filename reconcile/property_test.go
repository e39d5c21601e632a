package reconcile_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/reconcile"
)

// TestProperties lets a small cluster live: links break and heal, tasks fail and
// complete in and out of sight, the job changes, time passes. After every
// decision the invariants are checked.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &modelTest{t: t, s: &script{cluster: newSimCluster(), versions: map[uint64]*fleet.Job{}}}
		l.drawJobAndNodes()
		t.Repeat(map[string]func(*rapid.T){
			"":        l.decideAfterStep,
			"link":    l.changeNodeStatus,
			"task":    l.changeTaskStatus,
			"health":  l.reportHealth,
			"job":     l.drawJobChange,
			"stop":    l.stopAlloc,
			"time":    l.advanceClock,
			"room":    l.drawCapacity,
			"decide":  func(*rapid.T) { l.decideAndCheck("e") },
			"respond": l.reportReadyNodes,
		})
	})
}

// modelTest drives a world by chance.
type modelTest struct {
	t *rapid.T
	s *script
	// replaces: the job's rules let a replacement stand beside an original.
	replaces bool
}

func (l *modelTest) drawJobAndNodes() {
	kinds := []string{"service", "batch"}
	disconnects := []string{
		"touch=0", "lost_after=10m", "lost_after=10m replace=false", "disconnect", "replace=false",
		"stop_on_client_after=1m", "stop_on_client_after=1m replace=false",
	}
	strategies := []string{"keep_original", "keep_replacement", "best_score", "longest_running"}
	reschedules := []string{
		"none", "unlimited/0s/0s", "unlimited/0s/30s/exponential/5m", "2/10m/5s", "3/24h/5s/fibonacci/1m",
	}
	disconnect := rapid.SampledFrom(disconnects).Draw(l.t, "disconnect")
	line := fmt.Sprintf("type=%s count=%d reschedule=%s %s",
		rapid.SampledFrom(kinds).Draw(l.t, "type"), rapid.IntRange(0, 5).Draw(l.t, "count"),
		rapid.SampledFrom(reschedules).Draw(l.t, "reschedule"), disconnect)
	line += rapid.SampledFrom([]string{"", " max_parallel=1", " max_parallel=2"}).Draw(l.t, "update")
	if !strings.Contains(line, "touch") {
		line += " reconcile=" + rapid.SampledFrom(strategies).Draw(l.t, "reconcile")
	}
	l.mustRunCommand("job", line)
	l.replaces = disconnect == "lost_after=10m" || disconnect == "disconnect"
	for i := range rapid.IntRange(1, 4).Draw(l.t, "nodes") {
		pool := rapid.SampledFrom([]string{"default", "classic"}).Draw(l.t, "pool")
		l.mustRunCommand("node", fmt.Sprintf("n%d ready pool=%s", i, pool))
	}
	l.mustRunCommand("pool", "classic nomad")
}

func (l *modelTest) mustRunCommand(verb, args string) {
	var out strings.Builder
	if err := l.s.executeCommand(verb, strings.Fields(args), &out); err != nil {
		l.t.Fatalf("%s %s: %v", verb, args, err)
	}
}

// changeNodeStatus moves a node along the edges of its state machine.
func (l *modelTest) changeNodeStatus(t *rapid.T) {
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(l.s.cluster.nodes))).Draw(t, "node")
	next := map[fleet.NodeStatus][]fleet.NodeStatus{
		fleet.NodeReady:        {fleet.NodeDisconnected, fleet.NodeDown},
		fleet.NodeDisconnected: {fleet.NodeDown, fleet.NodeInitializing},
		fleet.NodeDown:         {fleet.NodeInitializing},
		fleet.NodeInitializing: {fleet.NodeReady, fleet.NodeReady, fleet.NodeDisconnected, fleet.NodeDown},
	}
	l.s.cluster.setNode(id, rapid.SampledFrom(next[l.s.cluster.nodes[id].Status]).Draw(t, "status"))
}

// changeTaskStatus lets something happen to an allocation on its edge, in sight or not.
func (l *modelTest) changeTaskStatus(t *rapid.T) {
	w := l.s.cluster
	id, ok := l.drawMatchingAlloc(t, func(a *fleet.Alloc) bool { return !reportsEnd(a) })
	if !ok {
		return
	}
	w.updateAlloc(id, func(a *fleet.Alloc) {
		switch a.ReportedStatus {
		case fleet.ClientPending:
			a.ReportedStatus = rapid.SampledFrom([]string{fleet.ClientRunning, fleet.ClientRunning, fleet.ClientFailed}).Draw(t, "to")
		case fleet.ClientRunning:
			a.ReportedStatus = rapid.SampledFrom([]string{fleet.ClientFailed, fleet.ClientComplete}).Draw(t, "to")
		}
		a.Score = rapid.Float64Range(0, 1).Draw(t, "score")
	})
	if node := w.nodes[w.allocs[id].NodeID]; node.Status == fleet.NodeReady {
		w.syncNodeAllocs(node.ID)
	}
}

// reportHealth lets an edge in sight say whether something of a deployment is healthy.
func (l *modelTest) reportHealth(t *rapid.T) {
	w := l.s.cluster
	id, ok := l.drawMatchingAlloc(t, func(a *fleet.Alloc) bool {
		return a.DeploymentID != "" && a.DesiredStatus == fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning &&
			w.nodes[a.NodeID].Status == fleet.NodeReady && (a.DeploymentStatus == nil || a.DeploymentStatus.Healthy == nil)
	})
	if !ok {
		return
	}
	is := rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "healthy")
	w.updateAlloc(id, func(a *fleet.Alloc) {
		a.DeploymentStatus = &fleet.AllocDeployment{Healthy: &is, Canary: a.DeploymentStatus.IsCanary()}
	})
}

// drawMatchingAlloc picks an allocation.
func (l *modelTest) drawMatchingAlloc(t *rapid.T, ok func(*fleet.Alloc) bool) (fleet.AllocID, bool) {
	var ids []fleet.AllocID
	for _, id := range slices.Sorted(maps.Keys(l.s.cluster.allocs)) {
		if ok(l.s.cluster.allocs[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return "", false
	}
	return rapid.SampledFrom(ids).Draw(t, "alloc"), true
}

func (l *modelTest) drawJobChange(t *rapid.T) {
	l.mustRunCommand("job", rapid.SampledFrom([]string{
		"count=0", "count=1", "count=3", "count=5", "env=1", "env=2", "touch=1", "touch=2", "stopped", "started", "started", "count=4 started",
	}).Draw(t, "change"))
}

func (l *modelTest) stopAlloc(t *rapid.T) {
	if id, ok := l.drawMatchingAlloc(t, func(a *fleet.Alloc) bool { return !a.Terminal() }); ok {
		l.s.cluster.updateAlloc(id, func(a *fleet.Alloc) { a.DesiredTransition.Migrate = true })
	}
}

// steps are how much time may pass at once.
var steps = []time.Duration{time.Second, 5 * time.Second, 31 * time.Second, 5 * time.Minute, time.Hour}

func (l *modelTest) advanceClock(t *rapid.T) {
	d := rapid.SampledFrom(steps).Draw(t, "time")
	w := l.s.cluster
	w.now = w.now.Add(d)
	for _, id := range slices.Sorted(maps.Keys(w.evals)) {
		if at, ok := w.evals[id]; ok && !at.After(w.now) {
			l.decideAndCheck(id)
		}
	}
}

func (l *modelTest) drawCapacity(t *rapid.T) { l.s.cluster.full = rapid.Bool().Draw(t, "full") }

// reportReadyNodes lets every edge in sight do what it was told.
func (l *modelTest) reportReadyNodes(*rapid.T) {
	for id, n := range l.s.cluster.nodes {
		if n.Status == fleet.NodeReady {
			l.s.cluster.syncNodeAllocs(id)
		}
	}
}

// decideAfterStep decides, so that every step is followed by a decision.
func (l *modelTest) decideAfterStep(*rapid.T) { l.decideAndCheck("e") }

// decideAndCheck decides, checks the output, lets it happen, and checks what follows.
func (l *modelTest) decideAndCheck(eval fleet.EvalID) {
	w := l.s.cluster
	seq := w.evalSeq
	in := w.decisionInput(eval)
	out := reconcile.Decide(in)

	// The same input in another order gives the same output.
	w.evalSeq = seq
	slices.Reverse(in.Allocs)
	again := reconcile.Decide(in)
	if out.Describe() != again.Describe() {
		l.t.Fatalf("not deterministic:\n%s\n%s", out.Describe(), again.Describe())
	}
	l.checkOutput(in, out)
	l.checkEnds(out)
	w.applyOutput(eval, out)
	l.checkCluster(out)
	l.checkNothingLeft(out)
}

// checkOutput: buckets, sums, reasons, bounds.
func (l *modelTest) checkOutput(in reconcile.Input, out reconcile.Output) {
	l.checkBuckets(in, out)
	for name, g := range out.Groups {
		if g.Place+g.Destructive > g.Desired {
			l.t.Fatalf("%d placements of group %s, which wants %d:\n%s", g.Place+g.Destructive, name, g.Desired, out.Describe())
		}
	}
	for _, c := range out.Lost {
		if waitedFor(nodeOfAlloc(in, c.Alloc), c.Alloc) {
			l.t.Fatalf("%s is waited for, and was given up: %s", c.Alloc.ID, c.Reason)
		}
	}
}

// checkBuckets: what holds for every type of job.
func (l *modelTest) checkBuckets(in reconcile.Input, out reconcile.Output) {
	seen := map[fleet.AllocID]int{}
	sums := map[string]int{}
	for _, changes := range [][]reconcile.Change{out.Stops, out.Retired, out.Lost, out.Unknown, out.Reconnects, out.InPlace, out.Kept} {
		for _, c := range changes {
			seen[c.Alloc.ID]++
			sums[c.Alloc.TaskGroup]++
			if c.Reason == "" {
				l.t.Fatalf("no reason for %s:\n%s", c.Alloc.ID, out.Describe())
			}
		}
	}
	for _, a := range in.Allocs {
		if seen[a.ID] != 1 {
			l.t.Fatalf("%s is in %d buckets:\n%s", a.ID, seen[a.ID], out.Describe())
		}
	}
	places := map[string]int{}
	for _, p := range out.Place {
		places[p.Group]++
		if p.Reason == "" {
			l.t.Fatalf("no reason for a placement of %s", p.Name)
		}
	}
	for name, g := range out.Groups {
		if g.Place+g.Destructive+g.Canary != places[name] ||
			g.Stop+g.Destructive+g.Lost+g.Unknown+g.Reconnect+g.InPlace+g.Ignore != sums[name] {
			l.t.Fatalf("group %s does not add up: %s", name, g)
		}
	}
	for _, e := range out.FollowUps {
		if !e.WaitUntil.After(in.Now) || e.StatusDescription == "" || e.TriggeredBy == "" {
			l.t.Fatalf("a follow-up in the past, or without a reason: %+v", e)
		}
	}
}

// nodeOfAlloc returns the node of an allocation, or nil.
func nodeOfAlloc(in reconcile.Input, a *fleet.Alloc) *fleet.Node { return in.Nodes[a.NodeID] }

// waitedFor: our default, without a block in a pool that keeps, never gives up.
func waitedFor(n *fleet.Node, a *fleet.Alloc) bool {
	g := a.Group()
	return n != nil && n.NodePool == "default" && g != nil && g.Disconnect == nil && a.DesiredStatus == fleet.DesiredRun
}

// checkCluster: what is true after the decision.
func (l *modelTest) checkCluster(out reconcile.Output) {
	w := l.s.cluster
	inSight, outOfSight, names := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, a := range w.allocs {
		if a.DesiredStatus != fleet.DesiredRun || a.ClientTerminal() {
			continue
		}
		names[a.Name] = true
		switch w.nodes[a.NodeID].Status {
		case fleet.NodeReady:
			inSight[a.Name]++
			if a.NeedsToReconnect() {
				l.t.Fatalf("%s is back, and not settled:\n%s", a.ID, out.Describe())
			}
		default:
			outOfSight[a.Name]++
		}
	}
	want := 0
	if !w.job.Stopped() {
		want = w.job.TaskGroups[0].Count
	}
	if len(names) > want {
		l.t.Fatalf("%d names live, %d are wanted:\n%s", len(names), want, out.Describe())
	}
	for name, n := range inSight {
		if n > 1 {
			l.t.Fatalf("%d live allocations of %s in sight:\n%s", n, name, out.Describe())
		}
		if outOfSight[name] > 0 && !l.replaces {
			l.t.Fatalf("%s is in sight and out of sight, and is not to be replaced:\n%s", name, out.Describe())
		}
	}
	l.checkWindows(out)
}

// checkWindows: for every window that will end there is an evaluation.
func (l *modelTest) checkWindows(out reconcile.Output) {
	w := l.s.cluster
	for _, a := range w.allocs {
		g := a.Group()
		if a.ClientStatus != fleet.ClientUnknown || a.DesiredStatus != fleet.DesiredRun || g.Disconnect == nil || g.Disconnect.LostAfter == nil {
			continue
		}
		if n := w.nodes[a.NodeID]; n.Status != fleet.NodeDisconnected && n.Status != fleet.NodeDown {
			continue
		}
		end := a.LastUnknown().Add(*g.Disconnect.LostAfter)
		at, ok := w.evals[a.FollowupEvalID]
		if !ok || at.Before(end) || at.Sub(end) > 5*time.Second {
			l.t.Fatalf("the window of %s ends at %s, its evaluation %s comes at %s:\n%s", a.ID, end, a.FollowupEvalID, at, out.Describe())
		}
	}
}

// checkNothingLeft: with the decision made true there is nothing left to decide. Where
// not all could be placed, what is left may look different; but no return is
// settled twice.
func (l *modelTest) checkNothingLeft(out reconcile.Output) {
	w := l.s.cluster
	seq := w.evalSeq
	next := reconcile.Decide(w.decisionInput("quiet"))
	w.evalSeq = seq
	if len(next.Reconnects) > 0 {
		l.t.Fatalf("settled twice:\n%s\nafter\n%s", next.Describe(), out.Describe())
	}
	changed := len(next.Place) + len(next.Stops) + len(next.Retired) + countNotStopped(next.Lost, out.Stops) + len(next.Unknown) + len(next.InPlace) + len(next.FollowUps) + len(next.Cancel)
	if changed > 0 && (len(out.Place) == 0 || l.canPlaceAllocs()) {
		l.t.Fatalf("not quiet:\n%s\nafter\n%s", next.Describe(), out.Describe())
	}
}

// countNotStopped counts what is given up and was not told to stop just before: under Nomad's
// rules a stop on a node that is down keeps the client status, and the next decision says
// lost.
func countNotStopped(given, stops []reconcile.Change) int {
	n := 0
	for _, c := range given {
		if !slices.ContainsFunc(stops, func(s reconcile.Change) bool { return s.Alloc.ID == c.Alloc.ID }) {
			n++
		}
	}
	return n
}

// canPlaceAllocs: what was to be placed was placed.
func (l *modelTest) canPlaceAllocs() bool {
	for _, n := range l.s.cluster.nodes {
		if n.Schedulable() && !l.s.cluster.full {
			return true
		}
	}
	return false
}
