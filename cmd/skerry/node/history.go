package node

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func historyCommand(s *command.Session) *cobra.Command {
	var since, until string
	c := &cobra.Command{
		Use: "history ID", Short: "Show the history of a node, and mark the time without a link to the hubs", Args: cobra.ExactArgs(1),
		Example: `  skerry node history shop-17
  skerry node history --since 02:10 --until 05:40 shop-17`,
		Long: `Show what happened on a node: its sessions, what the hubs decided about its allocations, and every
row of its journal, in one timeline. The time without a link is marked at the left.

--since and --until take a time of day (02:10: the last time it was ten past two), a date and time
("2026-05-01 02:10", local time), RFC 3339, or a duration before now (3h).`,
		RunE: s.Run(func(c *command.Call) error {
			q, err := timeWindow(since, until, time.Now())
			if err != nil {
				return err
			}
			q.Allocations = true
			node, err := c.FindNode(c.Args[0])
			if err != nil {
				return err
			}
			entries, err := c.Hub.NodeHistory(c.Context(), node.ID, q)
			if err != nil {
				return err
			}
			c.Out.Show(entries, func() {
				c.Out.Line("Node %s  %s\n", node.ID, node.Name)
				if len(entries) == 0 {
					c.Out.Line("Nothing is recorded for that time.")
				}
				c.Out.Timeline(entries, true)
			})
			return nil
		}),
	}
	c.Flags().StringVar(&since, "since", "", "show only what happened after this time")
	c.Flags().StringVar(&until, "until", "", "show only what happened before this time")
	return c
}

// timeWindow reads two times as people write them. A time of
// day in until is the first one after since.
func timeWindow(since, until string, now time.Time) (q client.HistoryQuery, err error) {
	for _, bound := range []struct {
		name, text string
		at         *time.Time
	}{{"since", since, &q.Since}, {"until", until, &q.Until}} {
		if bound.text == "" {
			continue
		}
		if *bound.at, err = parsePastTime(bound.text, now); err != nil {
			return q, fmt.Errorf("read --%s: %w", bound.name, err)
		}
	}
	if _, ok := parseClock(until, now); ok && q.Until.Before(q.Since) {
		q.Until = q.Until.AddDate(0, 0, 1)
	}
	return q, nil
}

// parsePastTime reads a time in the past, as people write it.
func parsePastTime(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if at, ok := parseClock(text, now); ok {
		return at, nil
	}
	return time.Time{}, fleet.Errorf(fleet.CodeInvalid, "%q is not a time", text).
		WithHint(`write it like 02:10, "2026-05-01 02:10", 2026-05-01T02:10:00Z or 3h (ago)`)
}

// parseClock reads a time of day: the last time that a clock showed it.
func parseClock(text string, now time.Time) (time.Time, bool) {
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if clock, err := time.Parse(layout, text); err == nil {
			at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
			return at, true
		}
	}
	return time.Time{}, false
}
