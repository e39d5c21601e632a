package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

func fleetCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "fleet", Short: "Show the whole fleet", SuggestFor: []string{"server", "agent-info"}}
	var watch bool
	var every time.Duration
	show := fleetFlags{limit: fleetRows}
	status := &cobra.Command{
		Use: "status", Short: "Show hubs, nodes and allocations, and what is waiting", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			if watch {
				return o.watchFleet(cmd.Context(), hub, cmd.OutOrStdout(), every, show)
			}
			return o.fleetOnce(cmd.Context(), hub, cmd.OutOrStdout(), show)
		},
	}
	show.nodes.addFlags(status)
	status.Flags().IntVar(&show.limit, "limit", fleetRows, "rows shown of each table, nodes that are not ready first; 0 shows all")
	status.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again")
	status.Flags().DurationVar(&every, "every", 2*time.Second, "how often, with --watch")
	c.AddCommand(status)
	return c
}

// fleetRows is how many rows of each table fit on a page, unless --limit says otherwise.
const fleetRows = 20

// fleetFlags says which nodes fleet status shows, and how many rows of each table.
type fleetFlags struct {
	nodes nodeChoice
	limit int
}

func (o *operator) fleetOnce(ctx context.Context, hub *client.Client, w io.Writer, show fleetFlags) error {
	filter, err := show.nodes.filterExpression()
	if err != nil {
		return err
	}
	clearStale(w)
	s, err := readFleet(ctx, hub, filter)
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(w, s)
	}
	return writeFleet(w, s, show.limit)
}

// clearStale forgets that earlier answers were old, before what is shown is read again.
func clearStale(w io.Writer) {
	if out, ok := w.(*console.Output); ok {
		out.SetStale(false)
	}
}

// readFleet asks this hub alone, so that there is an answer also where there is no
// leader.
func readFleet(ctx context.Context, hub *client.Client, filter string) (api.FleetStatus, error) {
	return hub.AllowStale().Fleet(ctx, client.List{Filter: filter})
}

// watchFleet shows the fleet until ctx ends. A hub that does not answer for a while is
// no reason to stop: that is when one wants to watch.
func (o *operator) watchFleet(ctx context.Context, hub *client.Client, w io.Writer, every time.Duration, show fleetFlags) error {
	if every < 100*time.Millisecond {
		return fleet.Errorf(fleet.CodeInvalid, "every %s is too often: at least 100ms", every)
	}
	_, _, terminal := console.IsTerminal(w)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if terminal && !o.json {
			fmt.Fprint(w, "\x1b[H\x1b[2J")
		}
		if err := o.fleetOnce(ctx, hub, w, show); err != nil && ctx.Err() == nil {
			console.Fail(w, "skerry", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !terminal && !o.json {
			fmt.Fprintln(w)
		}
	}
}

func writeFleet(w io.Writer, s api.FleetStatus, limit int) error {
	leader := "no leader is known: an election, or most hubs are out of reach"
	if s.Leader != "" {
		leader = "leader " + string(s.Leader)
	}
	fmt.Fprintf(w, "Region %s, %s, term %d, index %d, %s\n\n", s.Region, leader, s.Term, s.Index, console.LocalTime(s.Time))
	hubs := console.Table{Heads: []string{"HUB", "STATUS", "QUIC", "HTTP", ""}}
	for _, h := range s.Hubs {
		status, mark := h.Status, ""
		if status == "" {
			status = "not heard of"
		}
		if h.Leader {
			mark = "leads"
		}
		hubs.Add(h.ID, status, h.QUIC, h.HTTP, mark)
	}
	if err := hubs.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if len(s.Nodes) == 0 {
		_, err := fmt.Fprintln(w, "There are no such nodes.")
		return err
	}
	total := map[fleet.NodeStatus]int{}
	for _, n := range s.Nodes {
		total[n.Status]++
	}
	fmt.Fprintf(w, "%s: %s; allocations: %s\n\n", console.Count(len(s.Nodes), "node"), nodeCounts(total), allocCounts(s.Allocs))
	if err := writeSites(w, s, limit); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := writeNodes(w, s, limit); err != nil {
		return err
	}
	return writeWaiting(w, s, limit)
}

// writeSites shows sites, those with a node that is not ready first.
func writeSites(w io.Writer, s api.FleetStatus, limit int) error {
	list := slices.Clone(s.Sites)
	slices.SortStableFunc(list, func(a, b api.SiteStatus) int { return compareTrue(!onlyReady(a.Nodes), !onlyReady(b.Nodes)) })
	sites := console.Table{Heads: []string{"SITE", "NODES", "ALLOCATIONS"}, Limit: limit}
	for _, site := range list {
		sites.Add(site.Site, nodeCounts(site.Nodes), allocCounts(site.Allocs))
	}
	return sites.Write(w)
}

func onlyReady(nodes map[fleet.NodeStatus]int) bool {
	for status, n := range nodes {
		if status != fleet.NodeReady && n > 0 {
			return false
		}
	}
	return true
}

// compareTrue orders what is true before what is not.
func compareTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// writeNodes shows nodes, those that are not ready first, and a line for each that is not well.
func writeNodes(w io.Writer, s api.FleetStatus, limit int) error {
	list := slices.Clone(s.Nodes)
	slices.SortStableFunc(list, func(a, b api.NodeLine) int {
		return compareTrue(a.Status != fleet.NodeReady, b.Status != fleet.NodeReady)
	})
	nodes := console.Table{Heads: []string{"NODE", "ID", "SITE", "STATUS", "LAST CONTACT", "HUB", "ALLOCATIONS"}, Limit: limit}
	notes, orphans := console.Table{Limit: limit}, false
	for _, n := range list {
		nodes.Add(n.Name, displayID(n.ID), n.Site, n.Status, contact(s, n), n.Hub, allocCounts(n.Allocs))
		if n.Status != fleet.NodeReady && n.StatusDescription != "" {
			notes.Add(fmt.Sprintf("%s is %s: %s", n.Name, n.Status, n.StatusDescription))
		}
		if n.Newcomer != nil {
			notes.Add(n.Name + ": " + newcomerLine(*n.Newcomer, n.Hub))
		}
		for _, f := range slices.Backward(n.Fenced) {
			notes.Add(fmt.Sprintf("%s: a session from %s was fenced (%s) at %s", n.Name, f.Addr, f.Code, console.LocalTime(console.Nano(f.Time))))
		}
		switch {
		case len(n.Orphans) > 0 && n.Revoked:
			notes.Add(n.Name + " " + revokedOrphansLine(n.Orphans))
		case len(n.Orphans) > 0:
			notes.Add(n.Name + " " + orphansLine(n.Orphans))
			orphans = true
		}
	}
	if err := nodes.Write(w); err != nil {
		return err
	}
	if len(notes.Rows) > 0 {
		fmt.Fprintln(w)
	}
	if err := notes.Write(w); err != nil {
		return err
	}
	if orphans {
		console.Hint(w, orphansHint)
	}
	return nil
}

// orphansHint is what to do about what orphansLine says.
const orphansHint = "to stop what the cluster does not know, on its machine: skerry local stop --may-return ID"

// orphansLine says what a node keeps that the cluster does not know.
func orphansLine(ids []fleet.AllocID) string {
	return fmt.Sprintf("keeps %d allocations that the cluster does not know: %s. They run until somebody stops them there; "+
		"a job that is registered again gets new ones", len(ids), firstIDs(ids))
}

// firstIDs names the first of some allocations, and counts the others.
func firstIDs(ids []fleet.AllocID) string {
	const named = 5
	names := make([]string, min(len(ids), named))
	for i := range names {
		names[i] = displayID(ids[i])
	}
	if more := len(ids) - named; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// contact says when a node was heard of, or since when it is away.
func contact(s api.FleetStatus, n api.NodeLine) string {
	switch {
	case n.DisconnectedAt != nil:
		return "away for " + console.Span(s.Time.Sub(*n.DisconnectedAt))
	case n.LastContact != nil:
		return console.Ago(s.Time, *n.LastContact)
	case s.Leader == "":
		return "not known" // the leader knows
	}
	return "not heard of yet"
}

func writeWaiting(w io.Writer, s api.FleetStatus, limit int) error {
	waiting := s.Waiting
	if len(waiting) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := console.Table{Heads: []string{"WAITING", "ID", "JOB", "FOR"}, Limit: limit}
	for _, line := range waiting {
		what := line.For
		if line.At != nil {
			what += ", " + console.LocalTime(*line.At)
		}
		t.Add(line.Kind, displayID(line.ID), line.Of, what)
	}
	return t.Write(w)
}

func nodeCounts(nodes map[fleet.NodeStatus]int) string {
	var pairs []any
	for _, status := range []fleet.NodeStatus{fleet.NodeReady, fleet.NodeInitializing, fleet.NodeDisconnected, fleet.NodeDown} {
		pairs = append(pairs, nodes[status], status)
	}
	return nonZeroCounts(pairs...)
}

func allocCounts(allocs map[string]int) string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(allocs)) {
		parts = append(parts, fmt.Sprintf("%d %s", allocs[status], status))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
