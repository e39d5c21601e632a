package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"skerry/chaos/history"
)

// maxPrinted bounds how many runs that are no pass a terminal is shown.
const maxPrinted = 20

// PrintCampaign prints what a campaign came to, at most 100 characters wide.
func PrintCampaign(w io.Writer, c history.Campaign) error {
	var b strings.Builder
	t := c.Totals()
	paragraph(&b, c.Name+": "+outcomes(t))
	sums := table{wrap: 1}
	for _, f := range campaignFacts(c, t) {
		sums.rows = append(sums.rows, []string{f.Name, printable(f.Value)})
	}
	sums.writeTable(&b)
	if len(t.Faults) > 0 {
		b.WriteString("\n")
		faults := table{heads: []string{"FAULT", "TIMES", "HITS", "NEVER HIT", "RUNS WITH A HIT"}, right: []int{1, 2, 3, 4}}
		for _, f := range t.Faults {
			faults.rows = append(faults.rows, []string{printable(f.Fault), fmt.Sprint(f.Times), fmt.Sprint(f.Hits), fmt.Sprint(f.Missed), fmt.Sprint(f.Runs)})
		}
		faults.writeTable(&b)
	}
	if len(t.Sometimes) > 0 {
		b.WriteString("\n")
		branches := table{heads: []string{"BRANCH", "TIMES", "RUNS"}, right: []int{1, 2}}
		for _, s := range t.Sometimes {
			branches.rows = append(branches.rows, []string{printable(s.Name), fmt.Sprint(s.Count), fmt.Sprint(s.Runs)})
		}
		branches.writeTable(&b)
	}
	if len(t.Violations) > 0 {
		b.WriteString("\n")
		broken := table{heads: []string{"BROKEN", "TIMES", "PROMISE"}, right: []int{1}, wrap: 2}
		for _, v := range t.Violations {
			broken.rows = append(broken.rows, []string{v.Invariant.Slug(), fmt.Sprint(v.Count), v.Invariant.Statement()})
		}
		broken.writeTable(&b)
	}
	printNoPass(&b, c)
	if short := c.Shortcomings(); len(short) == 0 {
		b.WriteString("\npass\n")
	} else {
		b.WriteString("\n")
		paragraph(&b, "no pass: "+strings.Join(short, "; "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printNoPass lists the runs that did not pass.
func printNoPass(b *strings.Builder, c history.Campaign) {
	runs := table{heads: []string{"NO PASS", "RUN", "WHY", "REPEAT"}, wrap: 2}
	left := 0
	for _, r := range c.Runs {
		if r.Outcome == history.Pass {
			continue
		}
		if len(runs.rows) == maxPrinted {
			left++
			continue
		}
		runs.rows = append(runs.rows, []string{
			string(r.Outcome), fmt.Sprintf("%s, seed %d", printable(r.Name), r.Seed), printable(strings.Join(r.Reasons, "; ")), printable(r.Repeat),
		})
	}
	if len(runs.rows) == 0 {
		return
	}
	b.WriteString("\n")
	runs.writeTable(b)
	if left > 0 {
		fmt.Fprintf(b, "  and %d more\n", left)
	}
}

// outcomes says how many runs ended how.
func outcomes(t history.Totals) string {
	parts := []string{plural(t.Histories, "history")}
	if t.Histories != 1 {
		parts[0] = fmt.Sprintf("%d histories", t.Histories)
	}
	for _, o := range []history.Outcome{history.Pass, history.Violated, history.Void, history.Broken} {
		parts = append(parts, fmt.Sprintf("%d %s", t.Outcomes[o], o))
	}
	return strings.Join(parts, ", ")
}

// campaignFacts are the sums of a campaign in words.
func campaignFacts(c history.Campaign, t history.Totals) []fact {
	var facts []fact
	add := func(name, format string, args ...any) {
		facts = append(facts, fact{name, fmt.Sprintf(format, args...)})
	}
	if t.Virtual > 0 {
		add("virtual time", "%.1f hours", t.Virtual.Hours())
	}
	if t.Real > 0 {
		add("real time", "%.2f hours", t.Real.Hours())
	}
	var violations uint64
	for _, v := range t.Violations {
		violations += v.Count
	}
	add("violations", "%d", violations)
	if hours := (t.Virtual + t.Real).Hours(); hours > 0 {
		add("faults", "%d of %s, %.1f an hour", t.Times, plural(len(t.Faults), "kind"), float64(t.Times)/hours)
	}
	add("operations by clients", "%d", t.Operations)
	add("refused", "%d", t.Refused)
	add("records", "%d", t.Records)
	add("took", "%s on %s", stamp(c.Wall), plural(c.Cores, "core"))
	if hours := t.Virtual.Hours(); hours > 0 {
		add("a virtual hour costs", "%s of one run, %s of the campaign",
			stamp(time.Duration(float64(t.Work)/hours)), stamp(time.Duration(float64(c.Wall)/hours)))
	}
	if c.Repeat != "" {
		add("repeat", "%s", c.Repeat)
	}
	return facts
}
