package reconcile_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/reconcile"
)

// TestSystemProperties lets a cluster with a system or sysbatch job live: at any
// time a node has one allocation at most that is to run, nothing is ever placed
// on a node that takes no new work, and once decided things are quiet.
func TestSystemProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &modelTest{t: t, s: &script{cluster: newSimCluster(), versions: map[uint64]*fleet.Job{}}}
		l.mustRunCommand("job", fmt.Sprintf("type=%s %s %s",
			rapid.SampledFrom([]string{"system", "sysbatch"}).Draw(t, "type"),
			rapid.SampledFrom([]string{"touch=0", "lost_after=10m", "disconnect", "replace=false"}).Draw(t, "disconnect"),
			rapid.SampledFrom([]string{"touch=1", "max_parallel=1", "max_parallel=2"}).Draw(t, "update")))
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			l.mustRunCommand("node", fmt.Sprintf("n%d ready pool=%s", i, rapid.SampledFrom([]string{"default", "classic"}).Draw(t, "pool")))
		}
		l.mustRunCommand("pool", "classic nomad")
		l.s.cluster.job.NodePool = fleet.AllPools
		t.Repeat(map[string]func(*rapid.T){
			"":            l.checkSystem,
			"link":        l.changeNodeStatus,
			"task":        l.changeTaskStatus,
			"health":      l.reportHealth,
			"job":         l.drawJobChange,
			"stop":        l.stopAlloc,
			"time":        l.advanceClockSystem,
			"eligibility": l.drawEligibility,
			"respond":     l.reportReadyNodes,
		})
	})
}

func (l *modelTest) drawEligibility(t *rapid.T) {
	w := l.s.cluster
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(w.nodes))).Draw(t, "node")
	n := *w.nodes[id]
	n.SchedulingEligibility = rapid.SampledFrom([]string{fleet.NodeEligible, fleet.NodeIneligible}).Draw(t, "eligibility")
	w.nodes[id] = &n
}

func (l *modelTest) advanceClockSystem(t *rapid.T) {
	w := l.s.cluster
	w.now = w.now.Add(rapid.SampledFrom(steps).Draw(t, "time"))
	for _, id := range slices.Sorted(maps.Keys(w.evals)) {
		if at, ok := w.evals[id]; ok && !at.After(w.now) {
			l.decideSystem(id)
		}
	}
}

func (l *modelTest) checkSystem(*rapid.T) { l.decideSystem("e") }

func (l *modelTest) decideSystem(eval fleet.EvalID) {
	w := l.s.cluster
	in := w.decisionInput(eval)
	old := countStarting(in)
	out := reconcile.DecideSystem(in)
	l.checkBuckets(in, out)
	l.checkEnds(out)
	targets := map[fleet.NodeID]bool{}
	for _, n := range in.Targets {
		targets[n.ID] = true
	}
	for _, p := range out.Place {
		if !targets[p.Node] {
			l.t.Fatalf("placed on %s, which takes no new work:\n%s", p.Node, out.Describe())
		}
	}
	stopped := 0 // of what runs: what has ended does not wait for its turn
	for _, c := range out.Stops {
		if c.Destructive && !c.Alloc.ClientTerminal() {
			stopped++
		}
	}
	if g := w.job.TaskGroups[0]; w.job.Type == fleet.JobTypeSystem && g.Update != nil && stopped > max(0, g.Update.MaxParallel-old) {
		l.t.Fatalf("more than max_parallel %d at once, %d starting:\n%s", g.Update.MaxParallel, old, out.Describe())
	}
	w.applyOutput(eval, out)
	onNode := map[fleet.NodeID]int{}
	for _, a := range w.allocs {
		if a.DesiredStatus == fleet.DesiredRun && !a.ClientTerminal() {
			if onNode[a.NodeID]++; onNode[a.NodeID] > 1 {
				l.t.Fatalf("two on node %s:\n%s", a.NodeID, out.Describe())
			}
		}
	}
	for _, n := range in.Targets {
		if !w.job.Stopped() && w.job.Type == fleet.JobTypeSystem && onNode[n.ID] == 0 && !l.isRestartPending(n.ID) {
			l.t.Fatalf("none on node %s:\n%s", n.ID, out.Describe())
		}
	}
	seq := w.evalSeq
	next := reconcile.DecideSystem(w.decisionInput("quiet"))
	w.evalSeq = seq
	if len(next.Place)+len(next.Stops)+len(next.Retired)+countNotStopped(next.Lost, out.Stops)+len(next.Unknown)+len(next.Reconnects)+len(next.InPlace)+len(next.FollowUps) > 0 {
		l.t.Fatalf("not quiet:\n%s\nafter\n%s", next.Describe(), out.Describe())
	}
}

// isRestartPending: something on the node ended badly, and is started anew later.
func (l *modelTest) isRestartPending(id fleet.NodeID) bool {
	for _, a := range l.s.cluster.onNode(id) {
		if _, ok := l.s.cluster.evals[a.FollowupEvalID]; ok && a.DesiredStatus == fleet.DesiredRun {
			return true
		}
	}
	return false
}

// countStarting counts what of the newest version has not started yet.
func countStarting(in reconcile.Input) int {
	n := 0
	for _, a := range in.Allocs {
		if !in.Job.Stopped() && a.JobHash == in.Job.SpecHash && a.DesiredStatus == fleet.DesiredRun && a.ClientStatus == fleet.ClientPending &&
			!a.DesiredTransition.Migrate {
			if in.Nodes[a.NodeID].Status == fleet.NodeReady {
				n++
			}
		}
	}
	return n
}
