// Package audit has the commands of skerry audit. It starts no goroutine; export writes a file.
package audit

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/auditchain"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// Command is skerry audit.
func Command(s *command.Session) *cobra.Command {
	return command.Group("audit", "Show, check and export what was asked of a hub",
		listCommand(s), verifyCommand(s), exportCommand(s))
}

// scanEntries calls do for each line of an audit, with its entry.
func scanEntries(r io.Reader, do func(line []byte, e api.AuditEntry) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, api.MaxAuditLine)
	for n := 1; lines.Scan(); n++ {
		var e api.AuditEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "read the audit: line %d: %w", n, err)
		}
		if err := do(lines.Bytes(), e); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the audit: %w", err)
	}
	return nil
}

func listCommand(s *command.Session) *cobra.Command {
	var after uint64
	var last int
	c := &cobra.Command{
		Use: "list", Short: "List what was asked of this hub: changes, commands in tasks, and refusals", Args: cobra.NoArgs,
		Example: `  skerry audit list
  skerry audit list --last 20 --json`,
		Long: "List what was asked of the hub that answers: changes, commands in tasks, and refused requests, the oldest first.\nEach hub has its own audit: ask another one with --addr or --context. What people did on nodes is in the audit of\neach hub, with the time on the node, once the node has reported it.",
		RunE: s.Run(func(c *command.Call) error {
			if last < 1 {
				return fleet.Errorf(fleet.CodeInvalid, "list the audit: --last %d is less than 1", last)
			}
			from, err := c.Hub.Audit(c.Context(), after)
			if err != nil {
				return err
			}
			defer from.Close()
			list := []api.AuditEntry{}
			err = scanEntries(from, func(_ []byte, e api.AuditEntry) error {
				if len(list) == last {
					list = list[1:]
				}
				list = append(list, e)
				return nil
			})
			if err != nil {
				return err
			}
			c.Out.Show(list, func() {
				console.List[api.AuditEntry]{
					None: "Nothing was asked of this hub.", Heads: []string{"ENTRY", "TIME", "ON SITE", "WHO", "ROLES", "FROM", "WHAT", "ANSWER"},
					Row: entryCells,
				}.Write(c.Out, list)
			})
			return nil
		}),
	}
	c.Flags().Uint64Var(&after, "after", 0, "only entries after the one with this number")
	c.Flags().IntVar(&last, "last", 100, "how many entries to list, the newest ones")
	return c
}

func entryCells(e api.AuditEntry) []any {
	return []any{e.Seq, console.LocalTime(e.Time), onSite(e), who(e.Actor), strings.Join(e.Actor.Roles, ", "), e.Source, what(e), answer(e)}
}

func who(a api.AuditActor) string {
	if a.UID != "" {
		a.UID = "uid " + a.UID
	}
	if a.Person != "" {
		a.Person = fleet.WithSiteCode(a.Person, a.SiteCode)
	}
	return cmp.Or(a.Accessor, a.Workload, a.Certificate, a.Person, a.User, a.UID, "-")
}

// onSite returns when an action on an edge was done, by the edge's clock.
func onSite(e api.AuditEntry) string {
	if e.Edge == nil {
		return ""
	}
	return console.LocalTime(e.Edge.Time)
}

func what(e api.AuditEntry) string {
	if e.Verb == api.AuditLost {
		return fmt.Sprintf("%d entries could not be written", e.Lost)
	}
	if e.Reason != "" {
		return fmt.Sprintf("%s %s: %s", e.Verb, e.Object, e.Reason)
	}
	if e.Namespace != "" {
		return fmt.Sprintf("%s %s (namespace %s)", e.Verb, e.Object, e.Namespace)
	}
	return e.Verb + " " + e.Object
}

func answer(e api.AuditEntry) string {
	if e.Status == 0 {
		return string(e.Code)
	}
	return strings.TrimSpace(strconv.Itoa(e.Status) + " " + string(e.Code))
}

func verifyCommand(s *command.Session) *cobra.Command {
	var head string
	c := &cobra.Command{
		Use: "verify [FILE...]", Short: "Check that no entry of an audit was changed or left out",
		Example: `  skerry audit verify
  skerry audit verify --head 17:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 audit.jsonl`,
		Long: `Check that each entry follows from the one before it: in the audit of the hub that answers, or in files of
skerry audit export or of a hub's folder audit, in their order.

A person who can write the hub's files can write a whole new audit. So keep the line that this command ends with elsewhere,
and give it to --head the next time: then what was there before cannot have been changed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var ch auditchain.Chain
			if head != "" {
				if err := ch.SetHead(head); err != nil {
					return s.Out.Close(err)
				}
			}
			if len(args) > 0 {
				return s.RunOffline(func(c *command.Call) error { return verifyFiles(c, &ch) })(cmd, args)
			}
			return s.Run(func(c *command.Call) error {
				from, err := c.Hub.Audit(c.Context(), 0)
				if err != nil {
					return err
				}
				defer from.Close()
				if err := scanEntries(from, func(line []byte, _ api.AuditEntry) error { return ch.AddLine(line) }); err != nil {
					return err
				}
				return ch.WriteResult(c.Out)
			})(cmd, args)
		},
	}
	c.Flags().StringVar(&head, "head", "", "NUMBER:HASH of an earlier check, which must be part of this audit")
	return c
}

// verifyFiles checks the files of the arguments.
func verifyFiles(c *command.Call, ch *auditchain.Chain) error {
	for _, path := range c.Args {
		f, err := os.Open(path)
		if err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "check the audit: %w", err)
		}
		if err := errors.Join(scanEntries(f, func(line []byte, _ api.AuditEntry) error { return ch.AddLine(line) }), f.Close()); err != nil {
			return err
		}
	}
	return ch.WriteResult(c.Out)
}

func exportCommand(s *command.Session) *cobra.Command {
	var after uint64
	var file string
	c := &cobra.Command{
		Use: "export", Short: "Write this hub's audit as JSON lines", Args: cobra.NoArgs,
		Example: `  skerry audit export --after 17 --out audit.jsonl`,
		RunE: s.Run(func(c *command.Call) error {
			from, err := c.Hub.Audit(c.Context(), after)
			if err != nil {
				return err
			}
			defer from.Close()
			if file == "" {
				return c.Out.CopyText(c.Context(), from)
			}
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err == nil {
				_, err = io.Copy(f, from)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "export the audit: %w", err)
			}
			c.Out.Say(struct{ File string }{file}, "The audit is in %s", file)
			return nil
		}),
	}
	c.Flags().Uint64Var(&after, "after", 0, "only entries after the one with this number")
	c.Flags().StringVar(&file, "out", "", "file to write to, which must not exist yet (default: standard output)")
	return c
}
