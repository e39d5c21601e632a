package edged

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/edge/local"
	"skerry/fleet"
)

// SocketName is the local API's socket below an edge's data directory.
const SocketName = "local.sock"

// localFlags are what all local commands are told.
type localFlags struct {
	dataDir string
	socket  string
	json    bool
}

func (f *localFlags) newLocalClient() (*local.Client, error) {
	switch {
	case f.socket != "":
		return local.NewClient(f.socket), nil
	case f.dataDir != "":
		return local.NewClient(filepath.Join(f.dataDir, SocketName)), nil
	}
	return nil, fleet.Errorf(fleet.CodeInvalid, "which edge? Its data directory is not named").
		WithHint("give --data-dir, or set SKERRY_DATA_DIR")
}

// LocalCommand is what an operator on site does on the edge itself, with no hub in
// reach.
func LocalCommand() *cobra.Command {
	var f localFlags
	cmd := &cobra.Command{
		Use: "local", Short: "Look after this edge on site, with no hub in reach",
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return console.CompleteFlags(cmd.Flags(), os.Environ()) },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.dataDir, "data-dir", "", "the edge's data directory")
	flags.StringVar(&f.socket, "socket", "", "the edge's socket (default: "+SocketName+" in its data directory)")
	flags.BoolVar(&f.json, "json", false, "write JSON")
	console.AddConfigFlag(flags)
	cmd.AddCommand(f.statusCommand(), f.logsCommand(), f.stopCommand(), f.startCommand(), f.restartCommand(), f.historyCommand())
	return cmd
}

func (f *localFlags) statusCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "status", Short: "Show the link, the journal, and what runs", Args: cobra.NoArgs,
		Example: `  skerry local status --data-dir /var/lib/skerry-edge
  skerry local status --data-dir /var/lib/skerry-edge --all`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.newLocalClient()
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if f.json {
				return console.JSON(cmd.OutOrStdout(), s)
			}
			return writeStatus(cmd.OutOrStdout(), s, all, time.Now())
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show allocations that have ended, too")
	return cmd
}

func writeStatus(w io.Writer, s local.Status, all bool, now time.Time) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", statusSummary(s, now)); err != nil {
		return err
	}
	if err := writeFacts(w, s); err != nil {
		return err
	}
	hidden := 0
	allocs := console.Table{Heads: []string{"ID", "ALLOCATION", "WANTED", "STATUS", "TASKS", "CLUSTER KNOWS", "NOTE"}}
	for _, a := range s.Allocs {
		if hasEnded(a) && !all {
			hidden++
			continue
		}
		allocs.Add(fleet.Short(a.ID), a.Name, a.Desired, a.ClientStatus, taskLine(a.Tasks), !a.Unsent, allocNote(a))
	}
	if hidden < len(s.Allocs) {
		fmt.Fprintln(w)
		if err := allocs.Write(w); err != nil {
			return err
		}
	}
	if hidden == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s not shown, which ended: --all shows them.\n", console.Count(hidden, "allocation"))
	return err
}

// writeFacts writes what is known of the edge, a line each.
func writeFacts(w io.Writer, s local.Status) error {
	t := console.Table{}
	t.Add("Edge", fmt.Sprintf("%s (%s)", s.Name, fleet.Short(s.NodeID)))
	t.Add("Site", fmt.Sprintf("%s, datacenter %s, pool %s", s.Site, s.Datacenter, s.NodePool))
	if s.TimeZone != "" {
		t.Add("Time zone", s.TimeZone)
	}
	t.Add("Machine", fmt.Sprintf("up %s, boot %s", console.Span(s.Uptime), fleet.Short(s.BootID)))
	t.Add("Agent", fmt.Sprintf("%s, since %s", s.Version, s.Started.Format(time.DateTime)))
	t.Add("Link", linkLine(s))
	for _, note := range []struct{ name, text string }{
		{"Last error", s.Link.LastError}, {"Certificate", s.Cert.LastError}, {"Fenced", s.Link.Fenced}, {"Cluster went back", s.Link.WentBack},
	} {
		if note.text != "" {
			t.Add(note.name, note.text)
		}
	}
	j := s.Journal
	t.Add("Journal", fmt.Sprintf("rows %d to %d, %d not at the cluster yet, %d KiB", j.First, j.Last, j.Unacknowledged, j.Bytes>>10))
	if j.Dropped > 0 {
		t.Add("", fmt.Sprintf("%d rows of low priority were dropped at the bound", j.Dropped))
	}
	for _, q := range j.Quarantined {
		t.Add("Damaged", damageLine(q))
	}
	if j.Lost != "" {
		t.Add("", "no hub has said yet where to go on: the newest rows have no numbers that count")
	}
	return t.Write(w)
}

func damageLine(q local.Quarantine) string {
	lost := fmt.Sprint(q.Lost)
	if q.EndUnknown {
		lost = "it is not known how many"
		if q.Lost > 0 {
			lost = fmt.Sprintf("at least %d", q.Lost)
		}
	}
	if q.Path == "" { // nothing was left to keep
		return fmt.Sprintf("%s: %d rows saved, %s lost", q.Reason, q.Salvaged, lost)
	}
	return fmt.Sprintf("%s (%s): %d rows saved, %s lost", q.Path, q.Reason, q.Salvaged, lost)
}

func linkLine(s local.Status) string {
	l := s.Link
	line := l.State
	if l.Hub != "" {
		line += " " + l.Hub
	}
	if l.Status != "" {
		line += ", the hub says " + l.Status
	}
	if l.State != "connected" && l.Away > 0 {
		line += ", away for " + console.Span(l.Away)
	}
	if !s.Enrolled {
		line += ", no certificate yet"
	}
	return line
}

func taskLine(tasks map[string]fleet.TaskState) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		t := tasks[name]
		part := name + " " + t.State
		if t.Failed {
			part += " (failed)"
		}
		if t.Restarts > 0 {
			part += " (" + console.Count(int(t.Restarts), "restart") + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func allocNote(a local.Alloc) string {
	var parts []string
	for _, text := range []string{a.ClientDescription, a.DesiredReason, a.Note} {
		if text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	if a.StopsIn > 0 {
		parts = append(parts, "stops in "+console.Span(a.StopsIn)+" without a link")
	}
	return strings.Join(parts, "; ")
}

func (f *localFlags) logsCommand() *cobra.Command {
	var req local.LogRequest
	var stderr bool
	var tail int64
	cmd := &cobra.Command{
		Use: "logs ALLOC [TASK]", Short: "Show what a task wrote", Args: cobra.RangeArgs(1, 2),
		Example: `  skerry local logs --data-dir /var/lib/skerry-edge -f 1d697ed5 backend`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.newLocalClient()
			if err != nil {
				return err
			}
			req.Alloc = fleet.AllocID(args[0])
			if len(args) > 1 {
				req.Task = args[1]
			}
			req.Stream = "stdout"
			if stderr {
				req.Stream = "stderr"
			}
			if tail > 0 {
				req.Origin, req.Offset = "end", tail
			}
			out, err := c.Logs(cmd.Context(), req)
			if err != nil {
				return err
			}
			defer out.Close()
			return CopyLogs(cmd.Context(), cmd.OutOrStdout(), out, f.json)
		},
	}
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "go on as the task writes, until the allocation ends")
	cmd.Flags().BoolVar(&stderr, "stderr", false, "show its stderr")
	cmd.Flags().Int64Var(&tail, "tail", 0, "show the last so many bytes")
	return cmd
}

// CopyLogs writes a task's output, as it is or as one JSON object with its text.
// Whoever stops following with an interrupt has seen what they wanted.
func CopyLogs(ctx context.Context, w io.Writer, from io.Reader, asJSON bool) error {
	if asJSON {
		b, err := io.ReadAll(from)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("read the task's output: %w", err)
		}
		return console.JSON(w, struct{ Output string }{string(b)})
	}
	if _, err := io.Copy(w, from); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the task's output: %w", err)
	}
	return nil
}

func (f *localFlags) stopCommand() *cobra.Command {
	var req local.StopRequest
	cmd := &cobra.Command{
		Use: "stop ALLOC", Short: "Stop an allocation, and start none of its name here until 'local start'", Args: cobra.ExactArgs(1),
		Long: `Stop an allocation. What the hubs send in its place does not start on this machine,
also after a reboot, until 'local start' lets it. The hubs may start it on another edge.`,
		Example: `  skerry local stop --data-dir /var/lib/skerry-edge --reason 'it smokes' 1d697ed5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.newLocalClient()
			if err != nil {
				return err
			}
			req.Alloc = fleet.AllocID(args[0])
			if err := c.Stop(cmd.Context(), req); err != nil {
				return err
			}
			if req.MayReturn {
				return f.printDone(cmd, args[0], "stopped", "Allocation %s is stopped; the hubs may start another one in its place.\n")
			}
			return f.printDone(cmd, args[0], "stopped", "Allocation %s is stopped. What the hubs send in its place does not start here until 'local start'; "+
				"they may start it on another edge.\n")
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "stopped on site", "why, for the history")
	cmd.Flags().BoolVar(&req.NoShutdownDelay, "no-shutdown-delay", false, "without the shutdown_delay of its group and its tasks; also where it waits for it already")
	cmd.Flags().BoolVar(&req.MayReturn, "may-return", false, "let what the hubs send in its place start here")
	return cmd
}

func (f *localFlags) startCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "start ALLOC", Short: "Let run again what 'local stop' has stopped", Args: cobra.ExactArgs(1),
		Long: `Let run again what 'local stop' has stopped, by the id of that allocation or of the one
that waits. An allocation that has ended does not run again: what the hubs sent in its place
starts, at once where it is here, else when the link is there.`,
		Example: `  skerry local start --data-dir /var/lib/skerry-edge 1d697ed5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.newLocalClient()
			if err != nil {
				return err
			}
			s, err := c.Start(cmd.Context(), fleet.AllocID(args[0]), reason)
			if err != nil {
				return err
			}
			if f.json {
				return console.JSON(cmd.OutOrStdout(), s)
			}
			what := "It starts now."
			if s.Waiting == 0 { // an allocation that has ended does not run again
				what = "Nothing of that name waits here: it starts when the hubs send it, which takes a link."
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s may run here again. %s\n", s.Name, what)
			return err
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "started on site", "why, for the history")
	return cmd
}

func (f *localFlags) restartCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "restart ALLOC [TASK]", Short: "Restart an allocation's tasks, or one of them", Args: cobra.RangeArgs(1, 2),
		Example: `  skerry local restart --data-dir /var/lib/skerry-edge 1d697ed5 backend`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.newLocalClient()
			if err != nil {
				return err
			}
			task := ""
			if len(args) > 1 {
				task = args[1]
			}
			if err := c.Restart(cmd.Context(), fleet.AllocID(args[0]), task, reason); err != nil {
				return err
			}
			return f.printDone(cmd, args[0], "restarting", "Allocation %s restarts.\n")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "restarted on site", "why, for the history")
	return cmd
}

func (f *localFlags) printDone(cmd *cobra.Command, alloc, what, message string) error {
	if f.json {
		return console.JSON(cmd.OutOrStdout(), struct{ Alloc, Done string }{alloc, what})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), message, alloc)
	return err
}

func (f *localFlags) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "history [ALLOC]", Short: "Show the journal: of one allocation, or all of it", Args: cobra.MaximumNArgs(1),
		Example: `  skerry local history --data-dir /var/lib/skerry-edge
  skerry local history --data-dir /var/lib/skerry-edge 1d697ed5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.newLocalClient()
			if err != nil {
				return err
			}
			var alloc fleet.AllocID
			if len(args) > 0 {
				alloc = fleet.AllocID(args[0])
			}
			rows, err := c.History(cmd.Context(), alloc)
			if err != nil {
				return err
			}
			if f.json {
				return console.JSON(cmd.OutOrStdout(), rows)
			}
			t := console.Table{Heads: []string{"ROW", "TIME", "ALLOC", "WHAT"}}
			for _, row := range rows {
				t.Add(row.Seq, console.Nano(row.Wall).Format(time.DateTime), fleet.Short(row.Alloc), console.Transition(&row))
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}
