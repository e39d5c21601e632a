// Package node has the commands of skerry node, skerry node pool and skerry fleet. They show, drain and revoke
// nodes, show and change node pools, and show the whole fleet. It starts no goroutine, and persists nothing.
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
	"skerry/fleet/usage"
)

// Command is skerry node.
func Command(s *command.Session) *cobra.Command {
	return command.Group("node", "Show and drain nodes: the machines that run an edge agent",
		statusCommand(s), historyCommand(s), exposureCommand(s), drainCommand(s), eligibilityCommand(s), purgeCommand(s), revokeCommand(s),
		readmitCommand(s), revocationsCommand(s), poolCommand(s))
}

func statusCommand(s *command.Session) *cobra.Command {
	var stats bool
	var choice nodeChoice
	c := &cobra.Command{
		Use: "status [ID]", Short: "List nodes, or show one", Args: cobra.MaximumNArgs(1),
		Example: `  skerry node status
  skerry node status --pool ships --status ready
  skerry node status shop-17
  skerry node status --stats shop-17
  skerry node status --context prod`,
		RunE: s.Run(func(c *command.Call) error {
			if len(c.Args) == 0 {
				return listNodes(c, choice)
			}
			return showNode(c, stats)
		}),
	}
	c.Flags().BoolVar(&stats, "stats", false, "also show the resources that the machine uses now, as it reports them; with --json, only these")
	choice.addNodeChoiceFlags(c)
	return c
}

func listNodes(c *command.Call, choice nodeChoice) error {
	filter, err := choice.filterExpression()
	if err != nil {
		return err
	}
	nodes, err := c.Hub.Nodes(c.Context(), client.List{Filter: filter})
	if err != nil {
		return err
	}
	none := "No node has joined yet."
	if filter != "" {
		none = "There are no such nodes."
	}
	c.Out.Show(nodes, func() {
		slices.SortFunc(nodes, func(a, b api.NodeStub) int { return strings.Compare(a.Name+string(a.ID), b.Name+string(b.ID)) })
		console.List[api.NodeStub]{
			None: none, Heads: []string{"ID", "NAME", "SITE", "POOL", "CLASS", "ELIGIBLE", "STATUS", "VERSION"},
			Row: func(n api.NodeStub) []any {
				eligible := n.SchedulingEligibility != fleet.NodeIneligible
				return []any{console.ID(n.ID), n.Name, n.Site, n.NodePool, n.NodeClass, eligible, n.Status, n.Version}
			},
		}.Write(c.Out, nodes)
	})
	return nil
}

func showNode(c *command.Call, stats bool) error {
	stub, err := c.FindNode(c.Args[0])
	if err != nil {
		return err
	}
	n, err := c.Hub.Node(c.Context(), stub.ID)
	if err != nil {
		return err
	}
	allocs, err := c.Hub.NodeAllocs(c.Context(), stub.ID)
	if err != nil {
		return err
	}
	if !stats || !c.Out.IsJSON() {
		c.Out.Show(struct {
			Node        fleet.Node
			Allocations []fleet.Alloc
		}{n, allocs}, func() { writeNode(c.Out, n, allocs) })
	}
	if !stats {
		return nil
	}
	usage, err := c.Hub.NodeUsage(c.Context(), stub.ID)
	if err == nil {
		c.Out.Show(usage, func() { writeNodeUsage(c.Out, usage) })
	}
	return err
}

func writeNode(out *console.Output, n fleet.Node, allocs []fleet.Alloc) {
	t := console.NewTable()
	addNodeSummary(t, n, allocs)
	addNodeDescription(t, n)
	addNodeTroubles(t, n)
	out.Table(t)
	if len(n.Events) > 0 {
		out.Line("")
		events := console.NewTable("TIME", "SUBSYSTEM", "EVENT")
		for _, e := range slices.Backward(n.Events) {
			events.Add(console.LocalTime(e.Timestamp), e.Subsystem, e.Message)
		}
		out.Table(events)
	}
	out.Line("")
	writeNodeAllocs(out, allocs)
	if len(n.Orphans) > 0 && n.Revoked == nil {
		out.Line("")
		out.Hint(orphansHint)
	}
}

// addNodeSummary adds how a node is, and what its allocations take of it.
func addNodeSummary(t *console.Table, n fleet.Node, allocs []fleet.Alloc) {
	t.Add("Node", n.ID)
	t.Add("Name", n.Name)
	t.Add("Site", fmt.Sprintf("%s, datacenter %s, pool %s, class %q", n.AtSite(), n.Datacenter, n.NodePool, n.NodeClass))
	t.AddSet("Time zone", n.TimeZone)
	t.Add("Status", console.WithReason(n.Status, n.StatusDescription))
	if n.DisconnectedAt != 0 {
		t.Add("Away", "since "+console.LocalNano(n.DisconnectedAt))
	}
	t.Add("Eligible", n.SchedulingEligibility != fleet.NodeIneligible)
	if why := n.WhyFull(); why != "" {
		t.Add("New allocations", "wait: "+why)
	}
	if n.LastDrain != nil {
		t.Add("Drain", drainStatus(n))
	}
	t.Add("Agent", fmt.Sprintf("%s, boot %s", n.Version, console.ID(n.BootID)))
	t.Add("Session", fmt.Sprintf("epoch %d with hub %s, from %s", n.Epoch, n.Hub, n.Address))
	t.Add("Journal", fmt.Sprintf("row %d of %d is in", n.Applied, max(n.JournalHead, n.Applied)))
	t.Add("Resources", usageLine(n, allocs))
}

// addNodeDescription adds what a node says of its machine.
func addNodeDescription(t *console.Table, n fleet.Node) {
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		t.Add("Driver "+name, driverLine(n.Drivers[name]))
	}
	t.AddSet("Key of secrets", console.KeyPlace(n.Attributes[fleet.AttributeSecretsKey]))
	for _, d := range n.Devices {
		t.Add("Device "+d.Kind, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", d.Vendor, d.Name, d.Type, d.ID)))
	}
	for _, d := range n.MissingDevices {
		t.Add("Device missing", fmt.Sprintf("%s %s %s %s not healthy: not found since %s; allocation %s has it",
			d.Vendor, d.Name, d.Type, d.ID, console.LocalTime(d.Since), console.ID(d.AllocID)))
	}
	t.AddMap("Meta ", n.Meta)
	if console.Verbose() {
		t.AddMap("Attribute ", n.Attributes)
	}
}

// addNodeTroubles adds why a node or a copy of it is kept out, and what it runs that the
// cluster does not know.
func addNodeTroubles(t *console.Table, n fleet.Node) {
	if n.Newcomer != nil {
		t.Add("Newcomer", newcomerLine(*n.Newcomer, n.Hub))
	}
	for _, f := range slices.Backward(n.Fenced) {
		t.Add("Fenced", fmt.Sprintf("a session from %s (%s) at %s", f.Addr, f.Code, console.LocalNano(f.Time)))
	}
	if n.Readmit {
		t.Add("Readmitted", "it may go on with an older copy of its data directory")
	}
	if n.Revoked != nil {
		t.Add("Revoked", console.WithReason("at "+console.LocalNano(n.Revoked.Time), n.Revoked.Reason))
	}
	switch {
	case len(n.Orphans) > 0 && n.Revoked != nil:
		t.Add("Orphaned", revokedOrphansLine(n.Orphans))
	case len(n.Orphans) > 0:
		t.Add("Unknown", orphansLine(n.Orphans))
	}
}

// writeNodeAllocs lists the allocations of a node that have not ended, the newest first.
func writeNodeAllocs(out *console.Output, allocs []fleet.Alloc) {
	command.NewestFirst(allocs, func(a fleet.Alloc) fleet.Index { return a.CreateIndex })
	list := console.NewTable("ID", "ALLOCATION", "VERSION", "WANTED", "STATUS", "CHANGED")
	for _, a := range allocs {
		if a.Terminal() && a.ClientTerminal() {
			continue
		}
		list.Add(console.ID(a.ID), a.Name, a.JobVersion, a.DesiredStatus, a.ClientStatus, console.SinceNano(a.ModifyTime))
	}
	out.Table(list)
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
		f.Addr, console.LocalNano(f.Time), former)
}

// revokedOrphansLine says what a revoked node may still run.
func revokedOrphansLine(ids []fleet.AllocID) string {
	return fmt.Sprintf("may still run %d allocations, which nobody can stop from here: %s", len(ids), firstIDs(ids))
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
		names[i] = console.ID(ids[i])
	}
	if more := len(ids) - named; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func writeNodeUsage(out *console.Output, u usage.Host) {
	out.Line("")
	t := console.NewTable()
	t.Add("Up for", console.Span(time.Duration(u.Uptime)*time.Second))
	t.Add("CPU in use", fmt.Sprintf("%.0f MHz", u.CPUTicksConsumed))
	for _, c := range u.CPU {
		t.Add("  "+c.CPU, fmt.Sprintf("%.1f %% user, %.1f %% system, %.1f %% idle", c.User, c.System, c.Idle))
	}
	if m := u.Memory; m != nil {
		t.Add("Memory", fmt.Sprintf("%s in use of %s", console.Bytes(m.Used), console.Bytes(m.Total)))
	}
	if d := u.AllocDirStats; d != nil {
		t.Add("Data directory", diskLine(*d))
	}
	for _, d := range u.DiskStats {
		t.Add("Disk "+d.Mountpoint, diskLine(d))
	}
	out.Table(t)
}

func diskLine(d usage.HostDisk) string {
	return fmt.Sprintf("%s in use of %s (%.0f %%, %.0f %% of its files)", console.Bytes(d.Used), console.Bytes(d.Size), d.UsedPercent, d.InodesUsedPercent)
}
