package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// showAllocUsage asks the edge of an allocation what its tasks use.
func (o *operator) showAllocUsage(cmd *cobra.Command, hub *client.Client, id fleet.AllocID) error {
	u, err := hub.AllocUsage(cmd.Context(), id)
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), u)
	}
	if len(u.Tasks) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "\nNo task that can be measured runs now.")
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout())
	t := console.Table{Heads: []string{"TASK", "CPU", "OF A CORE", "MEMORY", "SWAP", "PROCESSES"}}
	for _, name := range slices.Sorted(maps.Keys(u.Tasks)) {
		task := u.Tasks[name]
		if r := task.ResourceUsage; r != nil && r.CpuStats != nil && r.MemoryStats != nil {
			t.Add(name, fmt.Sprintf("%.0f MHz", r.CpuStats.TotalTicks), fmt.Sprintf("%.1f %%", r.CpuStats.Percent),
				bytesOf(r.MemoryStats.RSS), bytesOf(r.MemoryStats.Swap), len(task.Pids))
		}
	}
	return t.Write(cmd.OutOrStdout())
}

// showNodeUsage asks an edge what its machine uses.
func (o *operator) showNodeUsage(cmd *cobra.Command, hub *client.Client, id fleet.NodeID) error {
	u, err := hub.NodeUsage(cmd.Context(), id)
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), u)
	}
	return writeNodeUsage(cmd.OutOrStdout(), u)
}

func writeNodeUsage(w io.Writer, u fleet.HostUsage) error {
	fmt.Fprintln(w)
	t := console.Table{}
	t.Add("Up for", console.Span(time.Duration(u.Uptime)*time.Second))
	t.Add("CPU in use", fmt.Sprintf("%.0f MHz", u.CPUTicksConsumed))
	for _, c := range u.CPU {
		t.Add("  "+c.CPU, fmt.Sprintf("%.1f %% user, %.1f %% system, %.1f %% idle", c.User, c.System, c.Idle))
	}
	if m := u.Memory; m != nil {
		t.Add("Memory", fmt.Sprintf("%s in use of %s", bytesOf(m.Used), bytesOf(m.Total)))
	}
	if d := u.AllocDirStats; d != nil {
		t.Add("Data directory", diskLine(*d))
	}
	for _, d := range u.DiskStats {
		t.Add("Disk "+d.Mountpoint, diskLine(d))
	}
	return t.Write(w)
}

func diskLine(d fleet.HostDisk) string {
	return fmt.Sprintf("%s in use of %s (%.0f %%, %.0f %% of its files)", bytesOf(d.Used), bytesOf(d.Size), d.UsedPercent, d.InodesUsedPercent)
}

// bytesOf writes a number of bytes for people.
func bytesOf(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
}
