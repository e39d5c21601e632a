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

// world is a store that is checked after every entry, and the edges' journals.
type world struct {
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

func newWorld(t tb) *world {
	return &world{tb: t, store: state.New(), now: start, edges: map[fleet.NodeID]*edge{}}
}

// apply takes a command through the log's encoding.
func (w *world) apply(c state.Command) state.Result {
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

// must applies a command that is not refused.
func (w *world) must(c state.Command) state.Result {
	w.Helper()
	res := w.apply(c)
	if res.Err != nil {
		w.Fatalf("entry %d, %T: %v", w.index, c, res.Err)
	}
	return res
}

// refused applies a command that is refused with a code and changes nothing.
func (w *world) refused(code fleet.Code, c state.Command) state.Result {
	w.Helper()
	before := describe(w, w.store.View())
	res := w.apply(c)
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

func (w *world) id(kind string) string {
	w.seq++
	return fleet.DeriveUUID("test", kind, fmt.Sprint(w.seq))
}

func (w *world) nano() int64 { return w.now.UnixNano() }

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func (w *world) seed() string { return w.id("seed") }

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

func (w *world) eval(trigger string) *fleet.Evaluation {
	return &fleet.Evaluation{ID: fleet.EvalID(w.id("eval")), TriggeredBy: trigger, Status: fleet.EvalPending}
}

func (w *world) register(j *fleet.Job) state.Result {
	w.Helper()
	return w.must(state.JobRegister{Job: j, Eval: w.eval(fleet.TriggerJobRegister), Now: w.nano()})
}

// node registers a node and opens its first session, which makes it ready.
func (w *world) node(name string) fleet.NodeID {
	w.Helper()
	id := fleet.NodeID(fleet.DeriveUUID("node", name))
	w.must(state.NodeRegister{Node: description(id, name), Now: w.nano()})
	w.edges[id] = &edge{}
	w.session(id)
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

// session opens the next session of a node, with the head of its journal.
func (w *world) session(id fleet.NodeID) state.SessionResult {
	w.Helper()
	e := w.edges[id]
	e.session++
	res := w.must(state.SessionOpen{
		NodeID: id, Session: e.session, Instance: "i1", BootID: "b1", Hub: "hub-1", Addr: "192.0.2.1:4000",
		Head: fleet.Seq(len(e.rows)), EvalSeed: w.seed(), Now: w.nano(),
	})
	e.epoch = res.Session.Epoch
	return *res.Session
}

func (w *world) getNode(id fleet.NodeID) *fleet.Node {
	w.Helper()
	n, ok := w.store.View().Node(id)
	if !ok {
		w.Fatalf("no node %s", id)
	}
	return n
}

func (w *world) getAlloc(id fleet.AllocID) *fleet.Alloc {
	w.Helper()
	a, ok := w.store.View().Alloc(id)
	if !ok {
		w.Fatalf("no allocation %s", id)
	}
	return a
}

func (w *world) getJob(id fleet.JobID) *fleet.Job {
	w.Helper()
	j, ok := w.store.View().Job(fleet.DefaultNamespace, id)
	if !ok {
		w.Fatalf("no job %s", id)
	}
	return j
}

// alloc makes a new allocation of a job's newest version.
func (w *world) alloc(id fleet.JobID, node fleet.NodeID) fleet.Alloc {
	w.Helper()
	j := w.getJob(id)
	return fleet.Alloc{
		ID: fleet.AllocID(w.id("alloc")), Namespace: j.Namespace, Name: string(id) + ".web[0]", NodeID: node,
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

// place commits a plan of n new allocations and ends the job's open evaluations.
func (w *world) place(id fleet.JobID, node fleet.NodeID, n int) []fleet.AllocID {
	w.Helper()
	var allocs []fleet.Alloc
	var ids []fleet.AllocID
	for range n {
		a := w.alloc(id, node)
		allocs = append(allocs, a)
		ids = append(ids, a.ID)
	}
	w.must(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(allocs...)}, Evals: w.ended(id),
		EvalID: fleet.EvalID(w.id("eval")), Now: w.nano()})
	return ids
}

// update commits changes of existing allocations and ends the job's evaluations.
func (w *world) update(allocs ...fleet.Alloc) {
	w.Helper()
	w.must(state.Plan{Result: fleet.PlanResult{NodeUpdate: byNode(allocs...)}, Evals: w.ended(allocs[0].JobID),
		EvalID: fleet.EvalID(w.id("eval")), Now: w.nano()})
}

// ended is the end of a job's evaluations that are not over.
func (w *world) ended(id fleet.JobID) []fleet.Evaluation {
	var out []fleet.Evaluation
	for _, e := range w.open(id) {
		c := *e
		c.Status = fleet.EvalComplete
		out = append(out, c)
	}
	return out
}

func (w *world) open(id fleet.JobID) []*fleet.Evaluation {
	var out []*fleet.Evaluation
	for e := range w.store.View().EvalsByJob(fleet.DefaultNamespace, id) {
		if !e.Terminal() {
			out = append(out, e)
		}
	}
	return out
}

// journal adds rows to an edge's journal without telling anybody.
func (w *world) journal(id fleet.NodeID, transitions ...fleet.Transition) {
	w.Helper()
	e := w.edges[id]
	for _, tr := range transitions {
		tr.Seq = fleet.Seq(len(e.rows) + 1)
		tr.BootID = "11111111-2222-4333-8444-555555555555"
		tr.Mono, tr.Wall = time.Duration(tr.Seq)*time.Second, w.nano()
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

// rows is a batch of the edge's journal, first to last.
func (w *world) rows(id fleet.NodeID, first, last int) state.NodeRows {
	e := w.edges[id]
	b := state.NodeRows{NodeID: id, Epoch: e.epoch, First: fleet.Seq(first), Rows: e.rows[first-1 : last]}
	if first > 1 {
		b.Prev = e.chain[first-2]
	}
	return b
}

// pending is all that the cluster has not applied of an edge's journal.
func (w *world) pending(id fleet.NodeID) state.NodeRows {
	w.Helper()
	return w.rows(id, int(w.getNode(id).Applied)+1, len(w.edges[id].rows))
}

func (w *world) send(batches ...state.NodeRows) []state.BatchResult {
	w.Helper()
	return w.must(state.AllocUpdates{Batches: batches, EvalSeed: w.seed(), Now: w.nano()}).Updates
}

// report journals a client status and has it applied.
func (w *world) report(node fleet.NodeID, status string, allocs ...fleet.AllocID) {
	w.Helper()
	for _, a := range allocs {
		w.journal(node, says(a, status))
	}
	if res := w.send(w.pending(node)); res[0].Code != "" {
		w.Fatalf("report %s: %+v", status, res[0])
	}
}

func says(a fleet.AllocID, status string) fleet.Transition {
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

// miss lets nodes miss their deadline.
func (w *world) miss(nodes ...fleet.NodeID) []fleet.NodeID {
	w.Helper()
	c := state.NodeStatus{EvalSeed: w.seed(), Now: w.nano()}
	for _, id := range nodes {
		c.Nodes = append(c.Nodes, state.NodeMissed{NodeID: id, Epoch: w.edges[id].epoch, Reason: "no beat for 20s"})
	}
	return w.must(c).Moved
}

// unknown commits what a scheduler concludes of allocations out of sight.
func (w *world) unknown(ids ...fleet.AllocID) {
	w.Helper()
	w.update(w.concluded(fleet.ClientUnknown, ids...)...)
}

func (w *world) concluded(status string, ids ...fleet.AllocID) []fleet.Alloc {
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

func (w *world) wantStatus(id fleet.AllocID, client, reported string) {
	w.Helper()
	a := w.getAlloc(id)
	if a.ClientStatus != client || a.ReportedStatus != reported {
		w.Fatalf("allocation is %s, reported %q; want %s, reported %q", a.ClientStatus, a.ReportedStatus, client, reported)
	}
}

// wantEvals checks that a job has exactly one open evaluation for each trigger.
func (w *world) wantEvals(id fleet.JobID, triggers ...string) {
	w.Helper()
	var have []string
	for _, e := range w.open(id) {
		have = append(have, e.TriggeredBy)
	}
	if fmt.Sprint(have) != fmt.Sprint(triggers) {
		w.Fatalf("open evaluations of %s: %v, want %v", id, have, triggers)
	}
}

func (w *world) events(id fleet.AllocID) string {
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

func newT(t *testing.T) *world {
	t.Helper()
	return newWorld(t)
}
