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

// maxRuns bounds the runs that a campaign's page lists, maxRunsNoPass those of
// them that did not pass and are listed apart.
const (
	maxRuns       = 1000
	maxRunsNoPass = 100
)

// campaignPage is what the template of a campaign is filled with.
type campaignPage struct {
	Name, Verdict, Headline, Outcomes, Repeat, Left string
	Reasons                                         []string
	Facts                                           []fact
	Faults                                          []history.FaultTotal
	Sometimes                                       []history.SometimesTotal
	Violations                                      []history.ViolationCount
	NoPass, Runs                                    []campaignRow
}

type campaignRow struct {
	Outcome, Name, Why, Repeat, Lasted, Wall, Report, History string
	Seed, Times, Missed, Refused, Violations                  uint64
}

// WriteCampaign writes the page of a campaign, with links to its runs' pages.
func WriteCampaign(w io.Writer, c history.Campaign) error {
	t := c.Totals()
	p := campaignPage{
		Name: c.Name, Outcomes: outcomes(t), Repeat: c.Repeat, Reasons: c.Shortcomings(),
		Facts: campaignFacts(c, t), Faults: t.Faults, Sometimes: t.Sometimes, Violations: t.Violations,
	}
	p.Facts = slices.DeleteFunc(p.Facts, func(f fact) bool { return f.Name == "repeat" })
	p.Facts = append(p.Facts, fact{"started", c.Start.UTC().Format("2006-01-02 15:04:05 MST")})
	for _, name := range slices.Sorted(maps.Keys(c.Versions)) {
		p.Facts = append(p.Facts, fact{name, c.Versions[name]})
	}
	outcome := c.Outcome()
	p.Verdict, p.Headline = string(outcome), headline(outcome)
	for _, r := range c.Runs {
		if r.Outcome != history.Pass && len(p.NoPass) < maxRunsNoPass {
			p.NoPass = append(p.NoPass, rowOf(r))
		}
		if len(p.Runs) < maxRuns {
			p.Runs = append(p.Runs, rowOf(r))
		}
	}
	if n := len(c.Runs) - len(p.Runs); n > 0 {
		p.Left = fmt.Sprintf("The last %d are not listed; the campaign's JSON has them.", n)
	}
	if err := pages.ExecuteTemplate(w, "campaign.html", p); err != nil {
		return fmt.Errorf("write the report on campaign %s: %w", c.Name, err)
	}
	return nil
}

func rowOf(r history.Run) campaignRow {
	row := campaignRow{
		Outcome: string(r.Outcome), Name: r.Name, Why: strings.Join(r.Reasons, "; "), Repeat: r.Repeat,
		Lasted: stamp(r.Lasted), Wall: stamp(r.Wall.Round(10 * time.Millisecond)), Report: r.Report, History: r.History,
		Seed: r.Seed, Refused: r.Refused,
	}
	for _, f := range r.Faults {
		row.Times, row.Missed = row.Times+f.Times, row.Missed+f.Missed
	}
	for _, v := range r.Violations {
		row.Violations += v.Count
	}
	return row
}
