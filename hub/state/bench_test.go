package state_test

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// benchFleet is a store with nodes, a job, and no checks: for measuring.
type benchFleet struct {
	b     *testing.B
	store *state.Store
	index fleet.Index
	nodes []fleet.NodeID
	job   *fleet.Job
	rows  map[fleet.NodeID]fleet.Seq
	chain map[fleet.NodeID][]byte
	seq   int
}

func newBenchFleet(b *testing.B, nodes int) *benchFleet {
	c := &benchFleet{b: b, store: state.New(), rows: map[fleet.NodeID]fleet.Seq{}, chain: map[fleet.NodeID][]byte{}}
	for i := range nodes {
		id := fleet.NodeID(fleet.DeriveUUID("crowd", fmt.Sprint(i)))
		n := description(id, fmt.Sprintf("n%d", i))
		c.applyDecoded(state.SessionOpen{NodeID: id, Session: 1, Node: &n, Now: start.UnixNano()})
		c.nodes = append(c.nodes, id)
	}
	c.registerBenchJob()
	return c
}

// registerBenchJob stores a new job for the next placements.
func (c *benchFleet) registerBenchJob() {
	c.seq++
	id := fleet.JobID(fmt.Sprintf("shop-%d", c.seq))
	c.applyDecoded(state.JobRegister{Job: job(id, fleet.JobTypeBatch, 1), Now: start.UnixNano()})
	c.job, _ = c.store.View().Job(fleet.DefaultNamespace, id)
}

// applyDecoded applies a command that went through the encoding of the log, so that state and command share no memory.
func (c *benchFleet) applyDecoded(cmd state.Command) state.Result {
	raw := mustEncode(c.b, cmd)
	decoded, err := state.Decode(raw)
	if err != nil {
		c.b.Fatal(err)
	}
	c.index++
	res := c.store.Apply(c.index, decoded)
	if res.Err != nil {
		c.b.Fatal(res.Err)
	}
	return res
}

// planPlacements makes n placements spread over the nodes.
func (c *benchFleet) planPlacements(n int) state.Plan {
	var allocs []fleet.Alloc
	eval := fleet.EvalID(fleet.DeriveUUID("eval", fmt.Sprint(c.seq)))
	for range n {
		c.seq++
		allocs = append(allocs, fleet.Alloc{
			ID: fleet.AllocID(fleet.DeriveUUID("alloc", fmt.Sprint(c.seq))), Namespace: fleet.DefaultNamespace, EvalID: eval,
			Name: fmt.Sprintf("%s.web[%d]", c.job.ID, c.seq), NodeID: c.nodes[c.seq%len(c.nodes)], NodeName: "n", JobID: c.job.ID,
			JobHash: c.job.SpecHash, JobVersion: c.job.Version, TaskGroup: "web", Score: 0.5,
			AllocatedResources: fleet.Resources{CPU: 1, MemoryMB: 1}, DesiredStatus: fleet.DesiredRun,
			DesiredDescription: "placed: the group has too few", Metrics: &fleet.AllocMetric{NodesEvaluated: len(c.nodes)},
		})
	}
	return state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(allocs...)}, EvalID: eval, Now: start.UnixNano()}
}

// statusUpdates reports a status of every allocation of a plan.
func (c *benchFleet) statusUpdates(plan state.Plan, status, event string) state.AllocUpdates {
	cmd := state.AllocUpdates{EvalSeed: "s", Now: start.UnixNano()}
	for id, list := range plan.Result.NodeAllocation {
		batch := state.NodeRows{NodeID: id, Epoch: 1, First: c.rows[id] + 1, Prev: c.chain[id]}
		for _, a := range list {
			tr := statusTransition(a.ID, status)
			tr.Event.Type, tr.Event.DisplayMessage = event, "Task "+event+" by Client"
			c.rows[id]++
			tr.Seq, tr.BootID = c.rows[id], "11111111-2222-4333-8444-555555555555"
			raw, err := syncproto.EncodeRow(tr)
			if err != nil {
				c.b.Fatal(err)
			}
			c.chain[id] = syncproto.ChainHash(c.chain[id], raw)
			batch.Rows = append(batch.Rows, raw)
		}
		cmd.Batches = append(cmd.Batches, batch)
	}
	return cmd
}

// BenchmarkEncode encodes an entry of 1,000 placements.
func BenchmarkEncode(b *testing.B) {
	c := newBenchFleet(b, 500)
	plan := c.planPlacements(1000)
	for b.Loop() {
		mustEncode(b, plan)
	}
}

// BenchmarkPlan applies an entry of 1,000 placements to a cluster of 500 nodes.
func BenchmarkPlan(b *testing.B) {
	c := newBenchFleet(b, 500)
	for b.Loop() {
		b.StopTimer()
		c.registerBenchJob()
		raw := mustEncode(b, c.planPlacements(1000))
		b.StartTimer()
		cmd, err := state.Decode(raw)
		if err != nil {
			b.Fatal(err)
		}
		c.index++
		c.store.Apply(c.index, cmd)
		b.ReportMetric(float64(len(raw))/1000, "entry-B/alloc")
	}
}

// BenchmarkAllocsByNode lists the 20 allocations of a node.
func BenchmarkAllocsByNode(b *testing.B) {
	c := newBenchFleet(b, 50)
	c.applyDecoded(c.planPlacements(1000))
	v := c.store.View()
	for b.Loop() {
		n := 0
		for range v.AllocsByNode(c.nodes[0]) {
			n++
		}
		if n != 20 {
			b.Fatalf("%d allocations", n)
		}
	}
}

// BenchmarkUpdates applies an entry of 1,000 rows of 500 nodes.
func BenchmarkUpdates(b *testing.B) {
	c := newBenchFleet(b, 500)
	plan := c.planPlacements(1000)
	c.applyDecoded(plan)
	for b.Loop() {
		b.StopTimer()
		raw := mustEncode(b, c.statusUpdates(plan, fleet.ClientRunning, fleet.TaskStarted))
		b.StartTimer()
		cmd, err := state.Decode(raw)
		if err != nil {
			b.Fatal(err)
		}
		c.index++
		c.store.Apply(c.index, cmd)
		b.ReportMetric(float64(len(raw))/1000, "entry-B/row")
	}
}

// BenchmarkReplay applies an entry of 1,000 rows of 10 nodes that come back: of each
// node 10 rows of each of 10 allocations.
func BenchmarkReplay(b *testing.B) {
	c := newBenchFleet(b, 10)
	plan := c.planPlacements(100)
	c.applyDecoded(plan)
	for b.Loop() {
		b.StopTimer()
		var cmd state.AllocUpdates
		for turn := range 10 {
			updates := c.statusUpdates(plan, fleet.ClientRunning, fleet.TaskStarted)
			if turn == 0 {
				cmd = updates
				continue
			}
			for _, more := range updates.Batches {
				i := slices.IndexFunc(cmd.Batches, func(b state.NodeRows) bool { return b.NodeID == more.NodeID })
				cmd.Batches[i].Rows = append(cmd.Batches[i].Rows, more.Rows...)
			}
		}
		raw := mustEncode(b, cmd)
		b.StartTimer()
		decoded, err := state.Decode(raw)
		if err != nil {
			b.Fatal(err)
		}
		c.index++
		if res := c.store.Apply(c.index, decoded); res.Updates[0].Code != "" {
			b.Fatal(res.Updates[0].Message)
		}
	}
}

// BenchmarkLives is what 40,000 allocations that were placed, ran and ended leave
// behind: the heap and the snapshot.
func BenchmarkLives(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := newBenchFleet(b, 500)
		for i := range 40 {
			if i%10 == 0 {
				c.registerBenchJob()
			}
			plan := c.planPlacements(1000)
			c.applyDecoded(plan)
			for _, step := range []struct{ status, event string }{
				{fleet.ClientPending, fleet.TaskReceived}, {fleet.ClientPending, fleet.TaskSetup},
				{fleet.ClientRunning, fleet.TaskStarted}, {fleet.ClientComplete, fleet.TaskTerminated},
			} {
				c.applyDecoded(c.statusUpdates(plan, step.status, step.event))
			}
		}
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "heap-MiB")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/40_000, "heap-B/alloc")
		b.ReportMetric(float64(len(mustPersist(b, c.store)))/(1<<20), "snapshot-MiB")
		if err := c.store.View().Check(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkDigest(b *testing.B) {
	v := furnished(b).store.View()
	for b.Loop() {
		v.Digest()
	}
}

// BenchmarkSnapshot writes a state of 500 nodes and 2,000 allocations whose window of
// events is full.
func BenchmarkSnapshot(b *testing.B) {
	c := newBenchFleet(b, 500)
	plan := c.planPlacements(1000)
	c.applyDecoded(plan)
	c.applyDecoded(c.planPlacements(1000))
	for range state.MaxEvents/1000 + 1 {
		c.applyDecoded(c.statusUpdates(plan, fleet.ClientRunning, fleet.TaskStarted))
	}
	v := c.store.View()
	for b.Loop() {
		if err := v.Persist(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRegister applies entries that change a job of 40 groups.
func BenchmarkRegister(b *testing.B) {
	c := newBenchFleet(b, 1)
	big := *c.job
	big.TaskGroups = slices.Repeat(big.TaskGroups, 40)
	for b.Loop() {
		c.index++
		next := big
		next.Meta = map[string]string{"turn": fmt.Sprint(c.index)}
		if res := c.store.Apply(c.index, state.JobRegister{Job: &next, Now: start.UnixNano()}); res.Err != nil {
			b.Fatal(res.Err)
		}
	}
}

// BenchmarkEvaluationEnds applies the end of an evaluation of a job that has another open one, and keeps many.
func BenchmarkEvaluationEnds(b *testing.B) {
	for _, kept := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("kept=%d", kept), func(b *testing.B) {
			c := newBenchFleet(b, 1)
			evaluation := func(i int, status string) fleet.Evaluation {
				return fleet.Evaluation{
					ID: fleet.EvalID(fleet.DeriveUUID("ended", fmt.Sprint(i))), Namespace: fleet.DefaultNamespace, JobID: c.job.ID,
					Type: fleet.JobTypeBatch, TriggeredBy: fleet.TriggerAllocStop, Status: status,
				}
			}
			var all []fleet.Evaluation
			for i := range kept {
				all = append(all, evaluation(i, fleet.EvalComplete))
			}
			c.applyDecoded(state.Evals{Evals: append(all, evaluation(kept, fleet.EvalPending)), Now: start.UnixNano()})
			for i := kept + 1; b.Loop(); i++ {
				c.index++
				end := state.Evals{Evals: []fleet.Evaluation{evaluation(i, fleet.EvalComplete)}, Now: start.UnixNano()}
				if res := c.store.Apply(c.index, end); res.Err != nil {
					b.Fatal(res.Err)
				}
			}
		})
	}
}
