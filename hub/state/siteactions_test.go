package state_test

import (
	"fmt"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// reportSite has an edge report actions of its audit: each is CHAIN and the number of the line.
func (w *storeHarness) reportSite(node fleet.NodeID, chain string, seqs ...uint64) {
	w.Helper()
	for _, seq := range seqs {
		w.appendJournalRows(node, fleet.Transition{Kind: fleet.TransitionSite, Message: "anna: stop", Site: &fleet.SiteAction{
			Seq: seq, Chain: chain, Time: w.now, Verb: "stop", Object: "1d697ed5", User: "anna", UID: "1000",
		}})
	}
	if res := w.applyRowBatches(w.unappliedBatch(node)); res[0].Code != "" {
		w.Fatalf("the rows are refused: %+v", res)
	}
}

// wantSiteActions checks the actions after a number, each as NUMBER:CHAIN/LINE.
func (w *storeHarness) wantSiteActions(after uint64, want ...string) {
	w.Helper()
	var got []string
	for a := range w.store.View().SiteActions(after) {
		got = append(got, fmt.Sprintf("%d:%s/%d", a.Number, a.Action.Chain, a.Action.Seq))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("actions %v, want %v", got, want)
	}
}

// TestSiteActionsAreKeptOnce keeps the actions of all edges in order, and each once: also if an edge reports them again
// because its journal lost rows, and after a restore of a snapshot that lacks them.
func TestSiteActionsAreKeptOnce(t *testing.T) {
	w := furnished(t)
	a, b := w.addReadyNode("edge-a"), w.addReadyNode("edge-b")
	w.wantSiteActions(0)
	w.reportSite(a, "x", 1, 2)
	snapshot := mustPersist(t, w.store)
	w.reportSite(b, "y", 1)
	w.reportSite(a, "x", 2, 3)
	w.wantSiteActions(0, "1:x/1", "2:x/2", "3:y/1", "4:x/3")
	w.wantSiteActions(2, "3:y/1", "4:x/3")
	w.reportSite(a, "x", 1, 2, 3)
	w.reportSite(b, "z", 1) // that edge lost its audit
	w.wantSiteActions(4, "5:z/1")
	w.restoreSnapshot(snapshot)
	w.wantSiteActions(0, "1:x/1", "2:x/2", "3:y/1", "4:x/3", "5:z/1")
	for r := range w.store.View().SiteActions(4) {
		if r.NodeID != b || r.NodeName != "edge-b" || r.Action.User != "anna" || r.Reported == 0 {
			t.Errorf("the action is %+v", r)
		}
	}
}

// TestSiteActionsAreBounded drops the oldest ones.
func TestSiteActionsAreBounded(t *testing.T) {
	w := furnished(t)
	node := w.addReadyNode("edge-a")
	var seqs []uint64
	for seq := range uint64(state.MaxSiteActions + 5) {
		seqs = append(seqs, seq+1)
	}
	w.reportSite(node, "x", seqs...)
	w.reportSite(node, "x", seqs[len(seqs)-1]+1)
	first := uint64(0)
	for r := range w.store.View().SiteActions(0) {
		first = r.Number
		break
	}
	if first != 7 {
		t.Errorf("the oldest action is %d, want 7 of %d", first, len(seqs)+1)
	}
}
