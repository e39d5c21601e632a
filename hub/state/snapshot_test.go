package state_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// furnished is a world with a row in every table.
func furnished(t tb) *storeHarness {
	w := newStoreHarness(t)
	for _, c := range samples() {
		switch c.(type) {
		case state.ClusterInit, state.Token, state.Certificate, state.Pool:
			w.mustApply(c)
		}
	}
	w.mustApply(state.Hub{Hub: state.HubAddr{ID: "hub-1", QUIC: "192.0.2.1:4647"}})
	a, b := w.addReadyNode("n1"), w.addReadyNode("n2")
	w.registerJob(job("shop", fleet.JobTypeService, 4))
	ids := append(w.placeAllocs("shop", a, 2), w.placeAllocs("shop", b, 2)...)
	w.reportStatus(a, fleet.ClientRunning, ids[:2]...)
	w.registerJob(job("shop", fleet.JobTypeService, 5))
	w.missHeartbeats(a)
	w.markAllocsUnknown(ids[:2]...)
	w.appendJournalRows(a, fleet.Transition{Kind: fleet.TransitionDisconnect}, statusTransition(ids[0], fleet.ClientFailed))
	w.openNextSession(a)
	w.applyRowBatches(w.journalRows(a, 3, 3))
	w.registerJob(job("gone", fleet.JobTypeBatch, 1))
	w.placeAllocs("gone", b, 1)
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "gone", Purge: true, Eval: w.newEvaluation(fleet.TriggerJobDeregister), Now: w.nowNanos()})
	w.registerJob(job("till", fleet.JobTypeService, 2))
	d := w.startDeployment("till", func(s *fleet.DeploymentState) { s.DesiredCanaries = 1 })
	w.reportHealthy(w.placeIn(d, b, true))
	w.mustApply(state.DeploymentPromote{DeploymentID: d.ID, Now: w.nowNanos()})
	w.mustApply(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: d.ID, Status: fleet.DeploymentSuccessful}, Now: w.nowNanos()})
	w.mustApply(state.Fence{NodeID: b, Session: fleet.FencedSession{Code: fleet.CodeCloned}, Rows: [][]byte{{1}}})
	w.mustApply(state.Fence{NodeID: b, Session: fleet.FencedSession{Code: fleet.CodeFormerSession, Instance: "i9", Addr: "192.0.2.9:4000"}})
	return w
}

func mustPersist(t tb, s *state.Store) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Persist(&b); err != nil {
		t.Fatalf("persist: %v", err)
	}
	return b.Bytes()
}

func TestSnapshotRestores(t *testing.T) {
	w := furnished(t)
	snapshot := mustPersist(t, w.store)
	restored := state.New()
	if err := restored.Restore(bytes.NewReader(snapshot)); err != nil {
		t.Fatal(err)
	}
	before, after := describe(t, w.store.View()), describe(t, restored.View())
	if before != after {
		t.Fatalf("restored state differs:\n%s", diff(before, after))
	}
	if again := mustPersist(t, restored); !bytes.Equal(again, snapshot) {
		t.Fatal("a restored state gives another snapshot")
	}
	// The restored store takes further entries like the original.
	c := state.NodeStatus{Nodes: []state.NodeMissed{}, Now: w.nowNanos()}
	for n := range w.store.View().Nodes("") {
		c.Nodes = append(c.Nodes, state.NodeMissed{NodeID: n.ID, Epoch: n.Epoch})
	}
	w.mustApply(c)
	restored.Apply(w.index, c)
	if before, after := describe(t, w.store.View()), describe(t, restored.View()); before != after {
		t.Fatalf("the restored state went on differently:\n%s", diff(before, after))
	}
}

// Persist writes the state of the moment of the call, whatever is applied meanwhile.
func TestSnapshotIsOfItsMoment(t *testing.T) {
	w := furnished(t)
	view := w.store.View()
	before := describe(t, view)
	w.registerJob(job("later", fleet.JobTypeService, 1))
	var b bytes.Buffer
	if err := view.Persist(&b); err != nil {
		t.Fatal(err)
	}
	restored := state.New()
	if err := restored.Restore(&b); err != nil {
		t.Fatal(err)
	}
	if after := describe(t, restored.View()); after != before {
		t.Fatalf("the snapshot has what came later:\n%s", diff(before, after))
	}
}

// A snapshot whose content is damaged anywhere is refused, and the state stays.
func TestSnapshotRefused(t *testing.T) {
	w := furnished(t)
	snapshot := mustPersist(t, w.store)
	target := state.New()
	target.Apply(1, state.Hub{Hub: state.HubAddr{ID: "mine"}})
	before := describe(t, target.View())
	refuse := func(name string, raw []byte) {
		t.Helper()
		if err := target.Restore(bytes.NewReader(raw)); err == nil {
			t.Errorf("%s was restored", name)
		}
		if describe(t, target.View()) != before {
			t.Fatalf("%s changed the state", name)
		}
	}
	refuse("nothing", nil)
	refuse("something else", []byte("PK\x03\x04 this is not it"))
	newer := bytes.Clone(snapshot)
	newer[8]++
	refuse("a newer version", newer)
	for n := 0; n < len(snapshot); n += 1 + len(snapshot)/50 {
		refuse("a truncated snapshot", snapshot[:n])
	}
	for n := 9; n < len(snapshot); n += 1 + len(snapshot)/50 {
		flipped := bytes.Clone(snapshot)
		flipped[n] ^= 0x10
		// A deflated stream has bits that say nothing, such as codes that no byte uses.
		target := state.New()
		if err := target.Restore(bytes.NewReader(flipped)); err == nil && describe(t, target.View()) != describe(t, w.store.View()) {
			t.Errorf("a snapshot with byte %d flipped was restored as another state", n)
		}
	}
}

// A snapshot without the record that the window of events has is refused: nothing would bound these events.
func TestEventsWithoutAWindowAreRefused(t *testing.T) {
	const windowRecord = 60
	records, err := io.ReadAll(flate.NewReader(bytes.NewReader(mustPersist(t, furnished(t).store)[9:])))
	if err != nil {
		t.Fatal(err)
	}
	var kept []byte
	for rest := records; len(rest) > 0; {
		n, head := binary.Uvarint(rest)
		size := uint64(head) + 1 + n
		if rest[head] != windowRecord {
			kept = append(kept, rest[:size]...)
		}
		rest = rest[size:]
	}
	if err := state.New().Restore(bytes.NewReader(state.Sealed(kept))); err == nil || !strings.Contains(err.Error(), "0 of 0 are counted") {
		t.Errorf("the snapshot is restored: %v", err)
	}
	if err := state.New().Restore(bytes.NewReader(state.Sealed(records))); err != nil {
		t.Errorf("the whole snapshot is refused: %v", err)
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(mustPersist(f, furnished(f).store))
	f.Add(mustPersist(f, state.New()))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := state.New()
		if err := s.Restore(bytes.NewReader(raw)); err != nil {
			return
		}
		if err := s.View().Check(); err != nil {
			t.Fatalf("a contradictory snapshot was restored: %v", err)
		}
	})
}

// changes runs Changed and returns what it gave, or nil while it waits.
func changes(v *state.View) <-chan error {
	out := make(chan error, 1)
	go func() { out <- v.Changed(context.Background()) }()
	return out
}

func TestWatchIsFine(t *testing.T) { synctest.Test(t, watchIsFine) }

func watchIsFine(t *testing.T) {
	w := newTestHarness(t)
	a, b := w.addReadyNode("n1"), w.addReadyNode("n2")
	w.registerJob(job("shop", fleet.JobTypeService, 4))
	w.registerJob(job("till", fleet.JobTypeService, 1))
	ids := append(w.placeAllocs("shop", a, 1), w.placeAllocs("shop", b, 1)...)
	till := w.placeAllocs("till", b, 1)

	reads := map[string]func(*state.View){
		"node a's allocations":  func(v *state.View) { v.AllocsByNode(a) },
		"node b's allocations":  func(v *state.View) { v.AllocsByNode(b) },
		"shop's allocations":    func(v *state.View) { v.AllocsByJob("default", "shop") },
		"till's allocations":    func(v *state.View) { v.AllocsByJob("default", "till") },
		"a's first allocation":  func(v *state.View) { v.Alloc(ids[0]) },
		"till's own allocation": func(v *state.View) { v.Alloc(till[0]) },
		"what a's edge hears":   func(v *state.View) { v.DesiredIndex(a) },
		"what b's edge hears":   func(v *state.View) { v.DesiredIndex(b) },
		"node a":                func(v *state.View) { v.Node(a) },
		"all nodes":             func(v *state.View) { v.Nodes("") },
		"all allocations":       func(v *state.View) { v.Allocs("*", "") },
		"evaluations":           func(v *state.View) { v.EvalsSince(0) },
		"shop's evaluations":    func(v *state.View) { v.EvalsByJob("default", "shop") },
		"till's evaluations":    func(v *state.View) { v.EvalsByJob("default", "till") },
		"job till":              func(v *state.View) { v.Job("default", "till") },
		"draining nodes":        func(v *state.View) { v.DrainingNodes() },
		"periodic jobs":         func(v *state.View) { v.PeriodicJobs() },
		"tokens":                func(v *state.View) { v.TableIndex("tokens") },
	}
	for _, c := range []struct {
		what  string
		do    func()
		wakes []string
	}{
		{"a report", func() { w.reportStatus(a, fleet.ClientRunning, ids[0]) },
			[]string{"node a's allocations", "shop's allocations", "a's first allocation", "node a", "all allocations"}},
		{"a stop", func() {
			stop := *w.getAlloc(till[0])
			stop.DesiredStatus = fleet.DesiredStop
			w.updateAllocs(stop)
		}, []string{"node b's allocations", "till's allocations", "till's own allocation", "what b's edge hears", "all allocations", "job till"}},
		{"an evaluation", func() {
			w.mustApply(state.Evals{Evals: []fleet.Evaluation{{ID: "e1", Namespace: "default", JobID: "shop", Status: fleet.EvalComplete}}})
		}, []string{"evaluations", "shop's evaluations", "shop's allocations"}},
		{"a session", func() { w.openNextSession(a) }, []string{"node a", "all nodes"}},
		{"a job", func() { w.registerJob(job("bakery", fleet.JobTypeService, 1)) }, []string{"evaluations"}},
		{"a periodic job", func() {
			j := job("nightly", fleet.JobTypeBatch, 1)
			j.Periodic = &fleet.Periodic{Enabled: true, SpecType: fleet.PeriodicCron, Specs: []string{"0 3 * * *"}}
			w.registerJob(j)
		}, []string{"evaluations", "periodic jobs"}},
		{"a drain", func() { w.startNodeDrain(b, time.Hour) }, []string{"all nodes", "draining nodes"}},
		{"a session of a node that is not drained", func() { w.openNextSession(a) }, []string{"node a", "all nodes"}},
		{"the end of a drain", func() { w.cancelNodeDrain(b, true) }, []string{"all nodes", "draining nodes"}},
	} {
		waits := map[string]<-chan error{}
		for name, read := range reads {
			v := w.store.Watch()
			read(v)
			waits[name] = changes(v)
		}
		c.do()
		synctest.Wait()
		for name, ch := range waits {
			woke := false
			select {
			case <-ch:
				woke = true
				delete(waits, name)
			default:
			}
			if want := slices.Contains(c.wakes, name); woke != want {
				t.Errorf("after %s, %s wakes: %t, want %t", c.what, name, woke, want)
			}
		}
		// Let the others go: a restored state wakes everybody.
		if err := w.store.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
			t.Fatal(err)
		}
		for _, ch := range waits {
			<-ch
		}
	}
}

func TestWaitIndex(t *testing.T) {
	w := newTestHarness(t)
	w.addReadyNode("n1")
	if err := w.store.WaitIndex(t.Context(), w.index); err != nil {
		t.Fatal(err)
	}
	done, next := make(chan error, 1), w.index+2
	go func() { done <- w.store.WaitIndex(context.Background(), next) }()
	w.addReadyNode("n2")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.store.WaitIndex(ctx, w.index+1); err == nil {
		t.Fatal("an entry that is not there was waited for")
	}
}

// The list of changes that a deployment keeps for its watcher is in no snapshot and in no digest.
func TestDigestOfARestoredDeployment(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	w.startDeployment("shop", func(*fleet.DeploymentState) {})
	w.reportStatus(n, fleet.ClientRunning, w.placeAllocs("shop", n, 2)...)
	restored := state.New()
	if err := restored.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if a, b := w.store.View().Digest(), restored.View().Digest(); a != b {
		t.Errorf("restored with digest %s, not %s", b, a)
	}
}
