package local

import (
	"fmt"
	"strings"
	"time"

	"skerry/cmd/console"
	"skerry/edge/local"
	"skerry/fleet"
)

// statusSummary says in a few sentences, for a person in front of the machine, whether it works.
func statusSummary(s local.Status, now time.Time) string {
	parts := []string{linkSentence(s, now), tasksSentence(s.Allocs)}
	if held := heldSentence(s.Allocs); held != "" {
		parts = append(parts, held)
	}
	if n := s.Journal.Unacknowledged; n > 0 {
		verb := "wait"
		if n == 1 {
			verb = "waits"
		}
		parts = append(parts, fmt.Sprintf("%s %s to be sent.", console.Count(int(n), "event"), verb))
	}
	if s.Disk.Full {
		parts = append(parts, fmt.Sprintf("The disk is full: free some space (%d of %d MiB that the agent keeps for this are left).",
			s.Disk.Reserve>>20, s.Disk.Reserved>>20))
	}
	if s.Disk.NoNewAllocs != "" {
		parts = append(parts, fmt.Sprintf("New allocations wait: %s (%d MiB).", s.Disk.NoNewAllocs, s.Disk.Free>>20))
	}
	return strings.Join(parts, " ")
}

// linkSentence says whether the hubs are connected, or since when they are not.
func linkSentence(s local.Status, now time.Time) string {
	l := s.Link
	switch {
	case l.Fenced != "":
		return "The hubs refuse this machine: " + l.Fenced + "."
	case l.State == "connected":
		return "Connected to the hubs."
	case !s.Enrolled:
		return "No hub has admitted this machine yet."
	case l.Away <= 0:
		return "No hub has answered yet."
	}
	since := now.Add(-l.Away).Local()
	format := "15:04"
	if y, m, d := since.Date(); y != now.Local().Year() || m != now.Local().Month() || d != now.Local().Day() {
		format = "2006-01-02 15:04"
	}
	return fmt.Sprintf("No link to the hubs since %s (%s).", since.Format(format), durationInWords(l.Away))
}

// durationInWords writes a duration in its two largest units.
func durationInWords(d time.Duration) string {
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", minutes)
	case days == 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	}
	return fmt.Sprintf("%s %d h", console.Count(days, "day"), hours)
}

// tasksSentence counts the tasks that should run. A task that has ended successfully does not count, nor does one that
// waits for its next launch.
func tasksSentence(allocs []local.Alloc) string {
	running, all := 0, 0
	for _, a := range allocs {
		if hasEnded(a) || a.Held != nil || a.BetweenLaunches || a.Desired != fleet.DesiredRun {
			continue
		}
		if len(a.Tasks) == 0 {
			all++ // at least one task, which has not begun
		}
		for _, t := range a.Tasks {
			switch {
			case t.State == fleet.TaskRunning:
				running++
				all++
			case t.State != fleet.TaskDead || t.Failed:
				all++
			}
		}
	}
	switch {
	case all == 0:
		return "No task has to run here."
	case all == 1 && running == 1:
		return "The one task runs."
	}
	verb := "run"
	if running == 1 {
		verb = "runs"
	}
	return fmt.Sprintf("%d of %s %s.", running, console.Count(all, "task"), verb)
}

// heldSentence counts the held allocations. It returns "" if there are none.
func heldSentence(allocs []local.Alloc) string {
	n := 0
	for _, a := range allocs {
		if a.Held != nil && !hasEnded(a) {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return "1 allocation is stopped on site."
	}
	return fmt.Sprintf("%d allocations are stopped on site.", n)
}

// hasEnded reports whether the edge has finished with an allocation.
func hasEnded(a local.Alloc) bool { return fleet.IsClientTerminal(a.ClientStatus) }
