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

// harness is a state with one edge, driven by commands alone.
type harness struct {
	*testing.T
	*state.Store
	index fleet.Index
	bytes int // of entries
	now   time.Time
	n     int
	nodes map[fleet.NodeID]*edgeJournal
}

type edgeJournal struct {
	seq     fleet.Seq
	chain   []byte
	session uint64
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	w := &harness{T: t, Store: state.New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), nodes: map[fleet.NodeID]*edgeJournal{}}
	w.openSession(nodeID)
	return w
}

func (w *harness) mustApplyEncoded(c state.Command) state.Result {
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

func (w *harness) describeState() string {
	var b bytes.Buffer
	if err := w.View().Describe(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

func (w *harness) nextUUID(kind string) string {
	w.n++
	return fleet.DeriveUUID(kind, fmt.Sprint(w.n))
}

func (w *harness) nowUnixNano() int64 { return w.now.UnixNano() }

// openSession opens a session of a node.
func (w *harness) openSession(id fleet.NodeID) {
	w.Helper()
	j := w.nodes[id]
	if j == nil {
		j = &edgeJournal{}
		w.nodes[id] = j
	}
	j.session++
	w.mustApplyEncoded(state.SessionOpen{NodeID: id, Session: j.session, Head: j.seq, EvalSeed: w.nextUUID("seed"), Now: w.nowUnixNano(),
		Node: &fleet.Node{ID: id, Name: string(id), Datacenter: "dc1", Resources: fleet.Resources{CPU: 4000, MemoryMB: 4096, DiskMB: 10000}}})
}

func (w *harness) registerTestJob(id fleet.JobID, jobType string, done bool) *fleet.Evaluation {
	w.Helper()
	e := &fleet.Evaluation{ID: fleet.EvalID(w.nextUUID("eval")), Status: fleet.EvalPending, TriggeredBy: fleet.TriggerJobRegister}
	w.mustApplyEncoded(state.JobRegister{Job: &fleet.Job{
		Namespace: "default", ID: id, Type: jobType, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}}}},
	}, Eval: e, Now: w.nowUnixNano()})
	if done {
		w.completeOpenEvals()
	}
	return e
}

// completeOpenEvals ends all evaluations that are open.
func (w *harness) completeOpenEvals() {
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
		w.mustApplyEncoded(state.Evals{Evals: ended, Now: w.nowUnixNano()})
	}
}

// placeRunning registers a job and gives it an allocation that runs.
func (w *harness) placeRunning(id fleet.JobID, jobType string) fleet.AllocID {
	return w.placeRunningOn(id, jobType, nodeID)
}

func (w *harness) placeRunningOn(id fleet.JobID, jobType string, node fleet.NodeID) fleet.AllocID {
	w.Helper()
	e := w.registerTestJob(id, jobType, false)
	job, _ := w.View().Job("default", id)
	a := fleet.Alloc{
		ID: fleet.AllocID(w.nextUUID("alloc")), Namespace: "default", Name: string(id) + ".g[0]", NodeID: node, JobID: id, EvalID: e.ID,
		JobVersion: job.Version, JobHash: job.SpecHash, TaskGroup: "g", DesiredStatus: fleet.DesiredRun,
	}
	w.mustApplyEncoded(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {a}}}, EvalID: e.ID, Now: w.nowUnixNano()})
	w.reportTaskStatus(a.ID, fleet.ClientRunning)
	return a.ID
}

// addCompletedEval has an evaluation of a job that places nothing.
func (w *harness) addCompletedEval(id fleet.JobID) {
	w.Helper()
	w.mustApplyEncoded(state.Evals{Evals: []fleet.Evaluation{{
		ID: fleet.EvalID(w.nextUUID("eval")), Namespace: "default", JobID: id, Type: fleet.JobTypeService, Status: fleet.EvalComplete,
	}}, Now: w.nowUnixNano()})
}

func (w *harness) reportTaskStatus(id fleet.AllocID, status string) {
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
		Task: "t", TaskState: &fleet.TaskState{State: task}, Event: &fleet.TaskEvent{Type: fleet.TaskStarted}, Wall: w.nowUnixNano(),
	})
	if err != nil {
		w.Fatal(err)
	}
	res := w.mustApplyEncoded(state.AllocUpdates{Batches: []state.NodeRows{{
		NodeID: n.ID, Epoch: n.Epoch, First: j.seq, Prev: j.chain, Rows: [][]byte{row},
	}}, EvalSeed: w.nextUUID("seed"), Now: w.nowUnixNano()})
	if res.Updates[0].Code != "" {
		w.Fatalf("report: %+v", res.Updates[0])
	}
	j.chain = syncproto.ChainHash(j.chain, row)
	w.completeOpenEvals()
}

// changeAlloc commits the hub's decision about an allocation.
func (w *harness) changeAlloc(id fleet.AllocID, change func(*fleet.Alloc)) {
	w.Helper()
	old, _ := w.View().Alloc(id)
	a := *old
	change(&a)
	w.mustApplyEncoded(state.Plan{Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{a.NodeID: {a}}}, Now: w.nowUnixNano()})
}

func (w *harness) setDesiredStatus(id fleet.AllocID, status string) {
	w.Helper()
	w.changeAlloc(id, func(a *fleet.Alloc) { a.DesiredStatus = status })
}

func (w *harness) setClientStatus(id fleet.AllocID, status string) {
	w.Helper()
	w.changeAlloc(id, func(a *fleet.Alloc) {
		a.ClientStatus = status
		a.AllocStates = append(a.AllocStates, fleet.AllocState{Field: fleet.AllocStateClientStatus, Value: status, Time: w.now})
	})
}

// stopAlloc stops an allocation, which its edge confirms.
func (w *harness) stopAlloc(id fleet.AllocID) {
	w.Helper()
	w.setDesiredStatus(id, fleet.DesiredStop)
	w.reportTaskStatus(id, fleet.ClientComplete)
}

func (w *harness) deregisterJob(id fleet.JobID) {
	w.Helper()
	w.mustApplyEncoded(state.JobDeregister{Namespace: "default", ID: id, Now: w.nowUnixNano(),
		Eval: &fleet.Evaluation{ID: fleet.EvalID(w.nextUUID("eval")), Status: fleet.EvalPending}})
	w.completeOpenEvals()
}

// loseAndCheckNode has the node miss its deadline; what was on it is out of sight, or nothing is
// to be waited for.
func (w *harness) loseAndCheckNode(down bool) {
	w.Helper()
	w.loseNode(nodeID)
	if n, _ := w.View().Node(nodeID); (n.Status == fleet.NodeDown) != down {
		w.Fatalf("the node is %s", n.Status)
	}
}

func (w *harness) loseNode(id fleet.NodeID) {
	w.Helper()
	n, _ := w.View().Node(id)
	w.mustApplyEncoded(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: id, Epoch: n.Epoch}}, EvalSeed: w.nextUUID("seed"), Now: w.nowUnixNano()})
	for a := range w.View().AllocsByNode(id) {
		if !a.ClientTerminal() && a.ClientStatus != fleet.ClientUnknown {
			w.setClientStatus(a.ID, fleet.ClientUnknown)
		}
	}
	w.completeOpenEvals()
}

func (w *harness) purgeNode() {
	w.Helper()
	w.mustApplyEncoded(state.NodePurge{NodeID: nodeID, EvalSeed: w.nextUUID("seed"), Now: w.nowUnixNano()})
	w.completeOpenEvals()
}
