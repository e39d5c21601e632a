package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// fleetRows is how many rows of each table fit on a page, unless --limit says otherwise.
const fleetRows = 20

// fleetFlags say which nodes fleet status shows, and how many rows of each table.
type fleetFlags struct {
	nodes nodeChoice
	limit int
}

// FleetCommand is skerry fleet.
func FleetCommand(s *command.Session) *cobra.Command {
	var watch bool
	var every time.Duration
	var show fleetFlags
	status := &cobra.Command{
		Use: "status", Short: "Show hubs, nodes and allocations, and what is waiting", Args: cobra.NoArgs,
		Example: `  skerry fleet status
  skerry fleet status --site "shop-*" --status disconnected
  skerry fleet status --watch`,
		RunE: s.Run(func(c *command.Call) error {
			if watch {
				return watchFleet(c, every, show)
			}
			return showFleet(c, show)
		}),
	}
	show.nodes.addNodeChoiceFlags(status)
	status.Flags().IntVar(&show.limit, "limit", fleetRows, "rows shown of each table, nodes that are not ready first; 0 shows all")
	status.Flags().BoolVarP(&watch, "watch", "w", false, "show it repeatedly, until interrupted")
	status.Flags().DurationVar(&every, "every", 2*time.Second, "with --watch: time between two updates")
	c := command.Group("fleet", "Show the whole fleet", status, heldCommand(s))
	c.SuggestFor = []string{"server", "agent-info"}
	return c
}

// showFleet asks this hub alone, so that it answers also without a leader.
func showFleet(c *command.Call, show fleetFlags) error {
	filter, err := show.nodes.filterExpression()
	if err != nil {
		return err
	}
	c.Out.SetStale(false)
	status, err := c.Hub.AllowStale().Fleet(c.Context(), client.List{Filter: filter})
	if err == nil {
		c.Out.Show(status, func() { writeFleet(c.Out, status, show.limit) })
	}
	return err
}

// watchFleet shows the fleet until the command is interrupted. It goes on while a hub does not answer: that
// is when an operator wants to watch.
func watchFleet(c *command.Call, every time.Duration, show fleetFlags) error {
	if every < 100*time.Millisecond {
		return fleet.Errorf(fleet.CodeInvalid, "show the fleet every %s: at least 100ms are needed", every)
	}
	_, _, terminal := console.IsTerminal(c.Out)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if terminal && !c.Out.IsJSON() {
			fmt.Fprint(c.Out, "\x1b[H\x1b[2J")
		}
		if err := showFleet(c, show); err != nil && c.Context().Err() == nil {
			console.Fail(c.Out, "skerry", err)
		}
		select {
		case <-c.Context().Done():
			return nil
		case <-tick.C:
		}
		if !terminal && !c.Out.IsJSON() {
			c.Out.Line("")
		}
	}
}

func writeFleet(out *console.Output, s api.FleetStatus, limit int) {
	leader := "no leader is known: an election, or most hubs are out of reach"
	if s.Leader != "" {
		leader = "leader " + string(s.Leader)
	}
	out.Line("Region %s, %s, term %d, index %d, %s\n", s.Region, leader, s.Term, s.Index, console.LocalTime(s.Time))
	hubs := console.NewTable("HUB", "STATUS", "QUIC", "HTTP", "")
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
	out.Table(hubs)
	out.Line("")
	if len(s.Nodes) == 0 {
		out.Line("There are no such nodes.")
		return
	}
	total := map[fleet.NodeStatus]int{}
	for _, n := range s.Nodes {
		total[n.Status]++
	}
	out.Line("%s: %s; allocations: %s\n", console.Count(len(s.Nodes), "node"), nodeCounts(total), allocCounts(s.Allocs))
	writeSites(out, s, limit)
	out.Line("")
	writeNodes(out, s, limit)
	writeWaiting(out, s, limit)
}

// writeSites shows sites, those with a node that is not ready first.
func writeSites(out *console.Output, s api.FleetStatus, limit int) {
	list := slices.Clone(s.Sites)
	slices.SortStableFunc(list, func(a, b api.SiteStatus) int { return compareTrue(!onlyReady(a.Nodes), !onlyReady(b.Nodes)) })
	sites := &console.Table{Heads: []string{"SITE", "NODES", "ALLOCATIONS"}, Limit: limit}
	for _, site := range list {
		sites.Add(site.Site, nodeCounts(site.Nodes), allocCounts(site.Allocs))
	}
	out.Table(sites)
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
func writeNodes(out *console.Output, s api.FleetStatus, limit int) {
	list := slices.Clone(s.Nodes)
	slices.SortStableFunc(list, func(a, b api.NodeLine) int {
		return compareTrue(a.Status != fleet.NodeReady, b.Status != fleet.NodeReady)
	})
	nodes := &console.Table{Heads: []string{"NODE", "ID", "SITE", "STATUS", "LAST CONTACT", "HUB", "ALLOCATIONS"}, Limit: limit}
	notes, orphans := &console.Table{Limit: limit}, false
	for _, n := range list {
		nodes.Add(n.Name, console.ID(n.ID), n.Site, n.Status, contact(s, n), n.Hub, allocCounts(n.Allocs))
		if n.Status != fleet.NodeReady && n.StatusDescription != "" {
			notes.Add(fmt.Sprintf("%s is %s: %s", n.Name, n.Status, n.StatusDescription))
		}
		if n.Newcomer != nil {
			notes.Add(n.Name + ": " + newcomerLine(*n.Newcomer, n.Hub))
		}
		for _, f := range slices.Backward(n.Fenced) {
			notes.Add(fmt.Sprintf("%s: a session from %s was fenced (%s) at %s", n.Name, f.Addr, f.Code, console.LocalNano(f.Time)))
		}
		switch {
		case len(n.Orphans) > 0 && n.Revoked:
			notes.Add(n.Name + " " + revokedOrphansLine(n.Orphans))
		case len(n.Orphans) > 0:
			notes.Add(n.Name + " " + orphansLine(n.Orphans))
			orphans = true
		}
	}
	out.Table(nodes)
	if len(notes.Rows) > 0 {
		out.Line("")
	}
	out.Table(notes)
	if orphans {
		out.Hint(orphansHint)
	}
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

func writeWaiting(out *console.Output, s api.FleetStatus, limit int) {
	waiting := s.Waiting
	if len(waiting) == 0 {
		return
	}
	out.Line("")
	t := &console.Table{Heads: []string{"WAITING", "ID", "JOB", "FOR"}, Limit: limit}
	for _, line := range waiting {
		what := line.For
		if line.At != nil {
			what += ", " + console.LocalTime(*line.At)
		}
		t.Add(line.Kind, console.ID(line.ID), line.Of, what)
	}
	out.Table(t)
}

func nodeCounts(nodes map[fleet.NodeStatus]int) string {
	var pairs []any
	for _, status := range []fleet.NodeStatus{fleet.NodeReady, fleet.NodeInitializing, fleet.NodeDisconnected, fleet.NodeDown} {
		pairs = append(pairs, nodes[status], status)
	}
	return console.Counts(pairs...)
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
