package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/chaos/history"
)

// Bounds of the tables of a campaign: all runs, runs that did not pass, and those of them on
// a terminal.
const (
	maxRuns           = 1000
	maxFailedRuns     = 100
	maxFailedRunsText = 20
)

// WriteCampaign writes the HTML page of a campaign to w, with links to its runs' pages.
func WriteCampaign(w io.Writer, c history.Campaign) error { return buildCampaignPage(c).writeHTML(w) }

// PrintCampaign writes a campaign as text of at most 100 characters a line to w, without the table of all runs.
func PrintCampaign(w io.Writer, c history.Campaign) error {
	p := buildCampaignPage(c)
	verdict := "pass"
	if len(p.Reasons) > 0 {
		verdict = "no pass: " + strings.Join(p.Reasons, "; ")
	}
	return p.printText(w, p.Name+": "+p.About, verdict)
}

// buildCampaignPage returns the content of a campaign's page: totals, violations, failed runs, faults, branches
// and all runs.
func buildCampaignPage(c history.Campaign) page {
	t := c.Totals()
	p := page{
		Name: c.Name, Outcome: c.Outcome(), About: outcomeCounts(t), Reasons: c.Shortcomings(), Repeat: c.Repeat, Facts: campaignFacts(c, t),
	}
	failed := &table{Heads: []string{"outcome", "run", "seed", "why", "repeat"}, right: []int{2}, most: maxFailedRuns, mostText: maxFailedRunsText}
	runs := &table{
		Heads: []string{"outcome", "run", "seed", "lasted", "took", "faults", "never hit", "refused", "violations", "history"},
		right: []int{2, 3, 4, 5, 6, 7, 8}, most: maxRuns,
	}
	for _, r := range c.Runs {
		outcome, name := cell{Text: string(r.Outcome), Class: string(r.Outcome)}, cell{Text: r.Name, Link: r.Report}
		if r.Outcome != history.Pass {
			failed.addRow(outcome, name, r.Seed, strings.Join(r.Reasons, "; "), r.Repeat)
		}
		var times, missed, violations uint64
		for _, f := range r.Faults {
			times, missed = times+f.Times, missed+f.Missed
		}
		for _, v := range r.Violations {
			violations += v.Count
		}
		runs.addRow(outcome, name, r.Seed, stamp(r.Lasted), stamp(r.Wall.Round(10*time.Millisecond)), times, missed, r.Refused, violations,
			cell{Text: "history", Link: r.History})
	}
	broken := &table{Heads: []string{"broken", "times", "promise"}, right: []int{1}}
	for _, v := range t.Violations {
		broken.addRow(cell{Text: v.Invariant.Slug(), Class: string(history.Violated)}, v.Count, v.Invariant.Statement())
	}
	faults := &table{Heads: []string{"fault", "times", "hits", "never hit", "runs with a hit"}, right: []int{1, 2, 3, 4}}
	for _, f := range t.Faults {
		faults.addRow(f.Fault, f.Times, cell{Text: fmt.Sprint(f.Hits), Class: classIf(f.Hits == 0, "void")}, f.Missed, f.Runs)
	}
	branches := &table{Heads: []string{"branch", "times", "runs"}, right: []int{1, 2}}
	for _, s := range t.Sometimes {
		branches.addRow(s.Name, cell{Text: fmt.Sprint(s.Count), Class: classIf(s.Count == 0, "void")}, s.Runs)
	}
	p.addSection(section{Title: "Violations", Table: broken})
	p.addSection(section{Title: "Runs that did not pass", Table: failed})
	p.addSection(section{Title: "Faults", Table: faults})
	p.addSection(section{Title: "Branches", Table: branches})
	p.addSection(section{Title: "All runs", Table: runs, pageOnly: true})
	return p
}

// outcomeCounts returns the number of histories and of each outcome, on one line.
func outcomeCounts(t history.Totals) string {
	text := "1 history"
	if t.Histories != 1 {
		text = fmt.Sprintf("%d histories", t.Histories)
	}
	for _, o := range []history.Outcome{history.Pass, history.Violated, history.Void, history.Broken} {
		text += fmt.Sprintf(", %d %s", t.Outcomes[o], o)
	}
	return text
}

// campaignFacts returns the sums of a campaign as a table of names and values.
func campaignFacts(c history.Campaign, t history.Totals) *table {
	facts := &table{}
	add := func(name, format string, args ...any) { facts.addRow(name, fmt.Sprintf(format, args...)) }
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
		add("faults", "%d of %s, %.1f an hour", t.Times, history.Plural(len(t.Faults), "kind"), float64(t.Times)/hours)
	}
	add("operations by clients", "%d", t.Operations)
	add("refused", "%d", t.Refused)
	add("records", "%d", t.Records)
	add("took", "%s on %s", stamp(c.Wall), history.Plural(c.Cores, "core"))
	if hours := t.Virtual.Hours(); hours > 0 {
		add("a virtual hour costs", "%s of one run, %s of the campaign",
			stamp(time.Duration(float64(t.Work)/hours)), stamp(time.Duration(float64(c.Wall)/hours)))
	}
	if c.Repeat != "" {
		add("repeat", "%s", c.Repeat)
	}
	if !c.Start.IsZero() {
		add("started", "%s", c.Start.UTC().Format(startFormat))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Versions)) {
		add(name, "%s", c.Versions[name])
	}
	return facts
}
