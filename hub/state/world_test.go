package state_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// tb is what testing.TB and rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// start is when every world begins.
var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// storeHarness is a store that is checked after every entry, and the edges' journals.
type storeHarness struct {
	tb
	store *state.Store
	index fleet.Index
	now   time.Time
	edges map[fleet.NodeID]*edge
	log   [][]byte
	seq   int
}

type edge struct {
	rows    [][]byte // all of its journal
	chain   [][]byte // chain hash at each row
	epoch   fleet.Epoch
	session uint64
}

func newStoreHarness(t tb) *storeHarness {
	return &storeHarness{tb: t, store: state.New(), now: start, edges: map[fleet.NodeID]*edge{}}
}

// applyAndCheck takes a command through the log's encoding.
func (w *storeHarness) applyAndCheck(c state.Command) state.Result {
	w.Helper()
	raw, err := state.Encode(c)
	if err != nil {
		w.Fatalf("encode %T: %v", c, err)
	}
	decoded, err := state.Decode(raw)
	if err != nil {
		w.Fatalf("decode %T: %v", c, err)
	}
	w.log = append(w.log, raw)
	prev := w.store.View()
	w.index++
	res := w.store.Apply(w.index, decoded)
	next := w.store.View()
	if err := next.Check(); err != nil {
		w.Fatalf("after entry %d, %T: %v\n%s", w.index, c, err, describe(w, next))
	}
	if err := state.CheckStep(prev, next); err != nil {
		w.Fatalf("at entry %d, %T: %v", w.index, c, err)
	}
	return res
}

// mustApply applies a command that is not refused.
func (w *storeHarness) mustApply(c state.Command) state.Result {
	w.Helper()
	res := w.applyAndCheck(c)
	if res.Err != nil {
		w.Fatalf("entry %d, %T: %v", w.index, c, res.Err)
	}
	return res
}

// mustRefuse applies a command that is refused with a code and changes nothing.
func (w *storeHarness) mustRefuse(code fleet.Code, c state.Command) state.Result {
	w.Helper()
	before := describe(w, w.store.View())
	res := w.applyAndCheck(c)
	if fleet.CodeOf(asError(res.Err)) != code {
		w.Fatalf("entry %d, %T: %v, want %s", w.index, c, res.Err, code)
	}
	if after := describe(w, w.store.View()); trimApplied(after) != trimApplied(before) {
		w.Fatalf("entry %d, %T was refused and changed the state:\n%s", w.index, c, diff(before, after))
	}
	return res
}

func asError(e *fleet.Error) error {
	if e == nil {
		return nil
	}
	return e
}

func describe(t tb, v *state.View) string {
	t.Helper()
	var b bytes.Buffer
	if err := v.Describe(&b); err != nil {
		t.Fatalf("describe: %v", err)
	}
	return b.String()
}

// trimApplied leaves out the line that says which entry was applied last.
func trimApplied(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, `index "applied"`) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// diff shows the lines that differ.
func diff(a, b string) string {
	have := map[string]bool{}
	for line := range strings.Lines(a) {
		have[line] = true
	}
	var out strings.Builder
	for line := range strings.Lines(b) {
		if !have[line] {
			out.WriteString("+ " + line)
		}
		delete(have, line)
	}
	for line := range strings.Lines(a) {
		if have[line] {
			out.WriteString("- " + line)
		}
	}
	return out.String()
}

func (w *storeHarness) nextTestID(kind string) string {
	w.seq++
	return fleet.DeriveUUID("test", kind, fmt.Sprint(w.seq))
}

func (w *storeHarness) nowNanos() int64 { return w.now.UnixNano() }

func (w *storeHarness) moveClockForward(d time.Duration) { w.now = w.now.Add(d) }

func (w *storeHarness) nextEvalSeed() string { return w.nextTestID("seed") }

// job makes a job of one group "web" with one task "web".
func job(id fleet.JobID, jobType string, count int) *fleet.Job {
	return &fleet.Job{
		Region: fleet.DefaultRegion, Namespace: fleet.DefaultNamespace, ID: id, Name: string(id), Type: jobType,
		Priority: 50, Datacenters: []string{"*"}, NodePool: fleet.DefaultPool,
		TaskGroups: []fleet.TaskGroup{{
			Name: "web", Count: count,
			Tasks: []fleet.Task{{
				Name: "web", Driver: "sim", Config: map[string]any{"run_for": "1h", "exit": int64(0)},
				Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: 500, MemoryMB: 256}},
			}},
		}},
	}
}

func ptr[T any](v T) *T { return &v }

func (w *storeHarness) newEvaluation(trigger string) *fleet.Evaluation {
	return &fleet.Evaluation{ID: fleet.EvalID(w.nextTestID("eval")), TriggeredBy: trigger, Status: fleet.EvalPending}
}

func (w *storeHarness) registerJob(j *fleet.Job) state.Result {
	w.Helper()
	return w.mustApply(state.JobRegister{Job: j, Eval: w.newEvaluation(fleet.TriggerJobRegister), Now: w.nowNanos()})
}

// addReadyNode registers a node and opens its first session, which makes it ready.
func (w *storeHarness) addReadyNode(name string) fleet.NodeID {
	w.Helper()
	id := fleet.NodeID(fleet.DeriveUUID("node", name))
	w.mustApply(state.NodeRegister{Node: description(id, name), Now: w.nowNanos()})
	w.edges[id] = &edge{}
	w.openNextSession(id)
	if got := w.getNode(id).Status; got != fleet.NodeReady {
		w.Fatalf("a new node is %s", got)
	}
	return id
}

func description(id fleet.NodeID, name string) fleet.Node {
	return fleet.Node{
		ID: id, Name: name, Datacenter: "dc1", NodePool: fleet.DefaultPool,
		Attributes: map[string]string{"kernel.name": "linux", "unique.hostname": name},
		Resources:  fleet.Resources{CPU: 4000, MemoryMB: 8192, DiskMB: 100_000},
		Drivers:    map[string]fleet.DriverInfo{"sim": {Detected: true, Healthy: true}},
	}
}

// openNextSession opens the next session of a node, with the head of its journal.
func (w *storeHarness) openNextSession(id fleet.NodeID) state.SessionResult {
	w.Helper()
	e := w.edges[id]
	e.session++
	res := w.mustApply(state.SessionOpen{
		NodeID: id, Session: e.session, Instance: "i1", BootID: "b1", Hub: "hub-1", Addr: "192.0.2.1:4000",
		Head: fleet.Seq(len(e.rows)), EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(),
	})
	e.epoch = res.Session.Epoch
	return *res.Session
}

func (w *storeHarness) getNode(id fleet.NodeID) *fleet.Node {
	w.Helper()
	n, ok := w.store.View().Node(id)
	if !ok {
		w.Fatalf("no node %s", id)
	}
	return n
}

func (w *storeHarness) getAlloc(id fleet.AllocID) *fleet.Alloc {
	w.Helper()
	a, ok := w.store.View().Alloc(id)
	if !ok {
		w.Fatalf("no allocation %s", id)
	}
	return a
}

func (w *storeHarness) getJob(id fleet.JobID) *fleet.Job {
	w.Helper()
	j, ok := w.store.View().Job(fleet.DefaultNamespace, id)
	if !ok {
		w.Fatalf("no job %s", id)
	}
	return j
}

// newAllocOfJob makes a new allocation of a job's newest version.
func (w *storeHarness) newAllocOfJob(id fleet.JobID, node fleet.NodeID) fleet.Alloc {
	w.Helper()
	j := w.getJob(id)
	return fleet.Alloc{
		ID: fleet.AllocID(w.nextTestID("alloc")), Namespace: j.Namespace, Name: string(id) + ".web[0]", NodeID: node,
		JobID: id, JobVersion: j.Version, JobHash: j.SpecHash, TaskGroup: "web",
		AllocatedResources: fleet.Resources{CPU: 500, MemoryMB: 256},
		DesiredStatus:      fleet.DesiredRun, DesiredDescription: "placed by a test",
	}
}

func byNode(allocs ...fleet.Alloc) map[fleet.NodeID][]fleet.Alloc {
	m := map[fleet.NodeID][]fleet.Alloc{}
	for _, a := range allocs {
		m[a.NodeID] = append(m[a.NodeID], a)
	}
	return m
}

// placeAllocs commits a plan of n new allocations and ends the job's open evaluations.
func (w *storeHarness) placeAllocs(id fleet.JobID, node fleet.NodeID, n int) []fleet.AllocID {
	w.Helper()
	var allocs []fleet.Alloc
	var ids []fleet.AllocID
	for range n {
		a := w.newAllocOfJob(id, node)
		allocs = append(allocs, a)
		ids = append(ids, a.ID)
	}
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(allocs...)}, Evals: w.completedEvals(id),
		EvalID: fleet.EvalID(w.nextTestID("eval")), Now: w.nowNanos()})
	return ids
}

// updateAllocs commits changes of existing allocations and ends the job's evaluations.
func (w *storeHarness) updateAllocs(allocs ...fleet.Alloc) {
	w.Helper()
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeUpdate: byNode(allocs...)}, Evals: w.completedEvals(allocs[0].JobID),
		EvalID: fleet.EvalID(w.nextTestID("eval")), Now: w.nowNanos()})
}

// completedEvals is the end of a job's evaluations that are not over.
func (w *storeHarness) completedEvals(id fleet.JobID) []fleet.Evaluation {
	var out []fleet.Evaluation
	for _, e := range w.openEvalsOf(id) {
		c := *e
		c.Status = fleet.EvalComplete
		out = append(out, c)
	}
	return out
}

func (w *storeHarness) openEvalsOf(id fleet.JobID) []*fleet.Evaluation {
	var out []*fleet.Evaluation
	for e := range w.store.View().EvalsByJob(fleet.DefaultNamespace, id) {
		if !e.Terminal() {
			out = append(out, e)
		}
	}
	return out
}

// appendJournalRows adds rows to an edge's journal without telling anybody.
func (w *storeHarness) appendJournalRows(id fleet.NodeID, transitions ...fleet.Transition) {
	w.Helper()
	e := w.edges[id]
	for _, tr := range transitions {
		tr.Seq = fleet.Seq(len(e.rows) + 1)
		tr.BootID = "11111111-2222-4333-8444-555555555555"
		tr.Mono, tr.Wall = time.Duration(tr.Seq)*time.Second, w.nowNanos()
		raw, err := syncproto.EncodeRow(tr)
		if err != nil {
			w.Fatalf("encode row: %v", err)
		}
		var prev []byte
		if len(e.chain) > 0 {
			prev = e.chain[len(e.chain)-1]
		}
		e.rows = append(e.rows, raw)
		e.chain = append(e.chain, syncproto.ChainHash(prev, raw))
	}
}

// journalRows is a batch of the edge's journal, first to last.
func (w *storeHarness) journalRows(id fleet.NodeID, first, last int) state.NodeRows {
	e := w.edges[id]
	b := state.NodeRows{NodeID: id, Epoch: e.epoch, First: fleet.Seq(first), Rows: e.rows[first-1 : last]}
	if first > 1 {
		b.Prev = e.chain[first-2]
	}
	return b
}

// unappliedBatch is all that the cluster has not applied of an edge's journal.
func (w *storeHarness) unappliedBatch(id fleet.NodeID) state.NodeRows {
	w.Helper()
	return w.journalRows(id, int(w.getNode(id).Applied)+1, len(w.edges[id].rows))
}

func (w *storeHarness) applyRowBatches(batches ...state.NodeRows) []state.BatchResult {
	w.Helper()
	return w.mustApply(state.AllocUpdates{Batches: batches, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()}).Updates
}

// reportStatus journals a client status and has it applied.
func (w *storeHarness) reportStatus(node fleet.NodeID, status string, allocs ...fleet.AllocID) {
	w.Helper()
	for _, a := range allocs {
		w.appendJournalRows(node, statusTransition(a, status))
	}
	if res := w.applyRowBatches(w.unappliedBatch(node)); res[0].Code != "" {
		w.Fatalf("report %s: %+v", status, res[0])
	}
}

func statusTransition(a fleet.AllocID, status string) fleet.Transition {
	state := fleet.TaskRunning
	switch status {
	case fleet.ClientPending:
		state = fleet.TaskPending
	case fleet.ClientComplete, fleet.ClientFailed:
		state = fleet.TaskDead
	}
	return fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: a, ClientStatus: status, Task: "web",
		TaskState: &fleet.TaskState{State: state, Failed: status == fleet.ClientFailed},
		Event:     &fleet.TaskEvent{Type: fleet.TaskStarted, DisplayMessage: "now " + status},
	}
}

// missHeartbeats lets nodes miss their deadline.
func (w *storeHarness) missHeartbeats(nodes ...fleet.NodeID) []fleet.NodeID {
	w.Helper()
	c := state.NodeStatus{EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()}
	for _, id := range nodes {
		c.Nodes = append(c.Nodes, state.NodeMissed{NodeID: id, Epoch: w.edges[id].epoch, Reason: "no beat for 20s"})
	}
	return w.mustApply(c).Moved
}

// markAllocsUnknown commits the plan of a scheduler that makes allocations unknown.
func (w *storeHarness) markAllocsUnknown(ids ...fleet.AllocID) {
	w.Helper()
	w.updateAllocs(w.allocsWithStatus(fleet.ClientUnknown, ids...)...)
}

func (w *storeHarness) allocsWithStatus(status string, ids ...fleet.AllocID) []fleet.Alloc {
	w.Helper()
	var out []fleet.Alloc
	for _, id := range ids {
		a := *w.getAlloc(id)
		a.ClientStatus = status
		if status == fleet.ClientLost {
			a.DesiredStatus = fleet.DesiredStop
		}
		a.AllocStates = append(append([]fleet.AllocState(nil), a.AllocStates...),
			fleet.AllocState{Field: fleet.AllocStateClientStatus, Value: status, Time: w.now})
		out = append(out, a)
	}
	return out
}

func (w *storeHarness) wantStatus(id fleet.AllocID, client, reported string) {
	w.Helper()
	a := w.getAlloc(id)
	if a.ClientStatus != client || a.ReportedStatus != reported {
		w.Fatalf("allocation is %s, reported %q; want %s, reported %q", a.ClientStatus, a.ReportedStatus, client, reported)
	}
}

// wantEvals checks that a job has exactly one open evaluation for each trigger.
func (w *storeHarness) wantEvals(id fleet.JobID, triggers ...string) {
	w.Helper()
	var have []string
	for _, e := range w.openEvalsOf(id) {
		have = append(have, e.TriggeredBy)
	}
	if fmt.Sprint(have) != fmt.Sprint(triggers) {
		w.Fatalf("open evaluations of %s: %v, want %v", id, have, triggers)
	}
}

func (w *storeHarness) historyEvents(id fleet.AllocID) string {
	var out []string
	for _, h := range w.store.View().History(id) {
		if h.Side == fleet.SideHub {
			out = append(out, h.Event)
		} else {
			s := h.Transition.ClientStatus
			if h.Offline {
				s += "*"
			}
			out = append(out, s)
		}
	}
	return strings.Join(out, ", ")
}

func newTestHarness(t *testing.T) *storeHarness {
	t.Helper()
	return newStoreHarness(t)
}
