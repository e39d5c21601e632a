package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/timeline"
)

// parseRecord reads lines of "SIDE INDEX SECOND WHAT", a row that happened offline with
// "edge!", as the cluster came to know them.
func parseRecord(text string) []fleet.HistoryEntry {
	var entries []fleet.HistoryEntry
	for line := range strings.Lines(text) {
		var side, what string
		var index, second int
		if n, _ := fmt.Sscanf(line, "%s %d %d %s", &side, &index, &second, &what); n != 4 {
			continue
		}
		e := fleet.HistoryEntry{
			Side: fleet.HistorySide(strings.TrimSuffix(side, "!")), Index: fleet.Index(index),
			Time: time.Unix(int64(second), 0), Event: strings.ReplaceAll(what, "-", " "), Offline: strings.HasSuffix(side, "!"),
		}
		entries = append(entries, e)
	}
	return entries
}

func TestTimeline(t *testing.T) {
	for name, c := range map[string]struct{ parseRecord, want string }{
		"connected": {`
			hub 10 100 placed
			edge 11 101 started
			hub 12 102 stop
			edge 13 103 killed`,
			"placed started stop killed"},
		"a partition": {`
			hub 10 100 placed
			edge 11 101 started
			hub 20 130 node-disconnected
			hub 30 200 node-reconnected
			edge! 31 120 failed
			edge! 31 150 restarted
			edge 32 201 checked
			hub 32 201 reconnected`,
			"placed started (failed node_disconnected restarted) node_reconnected checked reconnected"},
		"an edge whose clock is years ahead": {`
			hub 10 100 placed
			hub 20 130 node-disconnected
			hub 30 200 node-reconnected
			edge! 31 99999 failed
			edge 32 99999 checked`,
			"placed (node_disconnected failed) node_reconnected checked"},
		"an edge whose clock is in 1970": {`
			hub 10 100 placed
			edge 11 1 started
			hub 20 130 node-disconnected
			hub 30 200 node-reconnected
			edge! 31 2 failed`,
			"placed started (failed node_disconnected) node_reconnected"},
		"a session that brought nothing, then one that did": {`
			hub 20 130 node-disconnected
			hub 30 200 node-reconnected
			hub 40 300 node-disconnected
			hub 50 400 node-reconnected
			edge! 51 350 failed`,
			"(node_disconnected) node_reconnected (node_disconnected failed) node_reconnected"},
		"rows from before the link went that came only with those from after": {`
			hub 10 100 placed
			hub 20 130 node-disconnected
			hub 30 200 node-reconnected
			edge 31 119 started
			edge! 31 120 failed
			edge 32 201 checked`,
			"placed started (failed node_disconnected) node_reconnected checked"},
		"still gone": {`
			edge 11 101 started
			hub 20 130 node-down`,
			"started (node_down"},
		"nothing": {"", ""},
	} {
		ordered := timeline.Order(parseRecord(c.parseRecord))
		var words []string
		away := false
		for i, apart := range timeline.Apart(ordered) {
			word := strings.ReplaceAll(ordered[i].Event, " ", "_")
			if apart && !away {
				word = "(" + word
			} else if !apart && away {
				words[len(words)-1] += ")"
			}
			away = apart
			words = append(words, word)
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}
