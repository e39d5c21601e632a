package state_test

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// largeFleet is a state with a job of many allocations, each running, on nodes.
type largeFleet struct {
	testing.TB
	store  *state.Store
	index  fleet.Index
	nodes  []fleet.NodeID
	allocs []fleet.AllocID
	job    *fleet.Job
}

// applyDecoded takes a command through the log's encoding.
func (f *largeFleet) applyDecoded(c state.Command) state.Result {
	f.Helper()
	raw, err := state.Encode(c)
	if err != nil {
		f.Fatalf("encode %T: %v", c, err)
	}
	decoded, err := state.Decode(raw)
	if err != nil {
		f.Fatalf("decode %T: %v", c, err)
	}
	f.index++
	res := f.store.Apply(f.index, decoded)
	if res.Err != nil {
		f.Fatalf("apply %T: %v", c, res.Err)
	}
	return res
}

func newLargeFleet(t testing.TB, nodes, allocs int) *largeFleet {
	f := &largeFleet{TB: t, store: state.New()}
	f.applyDecoded(state.ClusterInit{Cluster: state.Cluster{ID: "c"}})
	j := job("shop", fleet.JobTypeService, allocs)
	f.applyDecoded(state.JobRegister{Job: j, Eval: &fleet.Evaluation{ID: "e", Status: fleet.EvalPending}, Now: 1})
	f.job, _ = f.store.View().Job(fleet.DefaultNamespace, "shop")
	for i := range nodes {
		name := fmt.Sprint("n", i)
		id := fleet.NodeID(fleet.DeriveUUID("node", name))
		n := description(id, name)
		n.Datacenter = name // so that each has a class of its own
		f.applyDecoded(state.SessionOpen{NodeID: id, Session: 1, Instance: "i", BootID: "b", Hub: "h", Node: &n, EvalSeed: name, Now: 1})
		f.nodes = append(f.nodes, id)
	}
	plan := state.Plan{EvalID: "e", Now: 1, NewDeployment: &fleet.Deployment{
		ID: "d", Namespace: fleet.DefaultNamespace, JobID: "shop", JobCreateIndex: f.job.CreateIndex, JobVersion: f.job.Version,
		Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"web": {DesiredTotal: allocs, DesiredCanaries: allocs}},
	}}
	seq, chain := make([]fleet.Seq, nodes), make([][]byte, nodes)
	for begin := 0; begin < allocs; begin += 1000 {
		placed, rows := map[fleet.NodeID][]fleet.Alloc{}, state.AllocUpdates{EvalSeed: fmt.Sprint(begin), Now: 2}
		for i := begin; i < min(begin+1000, allocs); i++ {
			id, at := fleet.AllocID(fleet.DeriveUUID("alloc", fmt.Sprint(i))), i%nodes
			placed[f.nodes[at]] = append(placed[f.nodes[at]], fleet.Alloc{
				ID: id, Namespace: fleet.DefaultNamespace, Name: fmt.Sprintf("shop.web[%d]", i), NodeID: f.nodes[at],
				JobID: "shop", JobVersion: f.job.Version, JobHash: f.job.SpecHash, TaskGroup: "web", DesiredStatus: fleet.DesiredRun,
				DeploymentID: "d", DeploymentStatus: &fleet.AllocDeployment{Canary: true}, AllocatedResources: fleet.Resources{CPU: 1, MemoryMB: 1},
			})
			f.allocs = append(f.allocs, id)
			seq[at]++
			row, err := syncproto.EncodeRow(fleet.Transition{Seq: seq[at], Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning})
			if err != nil {
				t.Fatal(err)
			}
			rows.Batches = append(rows.Batches, state.NodeRows{NodeID: f.nodes[at], Epoch: 1, First: seq[at], Prev: chain[at], Rows: [][]byte{row}})
			chain[at] = syncproto.ChainHash(chain[at], row)
		}
		plan.Result.NodeAllocation = placed
		f.applyDecoded(plan)
		plan.NewDeployment = nil
		for _, r := range f.applyDecoded(rows).Updates {
			if r.Code != "" {
				t.Fatalf("report: %+v", r)
			}
		}
	}
	return f
}

// restoredStore is the state as a snapshot brings it back.
func (f *largeFleet) restoredStore() *state.Store {
	f.Helper()
	var snapshot bytes.Buffer
	if err := f.store.Persist(&snapshot); err != nil {
		f.Fatalf("write a snapshot: %v", err)
	}
	if snapshot.Len() > state.MaxSnapshot {
		f.Errorf("a snapshot of %d bytes cannot be restored by a person", snapshot.Len())
	}
	again := state.New()
	if err := again.Restore(&snapshot); err != nil {
		f.Fatalf("read the snapshot: %v", err)
	}
	return again
}

// A fleet of 50,000 allocations on one node, or of 5,000 nodes, stays within every bound of the log and of a
// snapshot's records; a tenth of that with -short.
func TestNoBoundIsInTheWayOfALargeFleet(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // half of the time is the collector's
	sizes := map[int]int{1: 50_000, 5_000: 10_000}
	if testing.Short() {
		sizes = map[int]int{1: 5_000, 500: 1_000}
	}
	for nodes, many := range sizes {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			f := newLargeFleet(t, nodes, many)
			classes := map[string]bool{}
			var missed []state.NodeMissed
			for _, id := range f.nodes {
				n, _ := f.store.View().Node(id)
				classes[n.ComputedClass] = true
				missed = append(missed, state.NodeMissed{NodeID: id, Epoch: 1, Reason: "missed its heartbeat deadline"})
			}
			for _, c := range []state.Command{
				state.Evals{Evals: []fleet.Evaluation{{
					ID: "waits", Namespace: fleet.DefaultNamespace, JobID: "shop", Status: fleet.EvalBlocked,
					ClassEligibility: classes, AwaitedNodes: f.nodes, QueuedAllocations: map[string]int{"web": many},
				}}},
				state.AllocHealth{DeploymentID: "d", Healthy: f.allocs, Now: 3},
				state.DeploymentPromote{DeploymentID: "d", Now: 3},
				state.AllocStop{Allocs: f.allocs, EvalSeed: "stop", Now: 3},
				state.DrainStep{Migrate: f.allocs, EvalSeed: "drain", Now: 3},
				state.NodeResync{NodeID: f.nodes[0], Epoch: 1, Reason: "keeps them", Orphans: f.allocs, Now: 3},
				state.NodeStatus{Nodes: missed, EvalSeed: "away", Now: 4},
				state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Eval: &fleet.Evaluation{ID: "end", Status: fleet.EvalPending}, Now: 5},
			} {
				f.applyDecoded(c)
			}
			again := f.restoredStore()
			n := 0
			for range again.View().AllocsByJob(fleet.DefaultNamespace, "shop") {
				n++
			}
			if n != many {
				t.Errorf("%d allocations after the restore, want %d", n, many)
			}
		})
	}
}

// An edge can read every job that is registered; a job that it could not read is refused with a reason.
func TestEveryJobThatIsRegisteredCanBeReadByAnEdge(t *testing.T) {
	nested := func(deep int) any {
		v := any(int64(1))
		for range deep {
			v = []any{v}
		}
		return v
	}
	texts := func(n int) (list []any, env map[string]string) {
		env = map[string]string{}
		for i := range n {
			list = append(list, int64(i%10))
			env[fmt.Sprint("k", i)] = "v"
		}
		return list, env
	}
	for _, tt := range []struct {
		name    string
		items   int
		deep    int
		refused string
	}{
		{"plain", 1, 1, ""},
		{"30,000 arguments and variables", 30_000, 1, ""},
		{"nested 40 deep", 1, 40, ""},
		{"40,000 arguments and variables", 40_000, 1, "the specification is too large: more than 65536 items"},
		{"nested 50 deep", 1, 50, "the specification is too large: nested more than 48 deep"},
	} {
		j := job("shop", fleet.JobTypeService, 1)
		list, env := texts(tt.items)
		j.TaskGroups[0].Tasks[0].Env = env
		j.TaskGroups[0].Tasks[0].Config = map[string]any{"args": list, "nested": nested(tt.deep)}
		if why := state.CheckSpec(j); why != tt.refused {
			t.Errorf("%s: refused for %q, want %q", tt.name, why, tt.refused)
		}
		if tt.refused != "" {
			continue
		}
		raw, err := state.EncodeSpec(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := syncproto.DecodeJob(raw); err != nil {
			t.Errorf("%s: an edge does not read it: %v", tt.name, err)
		}
		store := state.New()
		entry, err := state.Encode(state.JobRegister{Job: j})
		if err != nil {
			t.Fatal(err)
		}
		c, err := state.Decode(entry)
		if err != nil {
			t.Fatal(err)
		}
		if res := store.Apply(1, c); res.Err != nil {
			t.Fatal(res.Err)
		}
		(&largeFleet{TB: t, store: store}).restoredStore()
	}
}
