package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/fleet/timeline"
)

func allocHistory(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "history ID", Short: "Show the history of an allocation, with the time without a link marked", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := o.findAlloc(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			answer, err := hub.AllocHistory(cmd.Context(), stub.ID)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			return writeHistory(cmd.OutOrStdout(), answer)
		},
	}
}

// writeHistory writes the timeline of one allocation.
func writeHistory(w io.Writer, h api.HistoryAnswer) error {
	fmt.Fprintf(w, "Allocation %s  %s  on %s\n\n", h.Alloc.ID, h.Alloc.Name, h.Alloc.NodeName)
	if len(h.Entries) == 0 {
		_, err := fmt.Fprintln(w, "Nothing is known of it yet.")
		return err
	}
	if h.Dropped > 0 {
		fmt.Fprintf(w, "%d entries of little weight were let go: a hub keeps so many of each allocation.\n\n", h.Dropped)
	}
	return writeTimeline(w, h.Entries, false)
}

// writeTimeline writes entries in their order, with the time without a link marked. Where they
// are of several allocations, each line names its own.
func writeTimeline(w io.Writer, entries []fleet.HistoryEntry, several bool) error {
	t := console.Table{Heads: []string{" ", "TIME", "WHO", "ROW", "WHAT"}}
	if several {
		t.Heads = []string{" ", "TIME", "WHO", "ROW", "ALLOCATION", "WHAT"}
	}
	add := func(mark, at, who, row, alloc, what string) {
		if several {
			t.Add(mark, at, who, row, alloc, what)
		} else {
			t.Add(mark, at, who, row, what)
		}
	}
	away := false
	without := timeline.Apart(entries)
	for i, apart := range without {
		switch {
		case apart && !away:
			add("┌", lastHeard(entries[i:], without[i:]), "", "", "", "── the link is gone ──")
		case !apart && away:
			add("└", "", "", "", "", "── the link is back ──")
		}
		away = apart
		mark := " "
		if away {
			mark = "│"
		}
		e := entries[i]
		add(mark, console.LocalTime(e.Time), string(e.Side), entryRow(e), string(displayID(e.AllocID)), entryText(e))
	}
	if away {
		add("╵", "", "", "", "", "── the link is still gone ──")
	}
	return t.Write(w)
}

// lastHeard is when the edge was last heard of before the time without a link that begins with
// the first entry; "" where no hub says.
func lastHeard(entries []fleet.HistoryEntry, without []bool) string {
	for i, e := range entries {
		if !without[i] {
			break
		}
		if e.Since != nil {
			return console.LocalTime(*e.Since)
		}
	}
	return ""
}

func entryRow(e fleet.HistoryEntry) string {
	if e.Transition == nil {
		return ""
	}
	return fmt.Sprint(e.Transition.Seq)
}

func entryText(e fleet.HistoryEntry) string {
	if e.Transition != nil {
		return console.Transition(e.Transition)
	}
	return withReason(e.Event, e.Message)
}
