package collector_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

const nodeID = fleet.NodeID("0b000000-0000-4000-8000-000000000001")

// world is a state with one edge, driven by commands alone.
type world struct {
	*testing.T
	*state.Store
	index fleet.Index
	bytes int // of entries
	now   time.Time
	n     int
	nodes map[fleet.NodeID]*journal
}

type journal struct {
	seq     fleet.Seq
	chain   []byte
	session uint64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, Store: state.New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), nodes: map[fleet.NodeID]*journal{}}
	w.node(nodeID)
	return w
}

func (w *world) must(c state.Command) state.Result {
	w.Helper()
	raw, err := state.Encode(c)
	if err != nil {
		w.Fatal(err)
	}
	decoded, err := state.Decode(raw)
	if err != nil {
		w.Fatal(err)
	}
	w.index++
	w.bytes += len(raw)
	res := w.Apply(w.index, decoded)
	if res.Err != nil {
		w.Fatalf("entry %d, %T: %v", w.index, c, res.Err)
	}
	return res
}

func (w *world) describe() string {
	var b bytes.Buffer
	if err := w.View().Describe(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

func (w *world) id(kind string) string {
	w.n++
	return fleet.DeriveUUID(kind, fmt.Sprint(w.n))
}

func (w *world) nano() int64 { return w.now.UnixNano() }

// node opens a session of a node.
func (w *world) node(id fleet.NodeID) {
	w.Helper()
	j := w.nodes[id]
	if j == nil {
		j = &journal{}
		w.nodes[id] = j
	}
	j.session++
	w.must(state.SessionOpen{NodeID: id, Session: j.session, Head: j.seq, EvalSeed: w.id("seed"), Now: w.nano(),
		Node: &fleet.Node{ID: id, Name: string(id), Datacenter: "dc1", Resources: fleet.Resources{CPU: 4000, MemoryMB: 4096, DiskMB: 10000}}})
}

func (w *world) register(id fleet.JobID, jobType string, done bool) *fleet.Evaluation {
	w.Helper()
	e := &fleet.Evaluation{ID: fleet.EvalID(w.id("eval")), Status: fleet.EvalPending, TriggeredBy: fleet.TriggerJobRegister}
	w.must(state.JobRegister{Job: &fleet.Job{
		Namespace: "default", ID: id, Type: jobType, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}}}},
	}, Eval: e, Now: w.nano()})
	if done {
		w.end()
	}
	return e
}

// end ends all evaluations that are open.
func (w *world) end() {
	w.Helper()
	var ended []fleet.Evaluation
	for e := range w.View().Evals("*", "") {
		if !e.Terminal() {
			c := *e
			c.Status = fleet.EvalComplete
			ended = append(ended, c)
		}
	}
	if len(ended) > 0 {
		w.must(state.Evals{Evals: ended, Now: w.nano()})
	}
}

// place registers a job and gives it an allocation that runs.
func (w *world) place(id fleet.JobID, jobType string) fleet.AllocID {
	return w.placeOn(id, jobType, nodeID)
}

func (w *world) placeOn(id fleet.JobID, jobType string, node fleet.NodeID) fleet.AllocID {
	w.Helper()
	e := w.register(id, jobType, false)
	job, _ := w.View().Job("default", id)
	a := fleet.Alloc{
		ID: fleet.AllocID(w.id("alloc")), Namespace: "default", Name: string(id) + ".g[0]", NodeID: node, JobID: id, EvalID: e.ID,
		JobVersion: job.Version, JobHash: job.SpecHash, TaskGroup: "g", DesiredStatus: fleet.DesiredRun,
	}
	w.must(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {a}}}, EvalID: e.ID, Now: w.nano()})
	w.report(a.ID, fleet.ClientRunning)
	return a.ID
}

// retry has an evaluation of a job that places nothing.
func (w *world) retry(id fleet.JobID) {
	w.Helper()
	w.must(state.Evals{Evals: []fleet.Evaluation{{
		ID: fleet.EvalID(w.id("eval")), Namespace: "default", JobID: id, Type: fleet.JobTypeService, Status: fleet.EvalComplete,
	}}, Now: w.nano()})
}

func (w *world) report(id fleet.AllocID, status string) {
	w.Helper()
	a, _ := w.View().Alloc(id)
	n, _ := w.View().Node(a.NodeID)
	j := w.nodes[a.NodeID]
	j.seq++
	task := fleet.TaskRunning
	if status != fleet.ClientRunning {
		task = fleet.TaskDead
	}
	row, err := syncproto.EncodeRow(fleet.Transition{
		Seq: j.seq, BootID: "11111111-2222-4333-8444-555555555555", Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: status,
		Task: "t", TaskState: &fleet.TaskState{State: task}, Event: &fleet.TaskEvent{Type: fleet.TaskStarted}, Wall: w.nano(),
	})
	if err != nil {
		w.Fatal(err)
	}
	res := w.must(state.AllocUpdates{Batches: []state.NodeRows{{
		NodeID: n.ID, Epoch: n.Epoch, First: j.seq, Prev: j.chain, Rows: [][]byte{row},
	}}, EvalSeed: w.id("seed"), Now: w.nano()})
	if res.Updates[0].Code != "" {
		w.Fatalf("report: %+v", res.Updates[0])
	}
	j.chain = syncproto.ChainHash(j.chain, row)
	w.end()
}

// change commits the hub's decision about an allocation.
func (w *world) change(id fleet.AllocID, change func(*fleet.Alloc)) {
	w.Helper()
	old, _ := w.View().Alloc(id)
	a := *old
	change(&a)
	w.must(state.Plan{Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{a.NodeID: {a}}}, Now: w.nano()})
}

func (w *world) desire(id fleet.AllocID, status string) {
	w.Helper()
	w.change(id, func(a *fleet.Alloc) { a.DesiredStatus = status })
}

func (w *world) conclude(id fleet.AllocID, status string) {
	w.Helper()
	w.change(id, func(a *fleet.Alloc) {
		a.ClientStatus = status
		a.AllocStates = append(a.AllocStates, fleet.AllocState{Field: fleet.AllocStateClientStatus, Value: status, Time: w.now})
	})
}

// stop stops an allocation, which its edge confirms.
func (w *world) stop(id fleet.AllocID) {
	w.Helper()
	w.desire(id, fleet.DesiredStop)
	w.report(id, fleet.ClientComplete)
}

func (w *world) deregister(id fleet.JobID) {
	w.Helper()
	w.must(state.JobDeregister{Namespace: "default", ID: id, Now: w.nano(),
		Eval: &fleet.Evaluation{ID: fleet.EvalID(w.id("eval")), Status: fleet.EvalPending}})
	w.end()
}

// lose has the node miss its deadline; what was on it is out of sight, or nothing is
// to be waited for.
func (w *world) lose(down bool) {
	w.Helper()
	w.loseNode(nodeID)
	if n, _ := w.View().Node(nodeID); (n.Status == fleet.NodeDown) != down {
		w.Fatalf("the node is %s", n.Status)
	}
}

func (w *world) loseNode(id fleet.NodeID) {
	w.Helper()
	n, _ := w.View().Node(id)
	w.must(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: id, Epoch: n.Epoch}}, EvalSeed: w.id("seed"), Now: w.nano()})
	for a := range w.View().AllocsByNode(id) {
		if !a.ClientTerminal() && a.ClientStatus != fleet.ClientUnknown {
			w.conclude(a.ID, fleet.ClientUnknown)
		}
	}
	w.end()
}

func (w *world) purge() {
	w.Helper()
	w.must(state.NodePurge{NodeID: nodeID, EvalSeed: w.id("seed"), Now: w.nano()})
	w.end()
}
