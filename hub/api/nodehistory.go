package api

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/timeline"
	"skerry/hub/state"
)

// nodeHistory answers with the history of a node. With allocations=true it merges the histories of the node's
// allocations into it. The parameters since and until limit the time.
func (a *API) nodeHistory(v *state.View, r *http.Request, _ query, n *fleet.Node) (any, fleet.Index, error) {
	withAllocs, err := queryFlag(r, "allocations", false)
	if err != nil {
		return nil, 0, err
	}
	since, until, err := timeRange(r)
	if err != nil {
		return nil, 0, err
	}
	entries, index := v.NodeHistory(n.ID), max(n.ModifyIndex, 1)
	if withAllocs {
		entries, index = nodeTimeline(v, n.ID, entries, grantOf(r)), v.Index()
	}
	entries = slices.DeleteFunc(entries, func(e fleet.HistoryEntry) bool {
		return e.Time.Before(since) || !until.IsZero() && e.Time.After(until)
	})
	return entries, index, nil
}

// nodeTimeline merges a node's own history and those of its allocations of which the grant may know. Hubs record a lost or returned node in all
// of these; the result has each such event once.
func nodeTimeline(v *state.View, id fleet.NodeID, own []fleet.HistoryEntry, g *grant) []fleet.HistoryEntry {
	type decision struct {
		index fleet.Index
		event string
	}
	noted := map[decision]bool{}
	entries := nameAsAllocs(own)
	for _, e := range entries {
		noted[decision{e.Index, e.Event}] = true
	}
	for al := range v.AllocsByNode(id) {
		if !g.allowsItem(al) {
			continue
		}
		for _, e := range v.History(al.ID) {
			what := decision{e.Index, e.Event}
			ofNode := e.Side == fleet.SideHub && strings.HasPrefix(e.Event, nodeEventPrefix)
			if ofNode && noted[what] {
				continue
			}
			noted[what] = noted[what] || ofNode
			entries = append(entries, e)
		}
	}
	slices.SortStableFunc(entries, func(x, y fleet.HistoryEntry) int {
		if order := cmp.Compare(x.Side, y.Side); order != 0 {
			return order
		}
		if x.Transition != nil && y.Transition != nil {
			return cmp.Compare(x.Transition.Seq, y.Transition.Seq)
		}
		return cmp.Compare(x.Index, y.Index)
	})
	return timeline.Order(entries)
}

// nodeEventPrefix begins the names of the events that hubs record about a node in the histories of its allocations.
const nodeEventPrefix = "node "

// nameAsAllocs returns a copy of a node's history in which lost and returned nodes have the event names that the
// histories of allocations have for them.
func nameAsAllocs(own []fleet.HistoryEntry) []fleet.HistoryEntry {
	entries := slices.Clone(own)
	away := false
	for i, e := range entries {
		if e.Side != fleet.SideHub {
			continue
		}
		switch status := fleet.NodeStatus(e.Event); {
		case status == fleet.NodeDisconnected, status == fleet.NodeDown:
			away = true
			entries[i].Event = nodeEventPrefix + e.Event
		case status == fleet.NodeReady:
			entries[i].Event = nodeEventPrefix + e.Event
		case e.Event == "session" && away:
			away = false
			entries[i].Event = fleet.EventNodeReconnected
		}
	}
	return entries
}

// timeRange reads the parameters since and until in RFC 3339. A zero time means no bound.
func timeRange(r *http.Request) (since, until time.Time, err error) {
	for name, at := range map[string]*time.Time{"since": &since, "until": &until} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		if *at, err = time.Parse(time.RFC3339, text); err != nil {
			return since, until, fleet.Errorf(fleet.CodeInvalid, "read the parameter %s: %q is not a time", name, text).
				WithHint("write it as RFC 3339, for example 2026-05-01T02:10:00Z")
		}
	}
	if !until.IsZero() && until.Before(since) {
		return since, until, fleet.Errorf(fleet.CodeInvalid, "read the parameters since and until: %s ends before it begins", r.URL.RawQuery)
	}
	return since, until, nil
}
