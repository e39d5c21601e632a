package local

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"skerry/cmd/auditchain"
	"skerry/cmd/console"
	"skerry/edge/local"
	"skerry/fleet"
)

// maxAuditLine bounds a line of an edge's audit, in bytes: an object and a reason come from one request.
const maxAuditLine = 64 << 10

func (f *localFlags) auditCommand() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "Show and check what people on site did on this edge"}
	c.AddCommand(f.auditListCommand(), f.auditVerifyCommand())
	return c
}

// scanActions calls do for each line of an edge's audit.
func scanActions(r io.Reader, do func(line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		if err := do(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the audit: %w", err)
	}
	return nil
}

func (f *localFlags) auditListCommand() *cobra.Command {
	var after uint64
	var last int
	c := &cobra.Command{
		Use: "list", Short: "List what people on site did on this edge", Args: cobra.NoArgs,
		Long: `List what people on site did on this edge: who stopped, started or restarted which allocation, ran a command in a task
or changed the store, why, and what became of it. The hubs have the same lines once there is a link.`,
		Example: `  skerry local audit list --data-dir /var/lib/skerry-edge --last 20`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, _ []string) error {
			if last < 1 {
				return fleet.Errorf(fleet.CodeInvalid, "list the audit: --last %d is less than 1", last)
			}
			from, err := edge.Audit(ctx, after)
			if err != nil {
				return err
			}
			defer from.Close()
			list := []fleet.SiteAction{}
			err = scanActions(from, func(line []byte) error {
				var a fleet.SiteAction
				if err := json.Unmarshal(line, &a); err != nil {
					return fleet.Errorf(fleet.CodeInvalid, "read the audit: %w", err)
				}
				if len(list) == last {
					list = list[1:]
				}
				list = append(list, a)
				return nil
			})
			if err != nil {
				return err
			}
			f.out.Show(list, func() {
				console.List[fleet.SiteAction]{
					None: "Nobody did anything on this edge.", Heads: []string{"LINE", "TIME", "WHO", "WHAT", "WHY", "RESULT"},
					Row: func(a fleet.SiteAction) []any {
						what := a.Verb + " " + a.Object
						if a.Verb == fleet.SiteActionsLost {
							what = fmt.Sprintf("%d actions could not be written", a.Lost)
						}
						return []any{a.Seq, console.LocalTime(a.Time), a.Who(), what, a.Reason, cmp.Or(string(a.Code), "done")}
					},
				}.Write(&f.out, list)
			})
			return nil
		}),
	}
	c.Flags().Uint64Var(&after, "after", 0, "only lines after the one with this number")
	c.Flags().IntVar(&last, "last", 100, "how many lines to list, the newest ones")
	return c
}

func (f *localFlags) auditVerifyCommand() *cobra.Command {
	var head string
	c := &cobra.Command{
		Use: "verify", Short: "Check that no line of this edge's audit was changed or left out", Args: cobra.NoArgs,
		Long: `Check that each line of this edge's audit follows from the one before it. A person who can write the edge's files can write
a whole new audit. So keep the line that this command ends with elsewhere, and give it to --head the next time, or compare
the lines with those that the hubs have: 'skerry audit list'.`,
		Example: `  skerry local audit verify --data-dir /var/lib/skerry-edge`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, _ []string) error {
			var ch auditchain.Chain
			if head != "" {
				if err := ch.SetHead(head); err != nil {
					return err
				}
			}
			from, err := edge.Audit(ctx, 0)
			if err != nil {
				return err
			}
			defer from.Close()
			if err := scanActions(from, ch.AddLine); err != nil {
				return err
			}
			return ch.WriteResult(&f.out)
		}),
	}
	c.Flags().StringVar(&head, "head", "", "NUMBER:HASH of an earlier check, which must be part of this audit")
	return c
}
