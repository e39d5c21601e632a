package collector_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/collector"
	"skerry/hub/state"
)

// A prefetch ends when nobody can wait for it any more, and not before.
func TestPrefetchesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*harness)
		ends   bool
	}{
		"nothing changed":    {func(*harness) {}, false},
		"a newer version":    {func(w *harness) { w.registerTestJob("shop", fleet.JobTypeService, true) }, false},
		"29 days":            {func(w *harness) { w.now = w.now.Add(29 * 24 * time.Hour) }, false},
		"30 days":            {func(w *harness) { w.now = w.now.Add(30 * 24 * time.Hour) }, true},
		"the job is stopped": {func(w *harness) { w.deregisterJob("shop") }, true},
		"the job is purged": {func(w *harness) {
			w.mustApplyEncoded(state.JobDeregister{Namespace: "default", ID: "shop", Purge: true})
		}, true},
		"the node is purged":     {func(w *harness) { w.loseNode(nodeID); w.purgeNode() }, true},
		"the node is revoked":    {func(w *harness) { w.mustApplyEncoded(state.NodeRevoke{NodeID: nodeID, EvalSeed: "s"}) }, true},
		"it was purged and made": {func(w *harness) { w.purgeAndRegister("shop") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			w.registerTestJob("shop", fleet.JobTypeService, true)
			w.mustApplyEncoded(state.PrefetchStore{Namespace: "default", JobID: "shop", Nodes: []fleet.NodeID{nodeID}, Now: w.nowUnixNano()})
			c.change(w)
			ended := collector.Choose(w.View(), w.now, collector.Thresholds{}).Prefetches
			if len(ended) == 1 != c.ends {
				t.Fatalf("ended %+v\n%s", ended, w.describeState())
			}
			if !c.ends {
				return
			}
			w.mustApplyEncoded(state.PrefetchEnd{Prefetches: ended, Now: w.nowUnixNano()})
			if again := collector.Choose(w.View(), w.now, collector.Thresholds{}).Prefetches; len(again) != 0 {
				t.Errorf("ended once more: %+v", again)
			}
		})
	}
}

// purgeAndRegister replaces a job by another one of the same id.
func (w *harness) purgeAndRegister(id fleet.JobID) {
	w.Helper()
	w.mustApplyEncoded(state.JobDeregister{Namespace: "default", ID: id, Purge: true})
	w.mustApplyEncoded(state.JobRegister{Job: &fleet.Job{
		Namespace: "default", ID: id, Type: fleet.JobTypeService, Priority: 60,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}}}},
	}, Now: w.nowUnixNano()})
}
