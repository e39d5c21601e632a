package observe_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/observe"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/consensus"
	"skerry/hub/state"
	"skerry/syncproto"
)

const (
	node  = fleet.NodeID("11111111-1111-4111-8111-111111111111")
	alloc = fleet.AllocID("22222222-2222-4222-8222-222222222222")
)

// pair is two hubs that apply the same log, watched by a Monitor.
type pair struct {
	tb      testing.TB
	monitor *check.Monitor
	stores  [2]*state.Store
	index   fleet.Index
	seen    *check.Applied // of the first hub
}

func newPair(tb testing.TB) *pair {
	return &pair{tb: tb, monitor: check.NewMonitor(check.Limits{}), stores: [2]*state.Store{state.New(), state.New()}}
}

func (p *pair) applyCommand(c state.Command) *check.Effects {
	p.tb.Helper()
	p.index++
	for i, s := range p.stores {
		res := s.Apply(p.index, c)
		if res.Err != nil {
			p.tb.Fatalf("apply %T: %v", c, res.Err)
		}
		a := observe.Applied(fmt.Sprint("hub-", i+1), consensus.Applied{Index: p.index, Term: 2, Command: c, Result: res, View: s.View()}, p.monitor.Wants(p.index))
		if i == 0 {
			p.seen = a
			p.checkToldEntry(consensus.Applied{Index: p.index, Term: 2, Command: c, Result: res, View: s.View()})
		}
		for _, v := range p.monitor.Observe(check.Observation{At: time.Duration(p.index) * time.Second, Applied: a}) {
			p.tb.Errorf("%v", v)
		}
	}
	return p.seen.Effects
}

func rows(tb testing.TB, ts ...fleet.Transition) [][]byte {
	tb.Helper()
	var out [][]byte
	for i, t := range ts {
		t.Seq, t.BootID = fleet.Seq(i+1), "boot"
		raw, err := syncproto.EncodeRow(t)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, raw)
	}
	return out
}

// runningRows are the rows of an agent that begins, and of the allocation, which runs.
func runningRows(tb testing.TB) [][]byte {
	tb.Helper()
	return rows(tb, fleet.Transition{Kind: fleet.TransitionAgent},
		fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: alloc, ClientStatus: fleet.ClientRunning})
}

func shop(change func(*fleet.TaskGroup)) *fleet.Job {
	job := &fleet.Job{
		ID: "shop", Namespace: "default", Type: fleet.JobTypeService, Meta: map[string]string{check.TagMeta: "t1"},
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "main", Driver: "sim"}}}},
	}
	change(&job.TaskGroups[0])
	validate.FillDefaults(job)
	return job
}

// newPairWithAlloc has a job, a node with a session, and an allocation.
func newPairWithAlloc(tb testing.TB) *pair {
	p := newPair(tb)
	e := p.applyCommand(state.JobRegister{Job: shop(func(*fleet.TaskGroup) {}), Eval: &fleet.Evaluation{ID: "eval"}, Now: 1})
	if len(e.Jobs) != 1 || e.Jobs[0] != (check.JobChange{Job: "shop", Tag: "t1"}) || len(e.Evals) != 1 || e.Evals[0].ID != "eval" {
		tb.Fatalf("a registration: %+v", e)
	}
	p.applyCommand(state.NodeRegister{Node: fleet.Node{ID: node, Name: "edge-1", Resources: fleet.Resources{CPU: 500, MemoryMB: 500, DiskMB: 500}}, Now: 1})
	e = p.applyCommand(state.SessionOpen{NodeID: node, Session: 3, BootID: "boot", Hub: "hub-1", EvalSeed: "s", Now: 2})
	if want := (check.Opened{Node: node, Session: 3, Boot: "boot", Hub: "hub-1", Epoch: 1, Status: fleet.NodeReady}); e.Opened == nil || *e.Opened != want {
		tb.Fatalf("a session: %+v", e.Opened)
	}
	stored, _ := p.stores[0].View().Job("default", "shop")
	a := fleet.Alloc{
		ID: alloc, Namespace: "default", Name: "shop.g[0]", NodeID: node, JobID: "shop", Job: stored, JobVersion: stored.Version,
		JobHash: stored.SpecHash, TaskGroup: "g", AllocatedResources: fleet.Resources{CPU: 100},
	}
	e = p.applyCommand(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {a}}}, Jobs: []*fleet.Job{stored}, Now: 3})
	if len(e.Allocs) != 1 || e.Allocs[0].ID != alloc || len(e.Loads) != 1 || e.Loads[0].Used.CPU != 100 || e.Loads[0].Free.CPU != 500 {
		tb.Fatalf("a plan: %+v", e)
	}
	return p
}

// dispatchTwice has a job dispatched twice with the same token.
func (p *pair) dispatchTwice() {
	p.tb.Helper()
	job := &fleet.Job{
		ID: "errand", Namespace: "default", Type: fleet.JobTypeBatch, ParameterizedJob: &fleet.ParameterizedJob{},
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "main", Driver: "sim"}}}},
	}
	validate.FillDefaults(job)
	p.applyCommand(state.JobRegister{Job: job, Now: 1})
	stored, _ := p.stores[0].View().Job("default", "errand")
	for _, id := range []fleet.JobID{"errand/dispatch-1", "errand/dispatch-2"} {
		child := stored.Child(id, time.Unix(0, 1))
		child.Dispatched, child.DispatchIdempotencyToken = true, "once"
		child.Payload, child.Meta = []byte(id), map[string]string{"order": "1"} // those of the second one do not count
		e := p.applyCommand(state.JobDispatch{Namespace: "default", ID: "errand", JobModifyIndex: stored.JobModifyIndex, Child: child, Now: 1})
		if want := (check.Dispatch{Job: "errand", Child: "errand/dispatch-1", Token: "once", Children: 1,
			Input: check.DescribeInput([]byte("errand/dispatch-1"), map[string]string{"order": "1"})}); e.Dispatched == nil || *e.Dispatched != want {
			p.tb.Errorf("a dispatch: %+v, want %+v", e.Dispatched, want)
		}
	}
}

func TestApplied(t *testing.T) {
	p := newPairWithAlloc(t)
	raw := runningRows(t)
	e := p.applyCommand(state.AllocUpdates{Batches: []state.NodeRows{
		{NodeID: node, Epoch: 1, First: 1, Rows: raw},
		{NodeID: node, Epoch: 9, First: 3, Rows: raw},
		{NodeID: node, Epoch: 1, Received: 5},
	}, EvalSeed: "s", Now: 4})
	if len(e.Batches) != 2 {
		t.Fatalf("batches: %+v", e.Batches)
	}
	taken, refused := e.Batches[0], e.Batches[1]
	if taken.Code != "" || taken.Applied != 2 || len(taken.Rows) != 2 || taken.Rows[1].ClientStatus != fleet.ClientRunning {
		t.Errorf("taken: %+v", taken)
	}
	if refused.Code != fleet.CodeStaleEpoch || refused.Applied != 2 {
		t.Errorf("refused: %+v", refused)
	}
	if len(e.Recorded) != 1 || e.Recorded[0].Alloc != alloc || fmt.Sprint(e.Recorded[0].Rows) != "[2]" {
		t.Errorf("recorded: %+v", e.Recorded)
	}
	e = p.applyCommand(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node, Epoch: 1}, {NodeID: node, Epoch: 7}}, EvalSeed: "s", Now: 5})
	if len(e.Moved) != 1 || e.Moved[0].Status != fleet.NodeDisconnected || len(e.Evals) != 1 {
		t.Errorf("a missed deadline: %+v", e)
	}
	e = p.applyCommand(state.Fence{NodeID: node, Session: fleet.FencedSession{Code: fleet.CodeCloned}})
	if e.Fenced == nil || e.Fenced.Code != fleet.CodeCloned {
		t.Errorf("a fence: %+v", e)
	}
	p.dispatchTwice()
	e = p.applyCommand(state.JobDeregister{Namespace: "default", ID: "shop", Now: 6})
	if len(e.Jobs) != 1 || !e.Jobs[0].Stop {
		t.Errorf("a deregistration: %+v", e)
	}
	digests := 0
	for range 70 {
		p.applyCommand(state.Evals{Now: 7})
		if p.seen.State != "" {
			digests++
		}
	}
	if digests == 0 {
		t.Error("no digest of the state was taken")
	}
	if vs := p.monitor.Violations(); len(vs) > 0 {
		t.Error(vs)
	}
}

// rollsTo registers a new version of the job, and makes the plan of a deployment that
// replaces the allocation by one on a node.
func (p *pair) rollsTo(id fleet.NodeID, changes ...func(*fleet.TaskGroup)) state.Plan {
	p.tb.Helper()
	p.applyCommand(state.JobRegister{Job: shop(func(g *fleet.TaskGroup) {
		g.Tasks[0].Env = map[string]string{"A": "b"}
		g.Update = &fleet.Update{MaxParallel: 1, MaxUnavailablePerSite: 1}
		for _, change := range changes {
			change(g)
		}
	}), Eval: &fleet.Evaluation{ID: "eval2"}, Now: 5})
	next, _ := p.stores[0].View().Job("default", "shop")
	old, _ := p.stores[0].View().Alloc(alloc)
	stop := *old
	stop.DesiredStatus = fleet.DesiredStop
	a := fleet.Alloc{
		ID: "next", Namespace: "default", Name: "shop.g[0]", NodeID: id, JobID: "shop", Job: next, JobVersion: next.Version,
		JobHash: next.SpecHash, TaskGroup: "g", PreviousAllocation: alloc, DeploymentID: "deployment", DeploymentStatus: &fleet.AllocDeployment{},
	}
	return state.Plan{
		Result: fleet.PlanResult{
			NodeUpdate: map[fleet.NodeID][]fleet.Alloc{node: {stop}}, NodeAllocation: map[fleet.NodeID][]fleet.Alloc{id: {a}},
		},
		NewDeployment: &fleet.Deployment{
			ID: "deployment", Namespace: "default", JobID: "shop", JobVersion: next.Version, JobCreateIndex: next.CreateIndex,
			Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"g": {DesiredTotal: 1}},
		},
		Now: 6,
	}
}

// TestServed has a deployment take down what no deployment started: it was in service
// where it ran, and not where its edge went away with it, and came back, before it did.
func TestServed(t *testing.T) {
	for _, running := range []bool{false, true} {
		p := newPairWithAlloc(t)
		if running {
			p.applyCommand(state.AllocUpdates{Batches: []state.NodeRows{{NodeID: node, Epoch: 1, First: 1, Rows: runningRows(t)}}, EvalSeed: "s", Now: 4})
		}
		e := p.applyCommand(p.rollsTo(node))
		if len(e.Rollouts) != 1 || len(e.Rollouts[0].Turns) != 1 || e.Rollouts[0].Turns[0].Served != running {
			t.Errorf("running %t: %+v", running, e.Rollouts)
		}
	}
}

// TestStartsElsewhere has a version replace an allocation without another change of its tasks, because its node does not suit any
// more. It takes a turn only if it was in service.
func TestStartsElsewhere(t *testing.T) {
	for _, running := range []bool{false, true} {
		p := newPairWithAlloc(t)
		if running {
			p.applyCommand(state.AllocUpdates{Batches: []state.NodeRows{{NodeID: node, Epoch: 1, First: 1, Rows: runningRows(t)}}, EvalSeed: "s", Now: 4})
		}
		e := p.applyCommand(p.rollsTo(node, func(g *fleet.TaskGroup) { g.Tasks[0].Env = nil }))
		if len(e.Rollouts) != 1 || len(e.Rollouts[0].Turns) == 1 != running {
			t.Errorf("running %t: %+v", running, e.Rollouts)
		}
	}
}

// TestRoomIsATurn has a plan stop an allocation to make room for the newest version. The stop is
// a turn, which lasts until the replacement is healthy. An allocation that the group does not
// want any more, that an operator stops, or that is evicted takes no turn.
func TestRoomIsATurn(t *testing.T) {
	begin := func(change func(stop *fleet.Alloc), changes ...func(*fleet.TaskGroup)) (*pair, state.Plan, *check.Effects) {
		p := newPairWithAlloc(t)
		p.applyCommand(state.AllocUpdates{Batches: []state.NodeRows{{NodeID: node, Epoch: 1, First: 1, Rows: runningRows(t)}}, EvalSeed: "s", Now: 4})
		whole := p.rollsTo(node, changes...)
		stops := whole
		change(&whole.Result.NodeUpdate[node][0])
		stops.Result = fleet.PlanResult{NodeUpdate: whole.Result.NodeUpdate}
		return p, whole, p.applyCommand(stops)
	}
	p, whole, e := begin(func(*fleet.Alloc) {})
	if len(e.Rollouts) != 1 || len(e.Rollouts[0].Turns) != 1 || e.Rollouts[0].Turns[0].Old != alloc || !e.Rollouts[0].Turns[0].Served || len(e.Rollouts[0].Starting) != 0 {
		t.Fatalf("it is stopped: %+v", e.Rollouts)
	}
	beside := whole.Result.NodeAllocation[node][0]
	beside.ID, beside.Name, beside.PreviousAllocation = "beside", "shop.g[1]", ""
	e = p.applyCommand(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {beside}}}, Now: 7})
	if len(e.Rollouts) != 1 || len(e.Rollouts[0].Turns) != 0 || len(e.Rollouts[0].Starting) != 1 || e.Rollouts[0].Starting[0].Alloc != alloc {
		t.Fatalf("nothing is in its stead yet: %+v", e.Rollouts)
	}
	e = p.applyCommand(state.Plan{Result: fleet.PlanResult{NodeAllocation: whole.Result.NodeAllocation}, Now: 8})
	if r := e.Rollouts; len(r) != 1 || len(r[0].Turns) != 0 || len(r[0].Starting) != 2 || r[0].Starting[1].Alloc != "next" {
		t.Fatalf("something is: %+v", r)
	}
	for name, change := range map[string]func(*fleet.Alloc){
		"migrated": func(stop *fleet.Alloc) { stop.DesiredTransition.Migrate = true },
		"evicted":  func(stop *fleet.Alloc) { stop.DesiredStatus = fleet.DesiredEvict },
	} {
		if _, _, e := begin(change); len(e.Rollouts) != 0 {
			t.Errorf("%s: %+v", name, e.Rollouts)
		}
	}
	if _, _, e := begin(func(*fleet.Alloc) {}, func(g *fleet.TaskGroup) { g.Count = 0 }); len(e.Rollouts) != 0 {
		t.Errorf("not wanted: %+v", e.Rollouts)
	}
}

// TestStoppedOnSiteIsNotStarting: an allocation of the newest version counts as starting, until somebody on site stops it.
func TestStoppedOnSiteIsNotStarting(t *testing.T) {
	for _, held := range []bool{false, true} {
		p := newPairWithAlloc(t)
		rollout := p.rollsTo(node)
		p.applyCommand(rollout)
		received := fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: "next", ClientStatus: fleet.ClientPending}
		if held {
			received.Hold = &fleet.Hold{By: "uid 0", Since: 1, JobVersion: 1}
		}
		p.applyCommand(state.AllocUpdates{Batches: []state.NodeRows{{NodeID: node, Epoch: 1, First: 1, Rows: rows(t, fleet.Transition{Kind: fleet.TransitionAgent}, received)}}, EvalSeed: "s", Now: 6})
		beside := rollout.Result.NodeAllocation[node][0]
		beside.ID, beside.Name, beside.PreviousAllocation = "beside", "shop.g[1]", ""
		e := p.applyCommand(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {beside}}}, Now: 7})
		if r := e.Rollouts; len(r) != 1 || (len(r[0].Starting) == 0) != held {
			t.Errorf("held %t: %+v", held, r)
		}
	}
}

// TestLostAwaitsRoom has an allocation lost with its node, during the deployment of a newer
// version. The node is back before there is a replacement.
func TestLostAwaitsRoom(t *testing.T) {
	p := newPairWithAlloc(t)
	p.applyCommand(state.AllocUpdates{Batches: []state.NodeRows{{NodeID: node, Epoch: 1, First: 1, Rows: runningRows(t)}}, EvalSeed: "s", Now: 4})
	rollout := p.rollsTo(node)
	p.applyCommand(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node, Epoch: 1}}, EvalSeed: "s", Now: 5})
	lost, beside := rollout.Result.NodeUpdate[node][0], rollout.Result.NodeAllocation[node][0]
	lost.ClientStatus = fleet.ClientLost
	lost.AllocStates = []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: fleet.ClientLost, Time: time.Unix(0, 6)}}
	rollout.Result = fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{node: {lost}}}
	p.applyCommand(rollout)
	p.applyCommand(state.SessionOpen{NodeID: node, Session: 4, BootID: "boot", Hub: "hub-1", EvalSeed: "s", Now: 7})
	beside.ID, beside.Name, beside.PreviousAllocation = "beside", "shop.g[1]", ""
	e := p.applyCommand(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {beside}}}, Now: 8})
	if r := e.Rollouts; len(r) != 1 || len(r[0].Starting) != 1 || r[0].Starting[0].Alloc != alloc || !r[0].Starting[0].Lost {
		t.Fatalf("one that was lost has no replacement yet: %+v", r)
	}
}

// TestAwayIsMissed has what replaces one at a site start at another and go away: the
// first of the two goes without.
func TestAwayIsMissed(t *testing.T) {
	p := newPairWithAlloc(t)
	p.applyCommand(state.NodeRegister{Node: fleet.Node{ID: "far", Name: "edge-2", Site: "far", Resources: fleet.Resources{CPU: 500, MemoryMB: 500, DiskMB: 500}}, Now: 4})
	p.applyCommand(p.rollsTo("far"))
	e := p.applyCommand(state.Plan{
		DeploymentUpdates: []fleet.DeploymentUpdate{{DeploymentID: "deployment", Status: fleet.DeploymentSuccessful}}, Now: 7,
	})
	if len(e.Ended) != 1 || len(e.Ended[0].Groups) != 1 {
		t.Fatalf("ended: %+v", e.Ended)
	}
	home, _ := p.stores[0].View().Node(node)
	if g := e.Ended[0].Groups[0]; !slices.Equal(g.Away, []fleet.NodeID{"far"}) || !slices.Equal(g.AwaySites, []string{home.SiteName()}) {
		t.Errorf("%+v, want the site of the one that it replaces, %q", g, home.SiteName())
	}
}

// TestDrainedAndAwayIsAwaited has a system job's allocation told to stop by a drain on an edge
// that is away. The drain is over, so the edge gets the newest version when it is back: its site
// goes without.
func TestDrainedAndAwayIsAwaited(t *testing.T) {
	p := newPairWithAlloc(t)
	everywhere := func(changes ...func(*fleet.TaskGroup)) *fleet.Job {
		j := shop(func(g *fleet.TaskGroup) {
			g.Count = 0
			for _, change := range changes {
				change(g)
			}
		})
		j.ID, j.Name, j.Type = "everywhere", "everywhere", fleet.JobTypeSystem
		return j
	}
	p.applyCommand(state.JobRegister{Job: everywhere(), Now: 4})
	old, _ := p.stores[0].View().Job("default", "everywhere")
	p.applyCommand(state.NodeRegister{Node: fleet.Node{ID: "far", Name: "edge-2", Site: "far", Resources: fleet.Resources{CPU: 500, MemoryMB: 500, DiskMB: 500}}, Now: 4})
	drained := fleet.Alloc{
		ID: "drained", Namespace: "default", Name: "everywhere.g[0]", NodeID: "far", JobID: old.ID, Job: old, JobVersion: old.Version, JobHash: old.SpecHash, TaskGroup: "g",
	}
	p.applyCommand(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{"far": {drained}}}, Jobs: []*fleet.Job{old}, Now: 5})
	drained.DesiredStatus, drained.DesiredTransition.Migrate = fleet.DesiredStop, true
	p.applyCommand(state.Plan{Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{"far": {drained}}}, Now: 6})
	p.applyCommand(state.JobRegister{Job: everywhere(func(g *fleet.TaskGroup) {
		g.Tasks[0].Env = map[string]string{"A": "b"}
		g.Update = &fleet.Update{MaxParallel: 1, MaxUnavailablePerSite: 1}
	}), Now: 7})
	next, _ := p.stores[0].View().Job("default", "everywhere")
	p.applyCommand(state.Plan{NewDeployment: &fleet.Deployment{
		ID: "d", Namespace: "default", JobID: next.ID, JobVersion: next.Version, JobCreateIndex: next.CreateIndex,
		Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"g": {DesiredTotal: 1}},
	}, Now: 8})
	e := p.applyCommand(state.Plan{DeploymentUpdates: []fleet.DeploymentUpdate{{DeploymentID: "d", Status: fleet.DeploymentSuccessful}}, Now: 9})
	if len(e.Ended) != 1 || len(e.Ended[0].Groups) != 1 {
		t.Fatalf("ended: %+v", e.Ended)
	}
	if g := e.Ended[0].Groups[0]; !slices.Equal(g.AwaySites, []string{"far"}) || g.Deferred != 1 {
		t.Errorf("%+v, want site far to go without", g)
	}
}

// A system job's allocation takes a turn where its node can run the newest version. Otherwise the job leaves the node.
func TestRoomOnANodeWithoutTheDriver(t *testing.T) {
	for _, driver := range []string{"driver.sim", "driver.other"} {
		p := newPairWithAlloc(t)
		everywhere := func(env map[string]string) *fleet.Job {
			j := shop(func(g *fleet.TaskGroup) {
				g.Count, g.Tasks[0].Env = 0, env
				g.Update = &fleet.Update{MaxParallel: 1, MaxUnavailablePerSite: 1}
			})
			j.ID, j.Name, j.Type = "everywhere", "everywhere", fleet.JobTypeSystem
			return j
		}
		p.applyCommand(state.JobRegister{Job: everywhere(nil), Now: 4})
		old, _ := p.stores[0].View().Job("default", "everywhere")
		p.applyCommand(state.NodeRegister{Node: fleet.Node{
			ID: "near", Name: "edge-2", Attributes: map[string]string{driver: "1"}, Resources: fleet.Resources{CPU: 500, MemoryMB: 500, DiskMB: 500},
		}, Now: 4})
		p.applyCommand(state.SessionOpen{NodeID: "near", Session: 4, BootID: "boot", Hub: "hub-1", EvalSeed: "s2", Now: 5})
		runs := fleet.Alloc{
			ID: "runs", Namespace: "default", Name: "everywhere.g[0]", NodeID: "near", JobID: old.ID, Job: old, JobVersion: old.Version, JobHash: old.SpecHash, TaskGroup: "g",
		}
		p.applyCommand(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{"near": {runs}}}, Jobs: []*fleet.Job{old}, Now: 6})
		p.applyCommand(state.JobRegister{Job: everywhere(map[string]string{"A": "b"}), Now: 7})
		next, _ := p.stores[0].View().Job("default", "everywhere")
		runs.DesiredStatus = fleet.DesiredStop
		e := p.applyCommand(state.Plan{
			Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{"near": {runs}}},
			NewDeployment: &fleet.Deployment{
				ID: "d", Namespace: "default", JobID: next.ID, JobVersion: next.Version, JobCreateIndex: next.CreateIndex,
				Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"g": {DesiredTotal: 1}},
			},
			Now: 8,
		})
		if turns := len(e.Rollouts) == 1 && len(e.Rollouts[0].Turns) == 1; turns != (driver == "driver.sim") {
			t.Errorf("%s: a turn: %t: %+v", driver, turns, e.Rollouts)
		}
	}
}

// TestDriftIsSeen has one hub apply another command at the same index.
func TestDriftIsSeen(t *testing.T) {
	p := newPairWithAlloc(t)
	p.index++
	for i, s := range p.stores {
		c := state.NodeEligibility{NodeID: node, Eligibility: []string{fleet.NodeEligible, fleet.NodeIneligible}[i]}
		a := observe.Applied(fmt.Sprint("hub-", i+1), consensus.Applied{Index: p.index, Term: 2, Command: c, Result: s.Apply(p.index, c), View: s.View()}, false)
		p.monitor.Observe(check.Observation{Applied: a})
	}
	if vs := p.monitor.Violations(); len(vs) != 1 || vs[0].Invariant != check.SameEverywhere {
		t.Errorf("found %v", vs)
	}
}

// TestKindsHaveNames applies each kind of command that there is, as its zero value.
func TestKindsHaveNames(t *testing.T) {
	store := state.New()
	seen := map[string]bool{}
	for kind := range 256 {
		c, err := state.Decode([]byte{1, byte(kind), 0xa0}) // an empty map
		if err != nil {
			continue
		}
		index := fleet.Index(kind + 1)
		a := observe.Applied("hub", consensus.Applied{Index: index, Command: c, Result: store.Apply(index, c), View: store.View()}, true)
		if a.Kind == "" || seen[a.Kind] {
			t.Errorf("command %d (%T) is called %q", kind, c, a.Kind)
		}
		seen[a.Kind] = true
	}
	if len(seen) < 18 {
		t.Errorf("%d kinds of command", len(seen))
	}
}

func TestHubAndEdge(t *testing.T) {
	p := newPairWithAlloc(t)
	v := p.stores[0].View()
	lean, whole := observe.Hub("hub-1", v, false), observe.Hub("hub-1", v, true)
	if lean.Index != p.index || len(lean.Nodes) != 1 || len(lean.Allocs) != 1 || len(lean.Evals) != 1 || lean.AllocHistory != nil || lean.State != "" {
		t.Errorf("a hub: %+v", lean)
	}
	if len(whole.AllocHistory[alloc]) == 0 || len(whole.NodeHistory[node]) == 0 {
		t.Errorf("its histories: %+v, %+v", whole.AllocHistory, whole.NodeHistory)
	}
	if whole.State != v.Digest() {
		t.Errorf("its fingerprint: %q, want %q", whole.State, v.Digest())
	}
	e := observe.Edge("edge-1", node, local.Link{State: "connected", Session: 4, Away: time.Second}, local.Journal{First: 2, Last: 9, Acknowledged: 7}, nil)
	if !e.Link.Connected || e.Link.Session != 4 || e.Journal.Acknowledged != 7 || e.NodeID != node {
		t.Errorf("an edge: %+v, %+v", e.Link, e.Journal)
	}
}

// TestRepeatedActions has a hub keep an action on an edge twice: another audit of the edge came between its reports.
func TestRepeatedActions(t *testing.T) {
	p := newPairWithAlloc(t)
	var ts []fleet.Transition
	for _, chain := range []string{"x", "y", "x"} {
		if found := observe.Hub("hub-1", p.stores[0].View(), false).RepeatedActions; len(found) > 0 {
			t.Errorf("before %s: %q", chain, found)
		}
		ts = append(ts, fleet.Transition{Kind: fleet.TransitionSite, Message: "anna: stop", Site: &fleet.SiteAction{
			Seq: 1, Chain: chain, Verb: "stop", Object: "1d697ed5", User: "anna", UID: "1000",
		}})
		p.applyCommand(state.AllocUpdates{Batches: []state.NodeRows{{NodeID: node, Epoch: 1, First: 1, Rows: rows(t, ts...)}}, EvalSeed: "s", Now: 4})
	}
	if found := observe.Hub("hub-1", p.stores[0].View(), false).RepeatedActions; len(found) != 1 || found[0] != "line 1 of the audit x of edge-1" {
		t.Errorf("found %q", found)
	}
}
