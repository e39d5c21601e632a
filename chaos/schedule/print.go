package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// String is the schedule as a scenario, in the canonical form: what Parse makes of
// it prints the same.
func (s Schedule) String() string {
	var b strings.Builder
	if s.Comment != "" {
		for line := range strings.SplitSeq(s.Comment, "\n") {
			b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
		}
		b.WriteString("\n")
	}
	if s.Seed != 0 {
		fmt.Fprintf(&b, "seed %d\n", s.Seed)
	}
	fmt.Fprintf(&b, "length %s\nsettle %s\n", formatDuration(s.Length), formatDuration(s.Settle))
	if s.Operations != 0 {
		fmt.Fprintf(&b, "operations %d/m\n", s.Operations)
	}
	b.WriteString("\n" + s.Topology.String())
	writeSection(&b, s.Jobs, Job.String)
	writeSection(&b, s.timelineLines(), func(l timedLine) string { return l.text })
	writeSection(&b, s.Expect, Expectation.String)
	return b.String()
}

func writeSection[T any](b *strings.Builder, items []T, text func(T) string) {
	if len(items) > 0 {
		b.WriteString("\n")
	}
	for _, item := range items {
		b.WriteString(text(item) + "\n")
	}
}

// timedLine is a line of the timeline.
type timedLine struct {
	at   time.Duration
	text string
}

// timelineLines is what users do and what breaks, in order of time. At one time users
// come first.
func (s Schedule) timelineLines() []timedLine {
	var lines []timedLine
	for _, step := range s.Steps {
		lines = append(lines, timedLine{step.At, step.String()})
	}
	for _, f := range s.Faults {
		lines = append(lines, timedLine{f.At, f.String()})
	}
	slices.SortStableFunc(lines, func(a, b timedLine) int { return int(min(1, max(-1, a.at-b.at))) })
	return lines
}

// String is the topology as lines of a scenario; edges that are alike and follow
// each other share one.
func (t Topology) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hubs %d\n", len(t.Hubs))
	for i := 0; i < len(t.Edges); {
		like := t.Edges[i]
		like.Name = ""
		n := 0
		for ; i < len(t.Edges); i, n = i+1, n+1 {
			if e := t.Edges[i]; formatAttributes(edgeAttributes, e) != formatAttributes(edgeAttributes, like) {
				break
			}
		}
		fmt.Fprintf(&b, "edges %d%s\n", n, formatAttributes(edgeAttributes, like))
	}
	for _, p := range t.Pools {
		fmt.Fprintf(&b, "pool %s%s\n", p.Name, formatAttributes(poolAttributes, p))
	}
	return b.String()
}

// String is the job as it stands in a scenario.
func (j Job) String() string {
	if j.HCL == "" {
		return fmt.Sprintf("job %s %s%s", j.ID, j.Type, formatAttributes(jobAttributes, j))
	}
	text := fmt.Sprintf("job %s%s %s", j.ID, formatAttributes([]attribute[Job]{startAttribute}, j), heredoc(j.HCL))
	if j.Next != "" {
		text += fmt.Sprintf("\nnext %s %s", j.ID, heredoc(j.Next))
	}
	return text
}

// heredoc is a job file between marks that it does not have itself.
func heredoc(text string) string {
	end := "EOF"
	for slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == end }) {
		end += "F"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return fmt.Sprintf("<<%s\n%s%s", end, text, end)
}

// String is the step as it stands in a scenario.
func (step Step) String() string {
	s := fmt.Sprintf("at %s %s %s", formatDuration(step.At), step.Verb, step.Job)
	if step.Verb == Scale {
		s += fmt.Sprintf(" to %d", step.Count)
	}
	return s
}

// String is the expectation as it stands in a scenario.
func (e Expectation) String() string {
	s := "expect " + string(e.Subject)
	switch e.Subject {
	case ExpectJob:
		s += fmt.Sprintf(" %s %s %s", e.Job, e.State, e.formatAmount())
	case ExpectAlloc, ExpectNode:
		s += " " + e.Name + " " + e.State
	case ExpectEdge:
		s += " " + e.Name + " runs " + e.formatAmount() + e.ofJob()
	case ExpectReplaced, ExpectRestarted:
		s += " " + e.formatAmount() + e.ofJob()
	case ExpectRefused:
		s += " " + e.State
	case ExpectQuiet:
		s += " within " + formatDuration(e.Within)
	}
	switch e.When {
	case At, By:
		s += fmt.Sprintf(" %s %s", e.When, formatDuration(e.Time))
	case Always:
		s += fmt.Sprintf(" from %s to %s", formatDuration(e.Time), formatDuration(e.Until))
	case Never:
		s += " never"
	}
	return s
}

func (e Expectation) formatAmount() string {
	if e.Compare == Exactly {
		return fmt.Sprint(e.Count)
	}
	return fmt.Sprintf("%s %d", e.Compare, e.Count)
}

func (e Expectation) ofJob() string {
	if e.Job == "" {
		return ""
	}
	return " of " + string(e.Job)
}
