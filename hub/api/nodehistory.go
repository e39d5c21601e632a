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

// nodeHistory answers with a node's own record. With allocations=true it adds the records of
// the allocations that were placed there, all in one timeline. since and until bound the time.
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
		entries, index = nodeTimeline(v, n.ID, entries), v.Index()
	}
	entries = slices.DeleteFunc(entries, func(e fleet.HistoryEntry) bool {
		return e.Time.Before(since) || !until.IsZero() && e.Time.After(until)
	})
	return entries, index, nil
}

// nodeTimeline joins a node's own record and those of its allocations. The hub notes the loss
// and the return of a node in each of these records; the timeline has each once.
func nodeTimeline(v *state.View, id fleet.NodeID, own []fleet.HistoryEntry) []fleet.HistoryEntry {
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

// nodeEventPrefix begins the events that the hub notes in the record of each allocation of a node.
const nodeEventPrefix = "node "

// nameAsAllocs gives the entries of a node's own record the names that records of allocations
// have for the same event: the loss of the node, and the session that ended it.
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

// timeRange reads the parameters since and until, each RFC 3339. A zero time is no bound.
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
