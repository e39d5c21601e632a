package state_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/hub/state"
)

// Any sequence of commands: every state is consistent, two stores that apply the
// same log are equal, and so is one that starts from a snapshot in between. Equal
// states have equal digests, and no entry leaves the digest as it was.
func TestAnyLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{T: t, storeHarness: newStoreHarness(t)}
		for i := range 3 {
			g.nodes = append(g.nodes, g.addReadyNode(fmt.Sprintf("n%d", i)))
		}
		steps := rapid.IntRange(5, 60).Draw(t, "steps")
		at := rapid.IntRange(1, steps).Draw(t, "snapshot")
		var snapshot []byte
		var taken int
		digests := map[string]int{g.store.View().Digest(): len(g.log)}
		for i := range steps {
			g.applyRandomStep()
			digest := g.store.View().Digest()
			if before, twice := digests[digest]; twice && before != len(g.log) { // a step may come to nothing
				t.Fatalf("entries %d and %d have the same digest", before, len(g.log))
			}
			digests[digest] = len(g.log)
			if i+1 == at {
				snapshot, taken = mustPersist(t, g.store), len(g.log)
			}
		}
		want := describe(t, g.store.View())
		twin := state.New()
		replay(t, twin, g.log, 0)
		if got := describe(t, twin.View()); got != want {
			t.Fatalf("two stores of one log differ:\n%s", diff(want, got))
		}
		digest := g.store.View().Digest()
		if got := twin.View().Digest(); got != digest {
			t.Fatalf("two stores of one log have digests %s and %s", digest, got)
		}
		restored := state.New()
		if err := restored.Restore(bytes.NewReader(snapshot)); err != nil {
			t.Fatalf("restore: %v", err)
		}
		replay(t, restored, g.log, taken)
		if got := describe(t, restored.View()); got != want {
			t.Fatalf("a restored store differs:\n%s", diff(want, got))
		}
		if got := restored.View().Digest(); got != digest {
			t.Fatalf("a restored store has digest %s, not %s", got, digest)
		}
	})
}

func replay(t tb, s *state.Store, log [][]byte, from int) {
	t.Helper()
	for i, raw := range log[from:] {
		c, err := state.Decode(raw)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		s.Apply(fleet.Index(from+i+1), c)
	}
}

// generator draws commands, most of them sensible.
type generator struct {
	*rapid.T
	*storeHarness
	nodes []fleet.NodeID
}

func (g *generator) Helper()                           {}
func (g *generator) Fatalf(format string, args ...any) { g.T.Fatalf(format, args...) }

func (g *generator) drawInt(max int, label string) int {
	return rapid.IntRange(0, max).Draw(g.T, label)
}

func (g *generator) anyJob() fleet.JobID {
	return rapid.SampledFrom([]fleet.JobID{"shop", "till", "night"}).Draw(g.T, "job")
}

func (g *generator) anyNode() fleet.NodeID { return rapid.SampledFrom(g.nodes).Draw(g.T, "node") }

func (g *generator) someAllocs() []fleet.AllocID {
	var ids []fleet.AllocID
	for a := range g.store.View().Allocs("*", "") {
		if g.drawInt(2, "take") == 0 {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

func (g *generator) applyRandomStep() {
	g.moveClockForward(time.Duration(g.drawInt(600, "seconds")) * time.Second)
	switch g.drawInt(18, "step") {
	case 0, 1:
		g.registerAny()
	case 2:
		g.applyAndCheck(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: g.anyJob(), Purge: g.drawInt(1, "purge") == 0,
			Eval: g.newEvaluation(fleet.TriggerJobDeregister), Now: g.nowNanos()})
	case 3, 4, 5:
		g.placeAny()
	case 6:
		g.decideAny()
	case 7, 8:
		g.replayAny()
	case 9:
		id := g.anyNode()
		if _, revoked := g.store.View().Revocation(id); !revoked {
			g.openNextSession(id)
		}
	case 16:
		g.admitAny()
	case 17:
		if g.drawInt(3, "revoke") == 0 {
			g.applyAndCheck(state.NodeRevoke{NodeID: g.anyNode(), Reason: "stolen", KeepExposure: true, EvalSeed: g.nextEvalSeed(), Now: g.nowNanos()})
		}
	case 18:
		if id := g.anyNode(); g.drawInt(1, "readmit") == 0 {
			g.applyAndCheck(state.NodeReadmit{NodeID: id, Now: g.nowNanos()})
		} else {
			g.applyAndCheck(state.Fence{NodeID: id, Session: fleet.FencedSession{
				Code: fleet.CodeFormerSession, Instance: fleet.InstanceID(g.nextEvalSeed()), Addr: "192.0.2.9:4000", Time: g.nowNanos(),
			}})
		}
	case 10:
		g.missHeartbeats(g.nodes[:1+g.drawInt(2, "nodes")]...)
	case 11:
		g.applyAndCheck(state.AllocStop{Allocs: g.someAllocs(), EvalSeed: g.nextEvalSeed(), Now: g.nowNanos()})
	case 12:
		g.deleteAny()
	case 14, 15:
		g.rolloutAny()
	case 13:
		g.applyAndCheck(state.NodeEligibility{NodeID: g.anyNode(), EvalSeed: g.nextEvalSeed(), Now: g.nowNanos(),
			Eligibility: rapid.SampledFrom([]string{fleet.NodeEligible, fleet.NodeIneligible}).Draw(g.T, "eligibility")})
	}
}

// admitAny makes a join token, revokes it, or admits a node by it.
func (g *generator) admitAny() {
	id, token := g.anyNode(), rapid.SampledFrom([]string{"pinned", "once"}).Draw(g.T, "token")
	switch g.drawInt(2, "admit") {
	case 0:
		g.applyAndCheck(state.Token{Token: state.JoinToken{ID: token, Hash: []byte{1}, Roles: []string{"edge"}, MaxUses: uint64(g.drawInt(1, "uses")),
			NodePool: rapid.SampledFrom([]string{"", "tills"}).Draw(g.T, "pool"), Site: rapid.SampledFrom([]string{"", "shop-17"}).Draw(g.T, "site")}})
	case 1:
		g.applyAndCheck(state.Token{Token: state.JoinToken{ID: token}})
	case 2:
		g.applyAndCheck(state.Certificate{Serial: g.nextTestID("serial"), Subject: "edge:" + string(id), Token: token, Key: []byte{byte(g.drawInt(2, "key"))}})
	}
}

func (g *generator) registerAny() {
	id := g.anyJob()
	j := job(id, fleet.JobTypeService, g.drawInt(3, "count"))
	if id == "night" {
		j.Type = fleet.JobTypeBatch
	}
	switch g.drawInt(3, "disconnect") {
	case 0:
		j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: ptr(10 * time.Minute)}
	case 1:
		j.TaskGroups[0].Disconnect = &fleet.Disconnect{Replace: ptr(false)}
	}
	g.applyAndCheck(state.JobRegister{Job: j, Eval: g.newEvaluation(fleet.TriggerJobRegister), Now: g.nowNanos()})
}

func (g *generator) placeAny() {
	id := g.anyJob()
	if _, ok := g.store.View().Job(fleet.DefaultNamespace, id); ok {
		g.placeAllocs(id, g.anyNode(), 1+g.drawInt(2, "places"))
	}
}

// decideAny commits a plan that concludes anything of anything.
func (g *generator) decideAny() {
	status := rapid.SampledFrom([]string{"", fleet.ClientUnknown, fleet.ClientLost, fleet.ClientRunning}).Draw(g.T, "status")
	var changed []fleet.Alloc
	for _, id := range g.someAllocs() {
		a := g.allocsWithStatus(status, id)[0]
		if g.drawInt(3, "stop") == 0 {
			a.DesiredStatus = fleet.DesiredStop
		}
		if j, ok := g.store.View().Job(a.Namespace, a.JobID); ok && g.drawInt(3, "in place") == 0 {
			a.JobVersion, a.JobHash = j.Version, j.SpecHash
		}
		changed = append(changed, a)
	}
	g.applyAndCheck(state.Plan{Result: fleet.PlanResult{NodeUpdate: byNode(changed...)}, Now: g.nowNanos()})
}

// replayAny journals transitions and sends a part of the journal. The part may overlap the applied rows, leave rows
// out, or come under an older epoch.
func (g *generator) replayAny() {
	id := g.anyNode()
	for a := range g.store.View().AllocsByNode(id) {
		if g.drawInt(1, "reports") == 0 {
			g.appendJournalRows(id, statusTransition(a.ID, rapid.SampledFrom([]string{fleet.ClientPending, fleet.ClientRunning,
				fleet.ClientComplete, fleet.ClientFailed}).Draw(g.T, "client status")))
		}
	}
	g.appendJournalRows(id, fleet.Transition{Kind: rapid.SampledFrom([]fleet.TransitionKind{fleet.TransitionAgent,
		fleet.TransitionDisconnect, fleet.TransitionReconnect}).Draw(g.T, "kind")})
	total := len(g.edges[id].rows)
	first := 1 + g.drawInt(total-1, "first")
	if g.drawInt(2, "exact") != 0 {
		first = int(g.getNode(id).Applied) + 1
	}
	if first > total {
		first = total
	}
	b := g.journalRows(id, first, first+g.drawInt(total-first, "length"))
	b.Epoch -= fleet.Epoch(g.drawInt(9, "stale") / 9)
	g.applyAndCheck(state.AllocUpdates{Batches: []state.NodeRows{b}, EvalSeed: g.nextEvalSeed(), Now: g.nowNanos()})
}

// rolloutAny begins a deployment, takes up allocations, or does to one what people
// and its watcher do.
func (g *generator) rolloutAny() {
	d := g.store.View().LatestDeployment(fleet.DefaultNamespace, g.anyJob())
	step := g.drawInt(6, "rollout")
	if d == nil || step == 0 {
		if j, ok := g.store.View().Job(fleet.DefaultNamespace, g.anyJob()); ok {
			g.startDeployment(j.ID, func(s *fleet.DeploymentState) { s.DesiredCanaries = g.drawInt(2, "canaries") })
		}
		return
	}
	eval := g.newEvaluation(fleet.TriggerDeploymentWatcher)
	switch step {
	case 1, 2:
		if _, ok := g.store.View().Job(d.Namespace, d.JobID); ok {
			g.placeIn(d, g.anyNode(), g.drawInt(1, "canary") == 0)
		}
	case 3:
		for a := range g.store.View().AllocsByDeployment(d.ID) {
			g.appendJournalRows(a.NodeID, healthTransition(a, g.drawInt(1, "healthy") == 0))
		}
		g.replayAny()
	case 4:
		g.applyAndCheck(state.DeploymentPromote{DeploymentID: d.ID, Eval: eval, Now: g.nowNanos()})
	case 5:
		status := rapid.SampledFrom([]string{fleet.DeploymentPaused, fleet.DeploymentRunning, fleet.DeploymentFailed, fleet.DeploymentSuccessful}).Draw(g.T, "status")
		g.applyAndCheck(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: d.ID, Status: status}, Eval: eval, Now: g.nowNanos()})
	case 6:
		g.applyAndCheck(state.DeploymentDelete{IDs: []fleet.DeploymentID{d.ID}})
	}
}

func (g *generator) deleteAny() {
	var c state.EvalDelete
	for e := range g.store.View().Evals("*", "") {
		if e.Terminal() {
			c.IDs = append(c.IDs, e.ID)
		}
	}
	for _, id := range g.someAllocs() {
		if a := g.getAlloc(id); a.ClientTerminal() && !a.OccupiesNode() {
			c.Allocs = append(c.Allocs, id)
		}
	}
	g.applyAndCheck(c)
}
