package state_test

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// clustered is a world whose cluster is made.
func clustered(t tb) *storeHarness {
	w := newStoreHarness(t)
	w.mustApply(state.ClusterInit{Cluster: state.Cluster{ID: "c1", Region: "global"}})
	w.mustApply(state.Hub{Hub: state.HubAddr{ID: "hub-1", QUIC: "192.0.2.1:4647"}})
	return w
}

// stageSnapshot has a file in the log, in pieces, as restore says.
func (w *storeHarness) stageSnapshot(restore string, file []byte) state.SnapshotRestore {
	w.Helper()
	number := uint64(0)
	for piece := range slices.Chunk(file, 700) {
		w.mustApply(state.SnapshotPart{Restore: restore, Number: number, Data: piece})
		number++
	}
	sum := sha256.Sum256(file)
	return state.SnapshotRestore{Restore: restore, Size: int64(len(file)), Sum: sum[:], EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()}
}

func (w *storeHarness) restoreSnapshot(file []byte) {
	w.Helper()
	w.mustApply(w.stageSnapshot(w.nextTestID("restore"), file))
}

// replayLog applies the whole log to an empty state, as a hub that starts does.
func (w *storeHarness) replayLog() *state.Store {
	w.Helper()
	s := state.New()
	for i, raw := range w.log {
		c, err := state.Decode(raw)
		if err != nil {
			w.Fatalf("decode entry %d: %v", i+1, err)
		}
		s.Apply(fleet.Index(i+1), c)
	}
	return s
}

// A restore brings the desired state back. It undoes neither the membership of the cluster nor events: the edge's rows
// from after the snapshot are read again, and an allocation that has ended stays ended.
func TestRestoreOverALivingState(t *testing.T) {
	w := clustered(newTestHarness(t))
	a, b := w.addReadyNode("n1"), w.addReadyNode("n2")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	w.registerJob(job("count", fleet.JobTypeBatch, 1))
	shop := w.placeAllocs("shop", a, 1)
	count := w.placeAllocs("count", a, 1)
	w.reportStatus(a, fleet.ClientRunning, shop[0], count[0])
	w.registerJob(job("later", fleet.JobTypeBatch, 1)) // its evaluation is open in the snapshot
	at := w.index
	snapshot := mustPersist(t, w.store)

	w.registerJob(job("extra", fleet.JobTypeService, 1))
	extra := w.placeAllocs("extra", b, 1)
	w.reportStatus(b, fleet.ClientRunning, extra[0])
	w.reportStatus(a, fleet.ClientComplete, count[0])
	bigger := job("shop", fleet.JobTypeService, 5)
	w.registerJob(bigger)
	c := w.addReadyNode("n3")
	w.mustApply(state.Hub{Hub: state.HubAddr{ID: "hub-2", QUIC: "192.0.2.2:4647"}})
	w.mustApply(state.Token{Token: state.JoinToken{ID: "later", Hash: []byte{1}}})
	w.moveClockForward(time.Hour)
	epochs := map[fleet.NodeID]fleet.Epoch{a: w.edges[a].epoch, c: w.edges[c].epoch}
	watch := w.store.Watch()
	watch.Node(a)

	w.restoreSnapshot(snapshot)

	v := w.store.View()
	if err := watch.Changed(t.Context()); err != nil {
		t.Error(err)
	}
	if got := v.Restored(); got != (state.Restored{Index: w.index, From: at, Time: w.nowNanos()}) {
		t.Errorf("the state says of its restore: %+v", got)
	}
	if _, under := v.Restoring(); under {
		t.Error("the parts of the snapshot are still there")
	}
	if j := w.getJob("shop"); j.TaskGroups[0].Count != 2 || j.Version != 0 {
		t.Errorf("shop has version %d and count %d", j.Version, j.TaskGroups[0].Count)
	}
	if _, ok := v.Job(fleet.DefaultNamespace, "extra"); ok {
		t.Error("a job of after the snapshot is there")
	}
	if _, ok := v.Hub("hub-2"); !ok || len(v.Hubs()) != 2 {
		t.Error("a hub that joined after the snapshot is forgotten")
	}
	if _, ok := v.Token("later"); !ok {
		t.Error("a join token made after the snapshot is forgotten")
	}
	for _, table := range []string{"jobs", "nodes", "allocs", "evals", "deployments"} {
		if got := v.TableIndex(table); got != w.index {
			t.Errorf("table %s is as of entry %d: who waited for a later one waits on", table, got)
		}
	}
	for _, e := range w.openEvalsOf("later") {
		if e.ModifyIndex != w.index {
			t.Errorf("an open evaluation is of entry %d: a worker could look at a state of before", e.ModifyIndex)
		}
	}
	if v.EventsFloor() != w.index-1 {
		t.Errorf("events go back to entry %d, the restore is entry %d", v.EventsFloor(), w.index)
	}

	// The sessions of before are over, and no node is ready before its edge has come.
	n := w.getNode(a)
	if n.Status != fleet.NodeInitializing || n.Epoch <= epochs[a] || n.Applied != 2 {
		t.Fatalf("node n1 is %s at epoch %d, row %d", n.Status, n.Epoch, n.Applied)
	}
	if res := w.applyRowBatches(w.journalRows(a, 3, 3)); res[0].Code != fleet.CodeStaleEpoch {
		t.Errorf("rows of a session of before were taken: %+v", res[0])
	}
	w.wantStatus(count[0], fleet.ClientComplete, fleet.ClientComplete)
	w.wantStatus(shop[0], fleet.ClientRunning, fleet.ClientRunning)

	// The edge comes back, and sends again the rows that the cluster lost.
	if w.openNextSession(a); w.getNode(a).Status != fleet.NodeInitializing {
		t.Fatal("the node is ready before its history is in")
	}
	if res := w.applyRowBatches(w.unappliedBatch(a)); res[0].Code != "" || res[0].Applied != 3 || res[0].Status != fleet.NodeReady {
		t.Fatalf("the edge's rows of after the snapshot: %+v", res[0])
	}
	w.wantStatus(count[0], fleet.ClientComplete, fleet.ClientComplete)
	if got, want := w.historyEvents(count[0]), "placed, running, cluster restored, ended before the restore, session"; !strings.Contains(got, "complete") {
		t.Errorf("the record says %s; want something like %s, complete", got, want)
	}

	// A node that enrolled after the snapshot stays a member of the cluster.
	if n := w.getNode(c); n.Epoch <= epochs[c] || n.Status != fleet.NodeInitializing {
		t.Errorf("a node that enrolled since is %s, at epoch %d, and was at %d", n.Status, n.Epoch, epochs[c])
	}
	if got, want := w.replayLog().View().Digest(), w.store.View().Digest(); got != want {
		t.Error("a hub that reads the same log comes to another state")
	}
}

// A hub that starts from its own snapshot in the midst of a restore ends in the same state as the others.
func TestRestoreGoesOnFromASnapshot(t *testing.T) {
	w := clustered(newTestHarness(t))
	w.addReadyNode("n1")
	file := mustPersist(t, w.store)
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	last := w.stageSnapshot("r", file)
	restarted := state.New()
	if err := restarted.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if id, ok := restarted.View().Restoring(); !ok || id != "r" {
		t.Fatalf("the restore under way is %q, %t", id, ok)
	}
	w.mustApply(last)
	if res := restarted.Apply(w.index, last); res.Err != nil {
		t.Fatal(res.Err)
	}
	if describe(t, restarted.View()) != describe(t, w.store.View()) || restarted.View().Digest() != w.store.View().Digest() {
		t.Errorf("it came to another state:\n%s", diff(describe(t, w.store.View()), describe(t, restarted.View())))
	}
}

// An allocation whose record was collected counts as ended. An allocation that the state never heard of, because an
// earlier restore forgot it, may run.
func TestRestoreOfWhatWasCollected(t *testing.T) {
	w := clustered(newTestHarness(t))
	a := w.addReadyNode("n1")
	early := mustPersist(t, w.store)
	w.registerJob(job("count", fleet.JobTypeBatch, 2))
	ids := w.placeAllocs("count", a, 2)
	w.reportStatus(a, fleet.ClientRunning, ids...)
	file := mustPersist(t, w.store)
	w.reportStatus(a, fleet.ClientComplete, ids[0])
	w.mustApply(state.EvalDelete{Allocs: ids[:1]})

	w.restoreSnapshot(file)
	w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)
	w.wantStatus(ids[1], fleet.ClientRunning, fleet.ClientRunning)
	w.openNextSession(a)
	w.applyRowBatches(w.unappliedBatch(a))
	w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)

	w.restoreSnapshot(early)
	if _, ok := w.store.View().Alloc(ids[1]); ok {
		t.Fatal("the early snapshot has allocations")
	}
	w.restoreSnapshot(file)
	w.wantStatus(ids[1], fleet.ClientRunning, fleet.ClientRunning)
}

// Hubs that start from older directories give out indexes a second time. A restore of a snapshot from the forgotten
// time takes no unknown allocation that runs for a collected one.
func TestRestoreOfWhatRunsUnknown(t *testing.T) {
	w := clustered(newTestHarness(t))
	a := w.addReadyNode("n1")
	early, then := mustPersist(t, w.store), w.index
	w.registerJob(job("count", fleet.JobTypeBatch, 2))
	ids := w.placeAllocs("count", a, 2)
	w.reportStatus(a, fleet.ClientRunning, ids...)
	file, later := mustPersist(t, w.store), w.index

	w.store, w.index = state.New(), then
	if err := w.store.Restore(bytes.NewReader(early)); err != nil {
		t.Fatal(err)
	}
	w.mustApply(state.NodeResync{NodeID: a, Epoch: w.getNode(a).Epoch, Reason: "keeps an allocation", Orphans: ids[:1], Now: w.nowNanos()})
	for w.index <= later {
		w.registerJob(job("other", fleet.JobTypeService, int(w.index)))
	}
	w.restoreSnapshot(file)
	w.wantStatus(ids[0], fleet.ClientRunning, fleet.ClientRunning)
	w.wantStatus(ids[1], fleet.ClientComplete, fleet.ClientComplete)
}

// TestManyRestoresForgetWhatTheyForgot restores a cluster more often than the state lists restores one by one: an
// allocation of any forgotten time may still run, and is not taken for a collected one.
func TestManyRestoresForgetWhatTheyForgot(t *testing.T) {
	w := clustered(newTestHarness(t))
	node := w.addReadyNode("n1")
	var files [][]byte
	var ids []fleet.AllocID
	for i := range 70 {
		early := mustPersist(t, w.store)
		id := fleet.JobID(fmt.Sprint("count", i))
		w.registerJob(job(id, fleet.JobTypeBatch, 1))
		ids = append(ids, w.placeAllocs(id, node, 1)...)
		files = append(files, mustPersist(t, w.store))
		w.restoreSnapshot(early)
	}
	last, at := mustPersist(t, w.store), w.index
	for _, i := range []int{0, 1, 2, 6, 7, 69} {
		w.store, w.index = state.New(), at
		if err := w.store.Restore(bytes.NewReader(last)); err != nil {
			t.Fatal(err)
		}
		w.restoreSnapshot(files[i])
		w.wantStatus(ids[i], fleet.ClientPending, "")
	}
}

// A restore keeps each allocation that was placed after the snapshot if the snapshot has its job, whatever its version
// and node, so that it is not placed once more. An allocation of any other job becomes unknown to the state.
func TestRestoreKeepsWhatWasPlaced(t *testing.T) {
	w := clustered(newTestHarness(t))
	a := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	w.registerJob(job("count", fleet.JobTypeBatch, 1))
	first := w.placeAllocs("shop", a, 1)
	w.reportStatus(a, fleet.ClientRunning, first...)
	file := mustPersist(t, w.store)

	b := w.addReadyNode("n2")
	next := job("shop", fleet.JobTypeService, 2)
	next.TaskGroups[0].Tasks[0].Config = map[string]any{"run_for": "9h"}
	w.registerJob(next)
	second := w.placeAllocs("shop", b, 2)
	counted := w.placeAllocs("count", a, 1)
	w.registerJob(job("extra", fleet.JobTypeService, 1))
	extra := w.placeAllocs("extra", a, 1)
	w.reportStatus(b, fleet.ClientRunning, second...)
	w.reportStatus(a, fleet.ClientRunning, append(counted, extra...)...)
	w.reportStatus(a, fleet.ClientComplete, counted...)
	used := w.store.View().Used(b)

	w.restoreSnapshot(file)
	if j := w.getJob("shop"); j.Version != 0 {
		t.Errorf("shop is at version %d", j.Version)
	}
	for _, id := range second {
		if got := w.getAlloc(id); got.JobVersion != 1 || got.ClientStatus != fleet.ClientRunning || got.Job.TaskGroups[0].Count != 2 {
			t.Errorf("an allocation of a version that is forgotten: %+v", got)
		}
	}
	if now := w.store.View().Used(b); now != used {
		t.Errorf("%+v of its node is taken, was %+v", now, used)
	}
	w.wantStatus(counted[0], fleet.ClientComplete, fleet.ClientComplete)
	if _, ok := w.store.View().Alloc(extra[0]); ok {
		t.Error("an allocation of a job that is forgotten is known")
	}
	if len(w.openEvalsOf("shop")) == 0 || len(w.openEvalsOf("count")) == 0 {
		t.Error("nobody looks at jobs whose allocations are others than the snapshot's")
	}
	w.openNextSession(a)
	w.applyRowBatches(w.unappliedBatch(a))
	w.wantStatus(counted[0], fleet.ClientComplete, fleet.ClientComplete)
	if got := w.historyEvents(counted[0]); !strings.Contains(got, "running, complete") || strings.Count(got, "running") != 1 {
		t.Errorf("its record says %s", got)
	}
	if got, want := w.replayLog().View().Digest(), w.store.View().Digest(); got != want {
		t.Error("a hub that reads the same log comes to another state")
	}
	// An allocation of the forgotten version can be lost like any other.
	w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, second...)...)
}

// After a restore a launched time is not launched again, the cluster waits for a node that came back after the
// snapshot, and the progress deadline of a deployment begins again.
func TestRestoreKeepsTime(t *testing.T) {
	w := clustered(newTestHarness(t))
	a, b := w.addReadyNode("n1"), w.addReadyNode("n2")
	nightly := job("nightly", fleet.JobTypeBatch, 1)
	nightly.Periodic = &fleet.Periodic{Enabled: true, Spec: "0 2 * * *"}
	w.registerJob(nightly)
	launch := func(at time.Time) state.Result {
		j := w.getJob(nightly.ID)
		return w.applyAndCheck(state.PeriodicLaunch{
			Namespace: j.Namespace, ID: j.ID, JobModifyIndex: j.JobModifyIndex, Launched: at.UnixNano(),
			Child: j.Child(fleet.LaunchID(j.ID, at), w.now), Eval: w.newEvaluation(fleet.TriggerPeriodicJob), Now: w.nowNanos(),
		})
	}
	w.registerJob(job("till", fleet.JobTypeService, 2))
	d := w.startDeployment("till", func(s *fleet.DeploymentState) { s.ProgressDeadline = 10 * time.Minute })
	placed := w.placeIn(d, b, false).ID
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	away := w.placeAllocs("shop", a, 1)
	w.reportStatus(a, fleet.ClientRunning, away...)
	w.missHeartbeats(a)
	w.markAllocsUnknown(away...)
	file := mustPersist(t, w.store)
	by := func() time.Time {
		d, _ := w.store.View().Deployment(w.getAlloc(placed).DeploymentID)
		return d.TaskGroups["web"].RequireProgressBy
	}
	if by().IsZero() {
		t.Fatal("the deployment has no deadline")
	}
	w.openNextSession(a)
	w.moveClockForward(2 * time.Hour)
	launched := w.now
	if res := launch(launched); res.Err != nil {
		t.Fatal(res.Err)
	}

	w.restoreSnapshot(file)
	if res := launch(launched); fleet.CodeOf(asError(res.Err)) != fleet.CodeConflict {
		t.Errorf("a time that was launched is launched again: %v", res.Err)
	}
	if want := w.now.Add(10 * time.Minute); !by().Equal(want) {
		t.Errorf("the deployment has to progress by %s, want %s", by(), want)
	}
	if n := w.getNode(a); n.Status != fleet.NodeInitializing || n.DisconnectedAt != 0 {
		t.Errorf("a node that was connected is %s", n.Status)
	}
	w.openNextSession(a)
	w.wantStatus(away[0], fleet.ClientRunning, fleet.ClientRunning)

	// A node that is away now as well stays disconnected.
	w.missHeartbeats(a)
	w.restoreSnapshot(file)
	if n := w.getNode(a); n.Status != fleet.NodeDisconnected {
		t.Errorf("a node that is away is %s", n.Status)
	}
}

// A snapshot that cannot be restored is refused with a reason, and changes nothing.
func TestRestoreRefused(t *testing.T) {
	w := clustered(newTestHarness(t))
	w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	file := mustPersist(t, w.store)
	other := newStoreHarness(t)
	other.mustApply(state.ClusterInit{Cluster: state.Cluster{ID: "c2"}})
	foreign := mustPersist(t, other.store)
	flipped := bytes.Clone(file)
	flipped[len(flipped)-20] ^= 1

	for _, c := range []struct {
		name             string
		file             []byte
		code             fleet.Code
		statusTransition string
	}{
		{"damaged", flipped, fleet.CodeInvalid, "snapshot"},
		{"truncated", file[:len(file)*2/3], fleet.CodeInvalid, "truncated"},
		{"none", []byte("PK\x03\x04 a zip file"), fleet.CodeInvalid, "not a snapshot"},
		{"foreign", foreign, fleet.CodeConflict, "cluster c2"},
		{"of no cluster", mustPersist(t, state.New()), fleet.CodeInvalid, "no cluster"},
		{"a newer release's", append([]byte("SKERRYST\x09"), file[9:]...), fleet.CodeVersion, "version 9"},
	} {
		res := w.mustRefuse(c.code, w.stageSnapshot("r", c.file))
		if !strings.Contains(res.Err.Message, c.statusTransition) {
			t.Errorf("%s: %v", c.name, res.Err)
		}
		if _, err := w.store.View().TryRestore(bytes.NewReader(c.file), w.nowNanos()); fleet.CodeOf(err) != c.code {
			t.Errorf("rehearsing one that is %s: %v", c.name, err)
		}
	}

	whole := w.stageSnapshot("whole", file)
	for _, c := range []func(*state.SnapshotRestore){
		func(c *state.SnapshotRestore) { c.Restore = "another" },
		func(c *state.SnapshotRestore) { c.Size++ },
		func(c *state.SnapshotRestore) { c.Sum = []byte{1} },
	} {
		bad := whole
		c(&bad)
		w.mustRefuse(fleet.CodeConflict, bad)
	}
	w.mustRefuse(fleet.CodeConflict, state.SnapshotPart{Restore: "another", Number: 3, Data: []byte{1}})
	w.mustRefuse(fleet.CodeInvalid, state.SnapshotPart{Restore: "whole", Number: 0})
	w.mustRefuse(fleet.CodeInvalid, state.SnapshotPart{Restore: "whole", Number: 1 << 40, Data: []byte{1}})
	w.mustApply(state.SnapshotDrop{Restore: "another"})
	w.mustApply(whole)

	// A snapshot of later entries than the state has: the hubs started from older directories since.
	young := newStoreHarness(t)
	young.mustApply(state.ClusterInit{Cluster: state.Cluster{ID: "c1"}})
	late := young.stageSnapshot("r", file)
	if int(young.index) < len(w.log) {
		young.mustRefuse(fleet.CodeConflict, late)
	}
	w.stageSnapshot("dropped", file)
	w.mustApply(state.SnapshotDrop{})
	if _, under := w.store.View().Restoring(); under {
		t.Error("parts that were dropped are there")
	}
}

// FuzzRehearse tries to restore any bytes: they are refused, or the restored state passes Check. Half of the inputs
// are records that get a right checksum, because a wrong one would hide them.
func FuzzRehearse(f *testing.F) {
	w := furnished(f)
	file := mustPersist(f, w.store)
	records := inflate(f, file[9:])
	f.Add(file, false)
	f.Add(records, true)
	f.Fuzz(func(t *testing.T, raw []byte, bare bool) {
		if bare {
			raw = state.Sealed(raw)
		}
		v, err := w.store.View().TryRestore(bytes.NewReader(raw), w.nowNanos())
		if err != nil {
			if code := fleet.CodeOf(err); code != fleet.CodeInvalid && code != fleet.CodeConflict && code != fleet.CodeVersion {
				t.Fatalf("refused with %s: %v", code, err)
			}
			return
		}
		if err := v.Check(); err != nil {
			t.Fatalf("restored to a contradiction: %v", err)
		}
	})
}

func inflate(t tb, b []byte) []byte {
	var out bytes.Buffer
	if _, err := out.ReadFrom(flate.NewReader(bytes.NewReader(b))); err != nil {
		t.Fatalf("inflate: %v", err)
	}
	return out.Bytes()
}

// Snapshots with a right checksum and damaged records are refused or restored; none causes a panic.
func TestRehearseDamagedRecords(t *testing.T) {
	w := furnished(newTestHarness(t))
	records := inflate(t, mustPersist(t, w.store)[9:])
	rnd := rand.New(rand.NewPCG(1, 2))
	restored := 0
	for range damages {
		raw := bytes.Clone(records)
		for range 1 + rnd.IntN(3) {
			raw[rnd.IntN(len(raw))] = byte(rnd.UintN(256))
		}
		v, err := w.store.View().TryRestore(bytes.NewReader(state.Sealed(raw)), w.nowNanos())
		if err != nil {
			continue
		}
		restored++
		if err := v.Check(); err != nil {
			t.Fatalf("restored to a contradiction: %v", err)
		}
	}
	if restored == 0 || restored == damages {
		t.Errorf("%d of %d were restored: nothing is tried out", restored, damages)
	}
}

const damages = 400
