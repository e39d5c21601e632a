// Package alloc has the commands of skerry alloc: they show allocations with their logs, files and history,
// and stop, restart and signal them. One goroutine follows the size of the terminal of a command that runs in
// a task; nothing is persisted.
package alloc

import (
	"cmp"
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

// Command is skerry alloc.
func Command(s *command.Session) *cobra.Command {
	return command.Group("alloc", "Show allocations, their logs and their history; stop, restart and signal them",
		fsCommand(s), statusCommand(s), logsCommand(s), historyCommand(s), stopCommand(s), restartCommand(s), signalCommand(s),
		execCommand(s), checksCommand(s))
}

// Shortcuts are the commands that also exist without their group.
func Shortcuts(s *command.Session) []*cobra.Command {
	return []*cobra.Command{logsCommand(s), fsCommand(s), execCommand(s)}
}

func statusCommand(s *command.Session) *cobra.Command {
	var stats bool
	c := &cobra.Command{
		Use: "status ID", Short: "Show an allocation", Args: cobra.ExactArgs(1),
		Example: `  skerry alloc status 1d697ed5
  skerry alloc status --stats 1d697ed5`,
		RunE: s.RunAlloc(func(c *command.Call, stub api.AllocStub) error {
			a, err := c.Hub.Alloc(c.Context(), stub.ID)
			if err != nil {
				return err
			}
			if !stats || !c.Out.IsJSON() {
				c.Out.Show(a, func() { writeAlloc(c.Out, a) })
			}
			if !stats {
				return nil
			}
			usage, err := c.Hub.AllocUsage(c.Context(), a.ID)
			if err == nil {
				c.Out.Show(usage, func() { writeUsage(c.Out, usage) })
			}
			return err
		}),
	}
	c.Flags().BoolVar(&stats, "stats", false, "also show the resources that its tasks use now, as its node reports them; with --json, only these")
	return c
}

func writeAlloc(out *console.Output, a fleet.Alloc) {
	t := console.NewTable()
	t.Add("Allocation", a.ID)
	t.Add("Name", a.Name)
	t.Add("Node", fmt.Sprintf("%s (%s)", a.NodeName, console.ID(a.NodeID)))
	t.Add("Job", fmt.Sprintf("%s, version %d", a.JobID, a.JobVersion))
	t.Add("Wanted", console.WithReason(a.DesiredStatus, a.DesiredDescription))
	t.Add("Status", console.WithReason(a.ClientStatus, a.ClientDescription))
	if a.Held != nil && !a.ClientTerminal() {
		t.Add("Held", fmt.Sprintf("%s, since %s", a.Held, console.LocalNano(a.Held.Since)))
	}
	if a.ReportedStatus != "" && a.ReportedStatus != a.ClientStatus {
		t.Add("Node said last", a.ReportedStatus)
	}
	t.Add("Placed", fmt.Sprintf("%s, score %.3f, evaluation %s", console.SinceNano(a.CreateTime), a.Score, console.ID(a.EvalID)))
	t.Add("Resources", fmt.Sprintf("cpu %d MHz, memory %d MB, disk %d MB", a.AllocatedResources.CPU, a.AllocatedResources.MemoryMB, a.AllocatedResources.DiskMB))
	addAssignedResources(t, a.Allotment)
	t.AddSet("Replaces", console.ID(a.PreviousAllocation))
	t.AddSet("Replaced by", console.ID(a.NextAllocation))
	if a.FollowupEvalID != "" {
		t.Add("Follow-up", "evaluation "+console.ID(a.FollowupEvalID))
	}
	for _, s := range a.AllocStates {
		t.Add("Concluded", fmt.Sprintf("%s at %s", s.Value, console.LocalTime(s.Time)))
	}
	out.Table(t)
	for _, name := range slices.Sorted(maps.Keys(a.TaskStates)) {
		writeTask(out, name, a.TaskStates[name])
	}
	writePlacement(out, a.Metrics)
}

func writeTask(out *console.Output, name string, s fleet.TaskState) {
	state := s.State
	if s.Failed {
		state += ", failed"
	}
	if s.Restarts > 0 {
		state += ", " + console.Count(int(s.Restarts), "restart")
	}
	if s.StartedAt != nil && !s.StartedAt.IsZero() {
		state += ", started " + console.LocalTime(*s.StartedAt)
	}
	out.Line("\nTask %q: %s", name, state)
	events := console.NewTable("TIME (NODE)", "EVENT", "")
	for _, e := range slices.Backward(s.Events) {
		events.Add(console.LocalNano(e.Time), e.Type, e.DisplayMessage)
	}
	out.Table(events)
}

// addAssignedResources adds the cores, ports and devices that an allocation got.
func addAssignedResources(t *console.Table, a *fleet.AssignedResources) {
	if a == nil {
		return
	}
	for _, p := range a.Ports {
		line := fmt.Sprintf("%s: %s", p.Label, strings.TrimPrefix(fmt.Sprintf("%s:%d", p.HostIP, p.Value), ":"))
		if inside := p.Inside(); inside != p.Value {
			line += fmt.Sprintf(" -> %d", inside)
		}
		t.Add("Port", line)
	}
	for _, task := range slices.Sorted(maps.Keys(a.Tasks)) {
		given := a.Tasks[task]
		if len(given.Cores) > 0 {
			t.Add("Cores", fmt.Sprintf("task %s: %s", task, strings.Trim(fmt.Sprint(given.Cores), "[]")))
		}
		for _, d := range given.Devices {
			t.Add("Devices", fmt.Sprintf("task %s: %s/%s/%s %s", task, d.Vendor, d.Type, d.Name, strings.Join(d.DeviceIDs, " ")))
		}
	}
}

// writePlacement shows how an allocation's node was chosen.
func writePlacement(out *console.Output, m *fleet.AllocMetric) {
	if m == nil || len(m.ScoreMetaData) == 0 {
		return
	}
	out.Line("\nPlacement: %d nodes evaluated, %d not suitable, %d full", m.NodesEvaluated, m.NodesFiltered, m.NodesExhausted)
	for _, counts := range []map[string]int{m.ConstraintFiltered, m.DimensionExhausted} {
		for _, why := range slices.Sorted(maps.Keys(counts)) {
			out.Line("  %d: %s", counts[why], why)
		}
	}
	parts := map[string]bool{}
	for _, s := range m.ScoreMetaData {
		for name := range s.Scores {
			parts[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(parts))
	t := console.NewTable("NODE")
	for _, name := range names {
		t.Heads = append(t.Heads, strings.ToUpper(name))
	}
	t.Heads = append(t.Heads, "SCORE")
	for _, s := range m.ScoreMetaData {
		row := []any{console.ID(s.NodeID)}
		for _, name := range names {
			row = append(row, fmt.Sprintf("%.3f", s.Scores[name]))
		}
		t.Add(append(row, fmt.Sprintf("%.3f", s.NormScore))...)
	}
	out.Table(t)
}

func writeUsage(out *console.Output, u usage.Alloc) {
	out.Line("")
	if len(u.Tasks) == 0 {
		out.Line("No running task reports its usage.")
		return
	}
	t := console.NewTable("TASK", "CPU", "OF A CORE", "MEMORY", "SWAP", "PROCESSES")
	for _, name := range slices.Sorted(maps.Keys(u.Tasks)) {
		task := u.Tasks[name]
		if r := task.ResourceUsage; r != nil && r.CpuStats != nil && r.MemoryStats != nil {
			t.Add(name, fmt.Sprintf("%.0f MHz", r.CpuStats.TotalTicks), fmt.Sprintf("%.1f %%", r.CpuStats.Percent),
				console.Bytes(r.MemoryStats.RSS), console.Bytes(r.MemoryStats.Swap), len(task.Pids))
		}
	}
	out.Table(t)
}

func historyCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "history ID", Short: "Show the history of an allocation, and mark the time without a link to the hubs", Args: cobra.ExactArgs(1),
		Example: `  skerry alloc history 1d697ed5`,
		RunE:    command.Show(s, command.OfAlloc((*client.Client).AllocHistory), writeHistory),
	}
}

func writeHistory(out *console.Output, h api.HistoryAnswer) {
	out.Line("Allocation %s  %s  on %s\n", h.Alloc.ID, h.Alloc.Name, h.Alloc.NodeName)
	if len(h.Entries) == 0 {
		out.Line("No event is recorded yet.")
		return
	}
	if h.Dropped > 0 {
		out.Line("%d less important entries were removed: the hubs keep a limited number for each allocation.\n", h.Dropped)
	}
	out.Timeline(h.Entries, false)
}

func checksCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "checks ID", Short: "Show the results of the checks of an allocation's services", Args: cobra.ExactArgs(1),
		Example: `  skerry alloc checks 1d697ed5`,
		RunE:    command.Show(s, command.OfAlloc((*client.Client).AllocChecks), writeChecks),
	}
}

func writeChecks(out *console.Output, results map[string]fleet.CheckResult) {
	list := slices.SortedFunc(maps.Values(results), func(x, y fleet.CheckResult) int {
		return cmp.Or(strings.Compare(x.Service, y.Service), strings.Compare(x.Check, y.Check), strings.Compare(x.ID, y.ID))
	})
	t := console.NewTable()
	t.Add("Service", "Task", "Check", "Mode", "Status", "Looked", "Output")
	for _, r := range list {
		looked := "never"
		if r.Timestamp > 0 {
			looked = console.Ago(time.Now(), time.Unix(r.Timestamp, 0))
		}
		output, _, _ := strings.Cut(r.Output, "\n")
		t.Add(r.Service, r.Task, r.Check, r.Mode, r.Status, looked, output)
	}
	out.Table(t)
}
