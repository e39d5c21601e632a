package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/fleet/validate"
	hubapi "skerry/hub/api"
	"skerry/hub/events"
	"skerry/hub/rollout"
	"skerry/hub/scheduler"
	"skerry/hub/state"
	"skerry/syncproto"
)

// fakeHub is a cluster of one hub without consensus: an applied command counts as committed.
type fakeHub struct {
	mu        sync.Mutex
	index     fleet.Index
	store     *state.Store
	leader    fleet.HubID
	logs      string
	collected int
	removed   []fleet.HubID
	files     func(syncproto.Request) (io.ReadCloser, error)
	pieces    func(syncproto.Request) (io.ReadCloser, error)
	talk      func(context.Context, syncproto.Request) (io.ReadWriteCloser, error)
	then      state.Command // committed right behind the next command, by somebody else
	encodes   bool          // commands are encoded and decoded, as on their way to the leader
}

func (h *fakeHub) Apply(_ context.Context, c state.Command) (state.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leader == "" {
		return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "no cluster leader")
	}
	if h.encodes {
		b, err := state.Encode(c)
		if err == nil {
			c, err = state.Decode(b)
		}
		if err != nil {
			return state.Result{}, err
		}
	}
	h.index++
	res := h.store.Apply(h.index, c)
	if then := h.then; then != nil {
		h.then = nil
		h.index++
		h.store.Apply(h.index, then)
	}
	return res, nil
}

func (h *fakeHub) CatchUp(context.Context) error {
	if h.leader == "" {
		return fleet.Errorf(fleet.CodeUnavailable, "no cluster leader")
	}
	return nil
}

func (h *fakeHub) Leader() (fleet.HubID, bool) { return h.leader, h.leader != "" }

func (h *fakeHub) Members() []hubapi.Member {
	return []hubapi.Member{{ID: "hub1", Addr: "127.0.0.1", Port: 4648, Status: "alive", Tags: map[string]string{"region": "global"}}}
}

func (h *fakeHub) Self() hubapi.Self {
	return hubapi.Self{ID: "hub1", Region: "global"}
}

func (h *fakeHub) Describe() (map[string]any, map[string]map[string]string) {
	return map[string]any{"Name": "hub1"}, map[string]map[string]string{"raft": {"term": "1"}}
}

func (h *fakeHub) Restore(ctx context.Context, snapshot io.ReadSeeker, size int64, sum []byte) (fleet.Index, error) {
	file, err := io.ReadAll(snapshot)
	if err != nil {
		return 0, err
	}
	if res, err := h.Apply(ctx, state.SnapshotPart{Restore: "r", Data: file}); err != nil || res.Err != nil {
		return 0, res.Failure(err)
	}
	res, err := h.Apply(ctx, state.SnapshotRestore{Restore: "r", Size: size, Sum: sum, EvalSeed: "s", Now: 9})
	return res.Index, res.Failure(err)
}

func (h *fakeHub) RemovePeer(_ context.Context, id fleet.HubID) error {
	h.removed = append(h.removed, id)
	return nil
}

func (h *fakeHub) TransferLead(_ context.Context, id fleet.HubID) error {
	h.leader = id
	return nil
}

func (h *fakeHub) Peers() ([]state.HubPeer, fleet.Index, error) {
	return []state.HubPeer{{ID: "hub1", Addr: "127.0.0.1:4647", Voter: true}, {ID: "hub2", Addr: "127.0.0.2:4647", Voter: true}}, h.index, nil
}

func (h *fakeHub) Standing(_ context.Context, id fleet.HubID) (hubapi.Standing, error) {
	if id != "hub1" {
		return hubapi.Standing{}, fleet.Errorf(fleet.CodeUnavailable, "no answer")
	}
	return hubapi.Standing{Term: 1, LastIndex: uint64(h.index)}, nil
}

func (h *fakeHub) Logs(_ context.Context, _ fleet.NodeID, req syncproto.Request) (io.ReadCloser, error) {
	if req.Kind == syncproto.RequestLogPieces {
		return h.pieces(req)
	}
	if h.files != nil && req.Kind != syncproto.RequestLogs {
		return h.files(req)
	}
	if req.Task != "main" {
		return nil, errors.New("not the task that was asked for")
	}
	return io.NopCloser(strings.NewReader(h.logs)), nil
}

func (h *fakeHub) Talk(ctx context.Context, _ fleet.NodeID, req syncproto.Request) (io.ReadWriteCloser, error) {
	return h.talk(ctx, req)
}

func (h *fakeHub) LastContact(context.Context) (map[fleet.NodeID]time.Time, error) {
	return map[fleet.NodeID]time.Time{nodeID: time.Unix(1_700_000_000, 0)}, nil
}

func (h *fakeHub) Parse(src, vars string) (*fleet.Job, error) {
	return jobspec.Parse("job.hcl", []byte(src), jobspec.Options{WithoutGroups: true})
}

func (h *fakeHub) DryRun(_ context.Context, job *fleet.Job) (hubapi.DryRun, error) {
	return hubapi.DryRun{Groups: map[string]fleet.DesiredUpdates{job.TaskGroups[0].Name: {Place: uint64(job.TaskGroups[0].Count)}}}, nil
}

func (h *fakeHub) Outlook(v *state.View, d *fleet.Deployment, now time.Time) *fleet.DeploymentOutlook {
	return rollout.OutlookOf(v, d, scheduler.SuitsFunc, now)
}

func (h *fakeHub) Open(topics []string, namespace string, from fleet.Index, sees func(*state.View) (func(*state.Event) bool, error)) (fleet.Index, func(context.Context, io.Writer) error, error) {
	return events.New(h.store).Open(topics, namespace, from, sees)
}

func (h *fakeHub) Force(context.Context) error {
	h.collected++
	return nil
}

// refuseUnsupported answers as an edge of an older release does.
func refuseUnsupported(req syncproto.Request) (io.ReadCloser, error) {
	return nil, fleet.Errorf(fleet.CodeUnsupported, "this edge does not serve %q requests", req.Kind)
}

// testHosts has the host that httptest.NewRequest asks for.
var testHosts = []string{"example.com"}

const nodeID = fleet.NodeID("11111111-1111-4111-8111-111111111111")

func mustServe(tb testing.TB) (*fakeHub, *httptest.Server, *nomad.Client) {
	tb.Helper()
	h := &fakeHub{store: state.New(), leader: "hub1", logs: "hello\nworld\n", pieces: refuseUnsupported}
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: []string{"hub.example", "192.0.2.10"}, Drivers: validate.KnownDrivers{Names: []string{"raw_exec", "sim"}}})
	if err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewServer(a)
	tb.Cleanup(srv.Close)
	client, err := nomad.NewClient(&nomad.Config{Address: srv.URL})
	if err != nil {
		tb.Fatal(err)
	}
	mustApply(tb, h, state.Hub{Hub: state.HubAddr{ID: "hub1", QUIC: "127.0.0.1:4647", HTTP: "127.0.0.1:4646"}})
	mustApply(tb, h, state.NodeRegister{Node: fleet.Node{
		ID: nodeID, Name: "edge1", Datacenter: "dc1", NodePool: "default",
		Resources: fleet.Resources{CPU: 4000, MemoryMB: 8192, DiskMB: 10000},
		Drivers:   map[string]fleet.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
	}, Now: 1})
	return h, srv, client
}

func mustApply(tb testing.TB, h *fakeHub, c state.Command) state.Result {
	tb.Helper()
	res, err := h.Apply(context.Background(), c)
	if err != nil || res.Err != nil {
		tb.Fatal(err, res.Err)
	}
	return res
}

func exampleJob(id string) *nomad.Job {
	job := nomad.NewServiceJob(id, id, "global", 50).AddDatacenter("dc1")
	task := nomad.NewTask("main", "raw_exec").SetConfig("command", "/bin/true")
	return job.AddTaskGroup(nomad.NewTaskGroup("site", 2).AddTask(task))
}

// mustPlace gives a registered job one running allocation.
func mustPlace(tb testing.TB, h *fakeHub, id fleet.JobID) fleet.AllocID {
	tb.Helper()
	job, ok := h.store.View().Job("default", id)
	if !ok {
		tb.Fatalf("job %s is not registered", id)
	}
	if n, _ := h.store.View().Node(nodeID); n.Epoch == 0 {
		mustApply(tb, h, state.SessionOpen{NodeID: nodeID, Session: 1, Instance: "i", BootID: "b", Hub: "hub1", EvalSeed: "s", Now: 2})
	}
	a := fleet.Alloc{
		ID: fleet.AllocID(fleet.NewUUID(nil)), Namespace: "default", Name: string(id) + ".site[0]", NodeID: nodeID, NodeName: "edge1",
		JobID: id, Job: job, JobVersion: job.Version, JobHash: job.SpecHash, TaskGroup: "site",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending, CreateTime: 3, ModifyTime: 3,
	}
	mustApply(tb, h, state.Plan{
		Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{nodeID: {a}}}, Jobs: []*fleet.Job{job}, Now: 3,
	})
	return a.ID
}

func TestNomadClientLivesAJobsLife(t *testing.T) {
	h, _, c := mustServe(t)
	reg, _, err := c.Jobs().Register(exampleJob("web"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if reg.EvalID == "" || reg.JobModifyIndex == 0 {
		t.Fatalf("register answered %+v", reg)
	}
	list, meta, err := c.Jobs().List(nil)
	if err != nil || len(list) != 1 || list[0].ID != "web" || list[0].Status != "pending" {
		t.Fatalf("list = %+v, %v", list, err)
	}
	if meta.LastIndex == 0 || !meta.KnownLeader {
		t.Fatalf("meta = %+v", meta)
	}
	info, _, err := c.Jobs().Info("web", nil)
	if err != nil || *info.TaskGroups[0].Count != 2 || *info.TaskGroups[0].Tasks[0].KillTimeout != 5*time.Second {
		t.Fatalf("info = %+v, %v", info, err)
	}
	id := mustPlace(t, h, "web")
	sum, _, err := c.Jobs().Summary("web", nil)
	if err != nil || sum.Summary["site"].Starting != 1 {
		t.Fatalf("summary = %+v, %v", sum, err)
	}
	allocs, _, err := c.Jobs().Allocations("web", false, nil)
	if err != nil || len(allocs) != 1 || allocs[0].ID != string(id) || allocs[0].JobType != "service" {
		t.Fatalf("allocations = %+v, %v", allocs, err)
	}
	full, _, err := c.Allocations().Info(string(id), nil)
	if err != nil || full.Job == nil || *full.Job.ID != "web" {
		t.Fatalf("allocation = %+v, %v", full, err)
	}
	evals, _, err := c.Jobs().Evaluations("web", nil)
	if err != nil || len(evals) != 1 || evals[0].ID != reg.EvalID || evals[0].TriggeredBy != "job-register" {
		t.Fatalf("evaluations = %+v, %v", evals, err)
	}
	versions, _, _, err := c.Jobs().Versions("web", true, nil)
	if err != nil || len(versions) != 1 {
		t.Fatalf("versions = %+v, %v", versions, err)
	}
	eval, _, err := c.Jobs().Deregister("web", true, nil)
	if err != nil || eval == "" {
		t.Fatalf("deregister = %q, %v", eval, err)
	}
	if _, _, err := c.Jobs().Info("web", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatalf("reading a purged job: %v", err)
	}
}

func TestNomadClientReadsNodesAndHubs(t *testing.T) {
	_, _, c := mustServe(t)
	nodes, _, err := c.Nodes().List(nil)
	if err != nil || len(nodes) != 1 || nodes[0].Name != "edge1" || nodes[0].Status != "initializing" {
		t.Fatalf("nodes = %+v, %v", nodes, err)
	}
	node, _, err := c.Nodes().Info(string(nodeID), nil)
	if err != nil || node.NodeResources == nil || node.NodeResources.Memory.MemoryMB != 8192 {
		t.Fatalf("node = %+v, %v", node, err)
	}
	if _, _, err := c.Nodes().Allocations(string(nodeID), nil); err != nil {
		t.Fatal(err)
	}
	if leader, err := c.Status().Leader(); err != nil || leader != "127.0.0.1:4647" {
		t.Fatalf("leader = %q, %v", leader, err)
	}
	if peers, err := c.Status().Peers(); err != nil || len(peers) != 1 {
		t.Fatalf("peers = %v, %v", peers, err)
	}
	if members, err := c.Agent().Members(); err != nil || len(members.Members) != 1 || members.Members[0].Name != "hub1" {
		t.Fatalf("members = %+v, %v", members, err)
	}
	if self, err := c.Agent().Self(); err != nil || self.Member.Name != "hub1" {
		t.Fatalf("self = %+v, %v", self, err)
	}
	if health, err := c.Agent().Health(); err != nil || !health.Server.Ok {
		t.Fatalf("health = %+v, %v", health, err)
	}
}

func TestNomadClientReadsLogs(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	id := mustPlace(t, h, "web")
	frames, errs := c.AllocFS().Logs(&nomad.Allocation{ID: string(id), NodeID: string(nodeID)}, false, "main", "stdout", "start", 0, nil, nil)
	var got bytes.Buffer
	for f := range frames {
		got.Write(f.Data)
	}
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
	if got.String() != h.logs {
		t.Fatalf("logs = %q", got.String())
	}
}

func TestNomadClientPlansAndValidates(t *testing.T) {
	_, _, c := mustServe(t)
	job := exampleJob("web")
	plan, _, err := c.Jobs().Plan(job, true, nil)
	if err != nil || plan.Annotations.DesiredTGUpdates["site"].Place != 2 || plan.Diff.Type != "Added" {
		t.Fatalf("plan = %+v, %v", plan, err)
	}
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	count := 3
	job.TaskGroups[0].Count = &count
	plan, _, err = c.Jobs().Plan(job, true, nil)
	if err != nil || plan.Diff.Type != "Edited" || len(plan.Diff.TaskGroups) != 1 {
		t.Fatalf("plan = %+v, %v", plan, err)
	}
	if f := plan.Diff.TaskGroups[0].Fields; len(f) != 1 || f[0].Name != "Count" || f[0].Old != "2" || f[0].New != "3" {
		t.Fatalf("diff = %+v", f)
	}
	// A job with a likely mistake gets a warning, and is accepted.
	hasty, atOnce := exampleJob("hasty"), 9
	hasty.Update = &nomad.UpdateStrategy{MaxParallel: &atOnce}
	const said = "max_parallel is 9 and the count is 2"
	if plan, _, err := c.Jobs().Plan(hasty, false, nil); err != nil || !strings.Contains(plan.Warnings, said) {
		t.Fatalf("plan = %+v, %v", plan, err)
	}
	if res, _, err := c.Jobs().Validate(hasty, nil); err != nil || len(res.ValidationErrors) != 0 || !strings.Contains(res.Warnings, said) {
		t.Fatalf("validate = %+v, %v", res, err)
	}
	if reg, _, err := c.Jobs().Register(hasty, nil); err != nil || !strings.Contains(reg.Warnings, said) {
		t.Fatalf("register = %+v, %v", reg, err)
	}
	waiting := exampleJob("waiting")
	waiting.TaskGroups[0].Tasks[0].Driver = "teleport"
	if reg, _, err := c.Jobs().Register(waiting, nil); err != nil || !strings.Contains(reg.Warnings, `driver "teleport" is not known`) {
		t.Fatalf("registering a job with a driver that nobody has: %+v, %v", reg, err)
	}
	bad := exampleJob("bad")
	minus := -1
	bad.TaskGroups[0].Count = &minus
	res, _, err := c.Jobs().Validate(bad, nil)
	if err != nil || len(res.ValidationErrors) != 1 {
		t.Fatalf("validate = %+v, %v", res, err)
	}
	_, _, err = c.Jobs().Register(bad, nil)
	if err == nil || !strings.Contains(err.Error(), "400") || !strings.Contains(err.Error(), "-1") {
		t.Fatalf("registering a bad job: %v", err)
	}
}

// A job that no edge could be sent is refused wherever it comes from, and one just
// below the bound is not.
func TestJobsThatNoEdgeCouldBeSent(t *testing.T) {
	_, _, c := mustServe(t)
	job := exampleJob("big")
	fill := func(n int) { job.TaskGroups[0].Tasks[0].Env = map[string]string{"BLOB": strings.Repeat("x", n)} }
	fill(state.MaxSpec - 2000)
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatalf("registering a job below the bound: %v", err)
	}
	fill(state.MaxSpec)
	says := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "400") || !strings.Contains(err.Error(), "at most 786432") || !strings.Contains(err.Error(), "has 787") {
			t.Errorf("%s: %.300v", what, err)
		}
	}
	_, _, err := c.Jobs().Register(job, nil)
	says("registering", err)
	_, _, err = c.Jobs().Plan(job, false, nil)
	says("planning", err)
	hcl := fmt.Sprintf(`job "big" {
		group "g" {
			task "t" {
				driver = "raw_exec"
				config { command = "/bin/true" }
				env { BLOB = %q }
			}
		}
	}`, strings.Repeat("x", state.MaxSpec))
	_, err = c.Jobs().ParseHCL(hcl, true)
	says("parsing", err)
	if res, _, err := c.Jobs().Validate(job, nil); err != nil || !strings.Contains(res.Error, "at most 786432") {
		t.Errorf("validating: %.300v, %v", res, err)
	}
}

func TestRegisterChecksTheIndex(t *testing.T) {
	_, _, c := mustServe(t)
	reg, _, err := c.Jobs().EnforceRegister(exampleJob("web"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Jobs().EnforceRegister(exampleJob("web"), 0, nil); err == nil || !strings.Contains(err.Error(), "409") {
		t.Fatalf("registering over a job as if it were new: %v", err)
	}
	if _, _, err := c.Jobs().EnforceRegister(exampleJob("web"), reg.JobModifyIndex, nil); err != nil {
		t.Fatal(err)
	}
}

// TestRegisterAnswersForItself has somebody else change the job behind a
// registration, before that is answered: the index in the answer is not theirs, or
// its receiver would overwrite a change that nobody has shown them.
func TestRegisterAnswersForItself(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	registered, _ := h.store.View().Job("default", "web")
	theirs := *registered
	theirs.Meta = map[string]string{"by": "them"}
	ours := exampleJob("web").SetMeta("by", "us")
	h.then = state.JobRegister{Job: &theirs, Now: 3}
	reg, _, err := c.Jobs().Register(ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	now, _ := h.store.View().Job("default", "web")
	if now.Meta["by"] != "them" || fleet.Index(reg.JobModifyIndex) >= now.JobModifyIndex {
		t.Fatalf("the answer names index %d, the job has %d from somebody else", reg.JobModifyIndex, now.JobModifyIndex)
	}
	if _, _, err := c.Jobs().EnforceRegister(ours, reg.JobModifyIndex, nil); err == nil {
		t.Fatal("a change that was never shown was overwritten")
	}
}

func TestBlockingQueryWakesForWhatItRead(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	_, meta, err := c.Jobs().Info("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		count int
		err   error
	}
	got := make(chan answer)
	go func() {
		job, _, err := c.Jobs().Info("web", &nomad.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 30 * time.Second})
		if err != nil {
			got <- answer{err: err}
			return
		}
		got <- answer{count: *job.TaskGroups[0].Count}
	}()
	changed := exampleJob("web")
	five := 5
	changed.TaskGroups[0].Count = &five
	if _, _, err := c.Jobs().Register(changed, nil); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.err != nil || a.count != 5 {
		t.Fatalf("blocking query answered %+v", a)
	}
	began := time.Now()
	index := uint64(h.store.View().Index()) + 10
	if _, _, err := c.Jobs().List(&nomad.QueryOptions{WaitIndex: index, WaitTime: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Fatalf("a query for an index that is not there yet answered after %s", took)
	}
}

func TestStopAllocationAsksForAnother(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	id := mustPlace(t, h, "web")
	stop, err := c.Allocations().Stop(&nomad.Allocation{ID: string(id)}, nil)
	if err != nil || stop.EvalID == "" {
		t.Fatalf("stop = %+v, %v", stop, err)
	}
	eval, _, err := c.Evaluations().Info(stop.EvalID, nil)
	if err != nil || eval.TriggeredBy != "alloc-stop" || eval.Status != "pending" {
		t.Fatalf("evaluation = %+v, %v", eval, err)
	}
}

// TestBadRequests sends requests with a mistake, and expects a status and a reason.
func TestBadRequests(t *testing.T) {
	_, srv, _ := mustServe(t)
	huge := `{"Job":{"ID":"` + strings.Repeat("x", hubapi.MaxBody) + `"}}`
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"no such endpoint", "GET", "/v1/nonsense", "", 404, "no such endpoint"},
		{"no such job", "GET", "/v1/job/nope", "", 404, `job "nope" not found`},
		{"no such node", "GET", "/v1/node/nope", "", 404, "not found"},
		{"no such allocation", "GET", "/v1/allocation/nope", "", 404, "not found"},
		{"no such evaluation", "GET", "/v1/evaluation/nope", "", 404, "not found"},
		{"index is no number", "GET", "/v1/jobs?index=abc", "", 400, "index"},
		{"wait is no duration", "GET", "/v1/jobs?index=1&wait=abc", "", 400, "wait"},
		{"empty body", "POST", "/v1/jobs", "", 400, "empty"},
		{"no JSON", "POST", "/v1/jobs", "{", 400, "body"},
		{"no job", "POST", "/v1/jobs", "{}", 400, "contains no job"},
		{"huge", "POST", "/v1/jobs", huge, 400, "larger than"},
		{"another job's path", "POST", "/v1/job/a", `{"Job":{"ID":"b","TaskGroups":[{"Name":"g","Tasks":[{"Name":"t","Driver":"raw_exec","Config":{"command":"x"}}]}]}}`, 400, `"b"`},
		{"unknown namespace", "POST", "/v1/jobs", `{"Job":{"ID":"b","Namespace":"n","TaskGroups":[{"Name":"g","Tasks":[{"Name":"t","Driver":"raw_exec","Config":{"command":"x"}}]}]}}`, 400, "namespace"},
		{"unsupported block", "POST", "/v1/jobs", `{"Job":{"ID":"b","Multiregion":{"Strategy":{"MaxParallel":1}},"TaskGroups":[{"Name":"g","Tasks":[{"Name":"t","Driver":"raw_exec"}]}]}}`, 400, "multiregion"},
		{"purge is no boolean", "DELETE", "/v1/job/a?purge=maybe", "", 400, "purge"},
		{"bad HCL", "POST", "/v1/jobs/parse", `{"JobHCL":"job \"x\" {"}`, 400, "job.hcl:1"},
		{"log type", "GET", "/v1/client/fs/logs/nope?type=x", "", 404, "not found"},
		{"eligibility", "POST", "/v1/node/" + string(nodeID) + "/eligibility", `{"Eligibility":"maybe"}`, 400, "maybe"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequest(tc.method, srv.URL+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tc.status || !strings.Contains(string(b), tc.says) {
				t.Errorf("%s %s answered %d %q, want %d with %q", tc.method, tc.path, resp.StatusCode, b, tc.status, tc.says)
			}
			if resp.Header.Get(api.CodeHeader) == "" {
				t.Error("the answer names no code")
			}
		})
	}
}

// Profiles are there where they are asked for, and nowhere but on the machine
// itself.
func TestProfiles(t *testing.T) {
	h, _, _ := mustServe(t)
	for _, tc := range []struct {
		debug  bool
		from   string
		status int
	}{
		{false, "127.0.0.1:4000", http.StatusNotFound},
		{true, "127.0.0.1:4000", http.StatusOK},
		{true, "[::1]:4000", http.StatusOK},
		{true, "[::ffff:127.0.0.1]:4000", http.StatusOK},
		{true, "192.0.2.7:4000", http.StatusForbidden},
		{true, "@", http.StatusForbidden},
	} {
		a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, Debug: tc.debug})
		if err != nil {
			t.Fatal(err)
		}
		noCommandLine := tc.status // it might have a secret
		if tc.status == http.StatusOK {
			noCommandLine = http.StatusNotFound
		}
		for path, status := range map[string]int{"/debug/pprof/": tc.status, "/debug/pprof/goroutine": tc.status, "/debug/pprof/cmdline": noCommandLine} {
			r := httptest.NewRequest("GET", path, nil)
			r.RemoteAddr = tc.from
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("debug %v, %s from %s: %d, want %d", tc.debug, path, tc.from, w.Code, status)
			}
		}
	}
}

func TestWithoutALeaderReadsSaySoAndStaleReadsWork(t *testing.T) {
	h, _, c := mustServe(t)
	h.leader = ""
	if _, _, err := c.Jobs().List(nil); err == nil || !strings.Contains(err.Error(), "no cluster leader") {
		t.Fatalf("list without a leader: %v", err)
	}
	if _, _, err := c.Nodes().List(&nomad.QueryOptions{AllowStale: true}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err == nil {
		t.Fatal("a job was registered without a leader")
	}
}

// FuzzRegister feeds bodies to the endpoint that decodes most.
func FuzzRegister(f *testing.F) {
	f.Add(`{"Job":{"ID":"b","TaskGroups":[{"Name":"g","Tasks":[{"Name":"t","Driver":"raw_exec","Config":{"command":"x"}}]}]}}`)
	f.Add(`{"Job":null}`)
	f.Add(`{"Job":{"TaskGroups":[null]}}`)
	h := &fakeHub{store: state.New(), leader: "hub1"}
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, Drivers: validate.KnownDrivers{Names: []string{"raw_exec"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/jobs", strings.NewReader(body)))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("%q answered %d %s", body, w.Code, w.Body)
		}
	})
}

// TestBodiesOfTheWrongKind sends bodies with values of the wrong type. The refusal names the place and no Go type, and
// has no further complaint about the rest of the job.
func TestBodiesOfTheWrongKind(t *testing.T) {
	_, srv, _ := mustServe(t)
	for _, bad := range []struct{ path, body, want string }{
		{"/v1/jobs", `[]`, "the whole has the wrong type: JSON array at byte 1"},
		{"/v1/job/web/scale", `{"Count": "three"}`, "Count has the wrong type: JSON string at byte"},
		{"/v1/namespace", `{"Meta": {"a": 1}}`, "Meta"},
		{"/v1/node/pools", `{"HeartbeatTTL": "1m"}`, "HeartbeatTTL has the wrong type: JSON string"},
		{"/v1/jobs", `{"Job": {"ID": 5}}`, "ID"},
	} {
		status, said := mustAnswer(t, "PUT", srv.URL+bad.path, bad.body)
		if status != 400 || !strings.Contains(said, bad.want) || strings.Contains(said, "api.") || strings.Contains(said, "fleet.") || strings.Contains(said, "no namespace") {
			t.Errorf("%s %s: %d %s", bad.path, bad.body, status, said)
		}
	}
}
