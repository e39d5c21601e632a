// Package local has the commands of skerry local: an operator on site looks after an edge with them, with no
// hub in reach. skerry-edge has them too, so this package must stay small and knows nothing of hubs. It starts
// no goroutine, and persists nothing.
package local

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skerry/cmd/console"
	"skerry/edge/local"
	"skerry/fleet"
)

// socketName is the local API's socket below an edge's data directory.
const socketName = "local.sock"

// localFlags are the flags of all local commands.
type localFlags struct {
	out      console.Output
	dataDir  string
	socket   string
	siteCode string
}

// Command is skerry local.
func Command() *cobra.Command {
	var f localFlags
	c := &cobra.Command{Use: "local", Short: "Look after this edge on site, with no hub in reach"}
	f.addLocalFlags(c)
	c.AddCommand(f.statusCommand(), f.logsCommand(), f.stopCommand(), f.startCommand(), f.restartCommand(), f.historyCommand(), f.storeCommand(),
		f.servicesCommand(), f.checksCommand(), f.diskCommand(), f.execCommand(), f.auditCommand())
	return c
}

// addLocalFlags adds the flags of all local commands to c and those below it.
func (f *localFlags) addLocalFlags(c *cobra.Command) {
	c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := console.CompleteFlags(cmd.Flags(), os.Environ()); err != nil {
			return err
		}
		return f.out.Open(cmd.OutOrStdout())
	}
	flags := c.PersistentFlags()
	flags.StringVar(&f.dataDir, "data-dir", "", "data directory of the edge (required unless --socket is given)")
	flags.StringVar(&f.socket, "socket", "", "socket of the edge (default: "+socketName+" in its data directory)")
	flags.StringVar(&f.siteCode, "site-code", "", "site code of a person, if the edge asks for one; better in SKERRY_SITE_CODE or typed at the terminal, as others see command lines")
	f.out.AddJSONFlag(flags)
	console.AddConfigFlag(flags)
}

// runLocal makes a command of a function that asks the edge. If the edge wants a site code, a person at a terminal is asked
// for it.
func (f *localFlags) runLocal(run func(ctx context.Context, edge *local.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		edge, err := f.newLocalClient()
		if err == nil {
			err = run(cmd.Context(), edge, args)
			if local.NeedsSiteCode(err) && term.IsTerminal(int(os.Stdin.Fd())) {
				code, failed := askSiteCode()
				if failed != nil {
					return f.out.Close(failed)
				}
				err = run(cmd.Context(), edge.WithSiteCode(code), args)
			}
		}
		return f.out.Close(err)
	}
}

func (f *localFlags) newLocalClient() (*local.Client, error) {
	switch {
	case f.socket != "":
		return local.NewClient(f.socket).WithSiteCode(f.siteCode), nil
	case f.dataDir != "":
		return local.NewClient(filepath.Join(f.dataDir, socketName)).WithSiteCode(f.siteCode), nil
	}
	return nil, fleet.Errorf(fleet.CodeInvalid, "which edge? Its data directory is not named").
		WithHint("give --data-dir, or set SKERRY_DATA_DIR")
}

// askSiteCode reads a site code from the terminal, which does not show it.
func askSiteCode() (string, error) {
	fmt.Fprint(os.Stderr, "Site code: ")
	code, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	if err != nil {
		return "", fmt.Errorf("read the site code from the terminal: %w", err)
	}
	return string(code), nil
}

func (f *localFlags) statusCommand() *cobra.Command {
	all, copies := false, false
	c := &cobra.Command{
		Use: "status", Short: "Show the link, the journal and the allocations", Args: cobra.NoArgs,
		Long: `Show the state of this edge: its link to the hubs, the rows of its journal that no hub has acknowledged yet,
and its allocations. Like all commands of skerry local it needs no link.

A second table shows the age of what tasks run with: rendered templates that cannot be rendered again now, without a link
the variables of the allocations, and with --verbose every template, variable and identity. No values are shown.`,
		Example: `  skerry local status --data-dir /var/lib/skerry-edge
  skerry local status --data-dir /var/lib/skerry-edge --all
  skerry local status --data-dir /var/lib/skerry-edge --verbose`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, _ []string) error {
			s, err := edge.Status(ctx)
			if err == nil {
				f.out.Show(s, func() { writeStatus(&f.out, s, all, copies, time.Now()) })
			}
			return err
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "also show allocations that have ended")
	c.Flags().BoolVarP(&copies, "verbose", "v", false, "also show the age of every template, variable and identity that the edge keeps")
	return c
}

func writeStatus(out *console.Output, s local.Status, all, copies bool, now time.Time) {
	out.Line("%s\n", statusSummary(s, now))
	writeFacts(out, s)
	var shown []local.Alloc
	allocs := console.NewTable("ID", "ALLOCATION", "WANTED", "STATUS", "TASKS", "CLUSTER KNOWS", "NOTE")
	for _, a := range s.Allocs {
		if hasEnded(a) && !all {
			continue
		}
		shown = append(shown, a)
		allocs.Add(fleet.Short(a.ID), a.Name, a.Desired, a.ClientStatus, taskLine(a.Tasks), !a.Unsent, allocNote(a, now))
	}
	if len(shown) > 0 {
		out.Line("")
		out.Table(allocs)
	}
	writeCopies(out, s, shown, copies, now)
	if hidden := len(s.Allocs) - len(shown); hidden > 0 {
		out.Line("\n%s that ended not shown; use --all to show them.", console.Count(hidden, "allocation"))
	}
}

// writeFacts writes the facts about the edge, one on each line.
func writeFacts(out *console.Output, s local.Status) {
	t := console.NewTable()
	t.Add("Edge", fmt.Sprintf("%s (%s)", s.Name, fleet.Short(s.NodeID)))
	t.Add("Site", fmt.Sprintf("%s, datacenter %s, pool %s", s.Site, s.Datacenter, s.NodePool))
	t.AddSet("Time zone", s.TimeZone)
	t.Add("Machine", fmt.Sprintf("up %s, boot %s", console.Span(s.Uptime), fleet.Short(s.BootID)))
	t.Add("Agent", fmt.Sprintf("%s, since %s", s.Version, console.LocalTime(s.Started)))
	t.Add("Link", linkLine(s))
	t.AddSet("Last error", s.Link.LastError)
	t.AddSet("Certificate", s.Cert.LastError)
	t.AddSet("Key of secrets", keyLine(s.Key))
	t.AddSet("", s.Key.LastError)
	t.AddSet("Fenced", s.Link.Fenced)
	t.AddSet("Cluster went back", s.Link.WentBack)
	j := s.Journal
	t.Add("Journal", fmt.Sprintf("rows %d to %d, %d not yet acknowledged by the hubs, %d KiB", j.First, j.Last, j.Unacknowledged, j.Bytes>>10))
	if j.Dropped > 0 {
		t.Add("", fmt.Sprintf("%d rows of low priority were dropped at the bound", j.Dropped))
	}
	for _, q := range j.Quarantined {
		t.Add("Damaged", damageLine(q))
	}
	if j.Lost != "" {
		t.Add("", "rows were lost: a hub must first send the next row number, and until then the newest numbers are provisional")
	}
	out.Table(t)
}

// keyLine says how the edge keeps the key that encrypts secrets on its disk; "": an agent of an older release does not say.
func keyLine(k local.MachineKey) string {
	line := console.KeyPlace(k.Place)
	if k.Wanted != "" && k.Place != "memory" {
		line += ", not as --seal " + k.Wanted + " asks for"
	}
	return line
}

func damageLine(q local.Quarantine) string {
	lost := fmt.Sprint(q.Lost)
	if q.EndUnknown {
		lost = "an unknown number"
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

func allocNote(a local.Alloc, now time.Time) string {
	var parts []string
	for _, text := range []string{a.ClientDescription, a.DesiredReason, a.Note} {
		if text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	if a.StopsIn > 0 {
		parts = append(parts, "stops in "+console.Span(a.StopsIn)+" without a link")
	}
	for _, token := range a.Identities {
		if token.Expires != nil && !now.Before(*token.Expires) {
			parts = append(parts, fmt.Sprintf("identity %s of %s expired %s ago", token.Name, cmp.Or(token.Task, "the group"), console.Span(now.Sub(*token.Expires))))
		}
	}
	return strings.Join(parts, "; ")
}

func (f *localFlags) logsCommand() *cobra.Command {
	req := local.LogRequest{Stream: "stdout"}
	var stderr bool
	var tail int64
	c := &cobra.Command{
		Use: "logs ALLOC [TASK]", Short: "Show the logs of a task", Args: cobra.RangeArgs(1, 2),
		Example: `  skerry local logs --data-dir /var/lib/skerry-edge -f 1d697ed5 backend`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			req.Alloc = fleet.AllocID(args[0])
			if len(args) > 1 {
				req.Task = args[1]
			}
			if stderr {
				req.Stream = "stderr"
			}
			if tail > 0 {
				req.Origin, req.Offset = "end", tail
			}
			text, err := edge.Logs(ctx, req)
			if err != nil {
				return err
			}
			defer text.Close()
			return f.out.CopyText(ctx, text)
		}),
	}
	c.Flags().BoolVarP(&req.Follow, "follow", "f", false, "keep showing new output until the allocation ends")
	c.Flags().BoolVar(&stderr, "stderr", false, "show stderr instead of stdout")
	c.Flags().Int64Var(&tail, "tail", 0, "show this number of bytes from the end")
	return c
}

func (f *localFlags) stopCommand() *cobra.Command {
	var req local.StopRequest
	c := &cobra.Command{
		Use: "stop ALLOC", Short: "Stop an allocation until 'local start'", Args: cobra.ExactArgs(1),
		Long: `Stop an allocation. It stays stopped until 'local start', also after a reboot and with a link to the hubs,
which do not replace it. They show who stopped it and why.`,
		Example: `  skerry local stop --data-dir /var/lib/skerry-edge --reason "it smokes" 1d697ed5`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			req.Alloc = fleet.AllocID(args[0])
			if err := edge.Stop(ctx, req); err != nil {
				return err
			}
			message := "Allocation %s is stopped until 'local start'."
			if req.MayReturn {
				message = "Allocation %s is stopped; the hubs may start another one in its place."
			}
			f.sayDone(args[0], "stopped", message)
			return nil
		}),
	}
	c.Flags().StringVar(&req.Reason, "reason", "", "reason, which the hubs show")
	c.Flags().BoolVar(&req.NoShutdownDelay, "no-shutdown-delay", false, "skip the shutdown_delay of groups and tasks, also one that is running already")
	c.Flags().BoolVar(&req.MayReturn, "may-return", false, "end the allocation for good: the hubs may start another one in its place")
	return c
}

func (f *localFlags) startCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "start ALLOC", Short: "Start an allocation that 'local stop' has stopped", Args: cobra.ExactArgs(1),
		Long: `Start an allocation that 'local stop' has stopped. It needs no link. If the hubs have ended the allocation since,
the one that they sent in its place starts.`,
		Example: `  skerry local start --data-dir /var/lib/skerry-edge 1d697ed5`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			s, err := edge.Start(ctx, fleet.AllocID(args[0]), reason)
			if err != nil {
				return err
			}
			what := "It starts now."
			if s.Waiting == 0 { // an allocation that has ended does not run again
				what = "This edge has no allocation of that name now: one starts when the hubs send it, for which a link is needed."
			}
			f.out.Say(s, "%s is no longer stopped on site. %s", s.Name, what)
			return nil
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "reason, shown by skerry local history and by the hubs")
	return c
}

func (f *localFlags) restartCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "restart ALLOC [TASK]", Short: "Restart an allocation's tasks, or one of them", Args: cobra.RangeArgs(1, 2),
		Long: `Restart the tasks of an allocation that have not ended, or only TASK. The job must allow restarts on site. The restart
policy does not count this restart.`,
		Example: `  skerry local restart --data-dir /var/lib/skerry-edge 1d697ed5 backend`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			task := ""
			if len(args) > 1 {
				task = args[1]
			}
			if err := edge.Restart(ctx, fleet.AllocID(args[0]), task, reason); err != nil {
				return err
			}
			f.sayDone(args[0], "restarting", "Allocation %s restarts.")
			return nil
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "reason, shown by skerry local history and by the hubs")
	return c
}

func (f *localFlags) sayDone(alloc, what, message string) {
	f.out.Say(struct{ Alloc, Done string }{alloc, what}, message, alloc)
}

func (f *localFlags) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "history [ALLOC]", Short: "Show the journal of this edge, or its rows about one allocation", Args: cobra.MaximumNArgs(1),
		Example: `  skerry local history --data-dir /var/lib/skerry-edge
  skerry local history --data-dir /var/lib/skerry-edge 1d697ed5`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			var alloc fleet.AllocID
			if len(args) > 0 {
				alloc = fleet.AllocID(args[0])
			}
			rows, err := edge.History(ctx, alloc)
			if err != nil {
				return err
			}
			f.out.Show(rows, func() {
				console.List[fleet.Transition]{
					Heads: []string{"ROW", "TIME", "ALLOC", "WHAT"},
					Row: func(t fleet.Transition) []any {
						return []any{t.Seq, console.LocalNano(t.Wall), fleet.Short(t.Alloc), console.Transition(&t)}
					},
				}.Write(&f.out, rows)
			})
			return nil
		}),
	}
}
