package observe

import (
	"bytes"
	"cmp"
	"fmt"

	"skerry/chaos/check"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/hub/state"
)

// Hub converts the state of a hub for the checkers. histories adds the histories of nodes and allocations and a digest
// of the state, which are large and needed only in a FleetSnapshot.
func Hub(name string, v *state.View, histories bool) *check.Hub {
	h := &check.Hub{Name: name, Index: v.Index()}
	for n := range v.Nodes("") {
		h.Nodes = append(h.Nodes, *n)
	}
	for a := range v.Allocs("*", "") {
		h.Allocs = append(h.Allocs, *a)
	}
	for e := range v.Evals("*", "") {
		h.Evals = append(h.Evals, *e)
	}
	for d := range v.Deployments("*", "") {
		if d.Active() {
			h.Deployments = append(h.Deployments, *d)
		}
	}
	h.Catalogue = &check.Catalogue{Index: v.TableIndex("services")}
	for s := range v.Services("*", "", "") {
		h.Catalogue.Offers = append(h.Catalogue.Offers, check.Offer{Service: s.ServiceName, Alloc: s.AllocID, Status: s.Status})
	}
	h.RepeatedActions = repeatedActions(v)
	if !histories {
		return h
	}
	h.State = v.Digest()
	h.NodeHistory, h.AllocHistory = map[fleet.NodeID][]fleet.HistoryEntry{}, map[fleet.AllocID][]fleet.HistoryEntry{}
	h.Dropped = map[fleet.AllocID]uint64{}
	for _, n := range h.Nodes {
		h.NodeHistory[n.ID] = v.NodeHistory(n.ID)
	}
	for _, a := range h.Allocs {
		h.AllocHistory[a.ID], h.Dropped[a.ID] = v.History(a.ID), v.HistoryDropped(a.ID)
	}
	return h
}

// repeatedActions describes the actions on edges that the state has more than once: each line of an edge's audit is there
// once.
func repeatedActions(v *state.View) []string {
	type line struct {
		node  fleet.NodeID
		chain string
		seq   uint64
	}
	seen := map[line]int{}
	var repeated []string
	for a := range v.SiteActions(0) {
		l := line{a.NodeID, a.Action.Chain, a.Action.Seq}
		if seen[l]++; seen[l] == 2 {
			repeated = append(repeated, fmt.Sprintf("line %d of the audit %s of %s", l.seq, l.chain, a.NodeName))
		}
	}
	return repeated
}

// Snapshot writes a hub's state as a snapshot, restores it into a second state in memory, and returns the
// digests of both. The hub does not change.
func Snapshot(name string, v *state.View) *check.Snapshot {
	seen := &check.Snapshot{Hub: name, Index: v.Index(), State: v.Digest()}
	var file bytes.Buffer
	again := state.New()
	if err := cmp.Or(v.Persist(&file), again.Restore(&file)); err != nil {
		seen.Failed = err.Error()
		return seen
	}
	seen.Restored = again.View().Digest()
	return seen
}

// Edge converts the state of an edge for the checkers. rows are the rows of its journal that are new since the
// last poll.
func Edge(name string, id fleet.NodeID, link local.Link, journal local.Journal, rows []fleet.Transition) *check.Edge {
	return &check.Edge{
		Name: name, NodeID: id, Rows: rows,
		Link: &check.Link{
			Connected: link.State == "connected", Session: link.Session, Status: fleet.NodeStatus(link.Status),
			Away: link.Away, NextTry: link.NextTry, WentBack: link.WentBack, Fenced: link.Fenced,
		},
		Journal: &check.Journal{
			First: journal.First, Last: journal.Last, Acknowledged: journal.Acknowledged,
			Bytes: journal.Bytes, Dropped: journal.Dropped, Lost: journal.Lost,
		},
	}
}
