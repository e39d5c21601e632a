package main

import (
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

func nodeCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "Show and drain nodes: the machines that run an edge agent"}
	var stats bool
	var choice nodeChoice
	status := &cobra.Command{
		Use: "status [ID]", Short: "List nodes, or show one", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return o.listNodes(cmd, choice)
			}
			return o.showNode(cmd, args[0], nodeFlags{wholeIDs, stats})
		},
	}
	status.Flags().BoolVar(&stats, "stats", false, "show what the machine uses now, as it says itself; with --json that alone")
	choice.addFlags(status)
	c.AddCommand(status, nodeHistory(o), nodeDrain(o), nodeEligibility(o), nodePurge(o), nodeRevoke(o), nodeReadmit(o), nodeRevocations(o), nodePool(o))
	return c
}

func (o *operator) listNodes(cmd *cobra.Command, choice nodeChoice) error {
	hub, err := o.hubClient()
	if err != nil {
		return err
	}
	filter, err := choice.filterExpression()
	if err != nil {
		return err
	}
	nodes, err := hub.Nodes(cmd.Context(), client.List{Filter: filter})
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), nodes)
	}
	if len(nodes) == 0 && filter != "" {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "There are no such nodes.")
		return err
	}
	if len(nodes) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "No node has joined yet.")
		return err
	}
	slices.SortFunc(nodes, func(a, b api.NodeStub) int { return strings.Compare(a.Name+string(a.ID), b.Name+string(b.ID)) })
	t := console.Table{Heads: []string{"ID", "NAME", "SITE", "POOL", "CLASS", "ELIGIBLE", "STATUS", "VERSION"}}
	for _, n := range nodes {
		t.Add(displayID(n.ID), n.Name, n.Site, n.NodePool, n.NodeClass,
			n.SchedulingEligibility != fleet.NodeIneligible, n.Status, n.Version)
	}
	return t.Write(cmd.OutOrStdout())
}

// nodeFlags say how much of a node is shown.
type nodeFlags struct{ verbose, stats bool }

func (o *operator) showNode(cmd *cobra.Command, ref string, show nodeFlags) error {
	hub, stub, err := o.findNode(cmd.Context(), ref)
	if err != nil {
		return err
	}
	n, err := hub.Node(cmd.Context(), stub.ID)
	if err != nil {
		return err
	}
	allocs, err := hub.NodeAllocs(cmd.Context(), stub.ID)
	if err != nil {
		return err
	}
	if o.json && show.stats {
		return o.showNodeUsage(cmd, hub, stub.ID)
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), struct {
			Node        fleet.Node
			Allocations []fleet.Alloc
		}{n, allocs})
	}
	if err := writeNode(cmd.OutOrStdout(), n, allocs, show.verbose); err != nil || !show.stats {
		return err
	}
	return o.showNodeUsage(cmd, hub, stub.ID)
}

func writeNode(w io.Writer, n fleet.Node, allocs []fleet.Alloc, verbose bool) error {
	t := console.Table{}
	addNodeSummary(&t, n, allocs)
	addNodeDescription(&t, n, verbose)
	addNodeTroubles(&t, n)
	if err := t.Write(w); err != nil {
		return err
	}
	if len(n.Events) > 0 {
		fmt.Fprintln(w)
		events := console.Table{Heads: []string{"TIME", "SUBSYSTEM", "EVENT"}}
		for _, e := range slices.Backward(n.Events) {
			events.Add(console.LocalTime(e.Timestamp), e.Subsystem, e.Message)
		}
		if err := events.Write(w); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	if err := writeNodeAllocs(w, allocs); err != nil {
		return err
	}
	if len(n.Orphans) > 0 && n.Revoked == nil {
		fmt.Fprintln(w)
		console.Hint(w, orphansHint)
	}
	return nil
}

// addNodeSummary adds how a node is, and what its allocations take of it.
func addNodeSummary(t *console.Table, n fleet.Node, allocs []fleet.Alloc) {
	t.Add("Node", n.ID)
	t.Add("Name", n.Name)
	t.Add("Site", fmt.Sprintf("%s, datacenter %s, pool %s, class %q", n.AtSite(), n.Datacenter, n.NodePool, n.NodeClass))
	if n.TimeZone != "" {
		t.Add("Time zone", n.TimeZone)
	}
	t.Add("Status", statusLine(n))
	if n.DisconnectedAt != 0 {
		t.Add("Away", "since "+console.LocalTime(console.Nano(n.DisconnectedAt)))
	}
	t.Add("Eligible", n.SchedulingEligibility != fleet.NodeIneligible)
	if n.LastDrain != nil {
		t.Add("Drain", drainStatus(n))
	}
	t.Add("Agent", fmt.Sprintf("%s, boot %s", n.Version, displayID(n.BootID)))
	t.Add("Session", fmt.Sprintf("epoch %d with hub %s, from %s", n.Epoch, n.Hub, n.Address))
	t.Add("Journal", fmt.Sprintf("row %d of %d is in", n.Applied, max(n.JournalHead, n.Applied)))
	t.Add("Resources", usageLine(n, allocs))
}

// addNodeDescription adds what a node says of its machine.
func addNodeDescription(t *console.Table, n fleet.Node, verbose bool) {
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		t.Add("Driver "+name, driverLine(n.Drivers[name]))
	}
	for _, d := range n.Devices {
		t.Add("Device "+d.Kind, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", d.Vendor, d.Name, d.Type, d.ID)))
	}
	for _, k := range slices.Sorted(maps.Keys(n.Meta)) {
		t.Add("Meta "+k, n.Meta[k])
	}
	if verbose {
		for _, k := range slices.Sorted(maps.Keys(n.Attributes)) {
			t.Add("Attribute "+k, n.Attributes[k])
		}
	}
}

// addNodeTroubles adds why a node or a copy of it is kept out, and what it runs that the
// cluster does not know.
func addNodeTroubles(t *console.Table, n fleet.Node) {
	if n.Newcomer != nil {
		t.Add("Newcomer", newcomerLine(*n.Newcomer, n.Hub))
	}
	for _, f := range slices.Backward(n.Fenced) {
		t.Add("Fenced", fmt.Sprintf("a session from %s (%s) at %s", f.Addr, f.Code, console.LocalTime(console.Nano(f.Time))))
	}
	if n.Readmit {
		t.Add("Readmitted", "it may go on with an older copy of its data directory")
	}
	if n.Revoked != nil {
		t.Add("Revoked", "at "+console.LocalTime(console.Nano(n.Revoked.Time))+revokedReason(n.Revoked))
	}
	switch {
	case len(n.Orphans) > 0 && n.Revoked != nil:
		t.Add("Orphaned", revokedOrphansLine(n.Orphans))
	case len(n.Orphans) > 0:
		t.Add("Unknown", orphansLine(n.Orphans))
	}
}

// writeNodeAllocs lists the allocations of a node that have not ended, the newest first.
func writeNodeAllocs(w io.Writer, allocs []fleet.Alloc) error {
	newestFirst(allocs, func(a fleet.Alloc) fleet.Index { return a.CreateIndex })
	list := console.Table{Heads: []string{"ID", "ALLOCATION", "VERSION", "WANTED", "STATUS", "CHANGED"}}
	for _, a := range allocs {
		if a.Terminal() && a.ClientTerminal() {
			continue
		}
		list.Add(displayID(a.ID), a.Name, a.JobVersion, a.DesiredStatus, a.ClientStatus, console.Ago(time.Now(), console.Nano(a.ModifyTime)))
	}
	return list.Write(w)
}

func statusLine(n fleet.Node) string {
	if n.StatusDescription == "" {
		return string(n.Status)
	}
	return string(n.Status) + ": " + n.StatusDescription
}

func driverLine(d fleet.DriverInfo) string {
	switch {
	case !d.Detected:
		return "not there: " + d.HealthDescription
	case !d.Healthy:
		return "not healthy: " + d.HealthDescription
	}
	return "healthy"
}

// usageLine says how much of a node its allocations take.
func usageLine(n fleet.Node, allocs []fleet.Alloc) string {
	var sum fleet.Resources
	for _, a := range allocs {
		if a.OccupiesNode() {
			sum = sum.Add(a.AllocatedResources)
		}
	}
	free := n.Free()
	return fmt.Sprintf("cpu %d/%d MHz, memory %d/%d MB, disk %d/%d MB", sum.CPU, free.CPU, sum.MemoryMB, free.MemoryMB, sum.DiskMB, free.DiskMB)
}

// drainStatus says how far a node's last drain is.
func drainStatus(n fleet.Node) string {
	s := fmt.Sprintf("%s, since %s", n.LastDrain.Status, console.LocalTime(n.LastDrain.StartedAt))
	if d := n.DrainStrategy; d != nil && !d.ForceDeadline.IsZero() {
		s += ", what is left stops at " + console.LocalTime(d.ForceDeadline)
	}
	return s
}

// newcomerLine says that another agent process waits, and why.
func newcomerLine(f fleet.FencedSession, former fleet.HubID) string {
	return fmt.Sprintf("an agent process at %s came at %s and waits: hub %s, which has the session of the process before it, cannot be asked whether that is over",
		f.Addr, console.LocalTime(console.Nano(f.Time)), former)
}
