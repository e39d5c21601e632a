package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
)

//go:embed page
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(mustFile("style.css")) },
	"script": func() template.JS { return template.JS(mustFile("script.js")) },
	"signs":  legend,
}).ParseFS(files, "page/*.html"))

func mustFile(name string) string {
	text, err := files.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(text)
}

// legend explains the signs.
func legend() []sign {
	var signs []sign
	for _, s := range [][2]string{
		{check.ProcessStart, "starts"}, {check.ProcessStop, "stops"}, {check.ProcessKill, "killed"}, {check.ProcessReboot, "reboots"},
		{check.ProcessPowerCut, "loses power"}, {signRefused, "refused"}, {signRequest, "asked on site"}, {signComplete, "complete"},
		{signStopped, "stopped"}, {signFailed, "failed"}, {signLost, "lost, says the hub"},
	} {
		signs = append(signs, sign{Sort: s[0], Title: s[1]})
	}
	return signs
}

// PageLinks names what stands beside a page, as links from it; "" is nothing.
type PageLinks struct {
	History string // the run's history
	Index   string // the campaign's page
}

// maxEvidence bounds what is shown of the violations of one invariant.
const maxEvidence = 12

// runPage is what the template of a run is filled with.
type runPage struct {
	Name, Verdict, Headline, Topology, Clock string
	Repeat, Schedule, Shortest               string
	Reasons, Kept                            []string
	Facts, Totals                            []fact
	Held                                     string
	Verdicts, Broken                         []verdictRow
	Timeline                                 *timeline
	FaultKinds                               []history.FaultCount
	Faults                                   []faultRow
	FaultsText, RefusedText, Came, NotesText string
	Refused                                  []refusedRow
	Sometimes                                []sometimesRow
	Usage                                    []usageRow
	Notes                                    []noteRow
	PageLinks
}

type fact struct{ Name, Value string }

type verdictRow struct {
	Class, Mark, Text, Slug, Statement string
	Judged, Broken, Undecided, More    uint64
	Violations                         []violationRow
}

type violationRow struct {
	ID, At, Share, Where, Message string
	Evidence                      []string
}

type faultRow struct{ Share, From, To, What, On, Hits string }

type refusedRow struct {
	Code, By, From, Reason, Share, First, Last string
	Count                                      uint64
}

type sometimesRow struct {
	history.Sometimes
	Short bool
}

type usageRow struct{ Who, Goroutines, Heap, Files, Disk string }

type noteRow struct{ At, Share, Where, Text string }

// WriteRun writes the page of one run, from its history. A history that was cut
// short is shown as far as it goes.
func WriteRun(w io.Writer, r *history.Reader, beside PageLinks) error {
	return WriteRunWithin(w, r, beside, math.MaxInt)
}

// WriteRunWithin writes the page of one run in at most so many bytes. What does not
// fit is drawn together or left out, and the page says so; it is an error where not
// even the verdicts fit.
func WriteRunWithin(w io.Writer, r *history.Reader, beside PageLinks, most int) error {
	c, err := collect(r)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	for within := defaultBounds; ; within = within.tighterBounds() {
		page.Reset()
		if err := pages.ExecuteTemplate(&page, "run.html", c.buildRunPage(beside, within)); err != nil {
			return fmt.Errorf("write the report on %s: %w", c.header.Name, err)
		}
		if page.Len() <= most {
			break
		}
		if within.isTightest() {
			return fmt.Errorf("write the report on %s: it takes %d bytes at least, %d are allowed", c.header.Name, page.Len(), most)
		}
	}
	if _, err := page.WriteTo(w); err != nil {
		return fmt.Errorf("write the report on %s: %w", c.header.Name, err)
	}
	return nil
}

func (c *run) buildRunPage(beside PageLinks, within bounds) *runPage {
	p := &runPage{
		Name: c.header.Name, Verdict: string(c.sum.Outcome), Headline: headline(c.sum.Outcome), Clock: string(c.header.Clock),
		Topology: plural(len(c.header.Hubs), "hub") + ", " + plural(len(c.header.Edges), "edge"),
		Repeat:   c.header.Repeat, Schedule: c.header.Schedule, Reasons: c.sum.Reasons,
		FaultKinds: c.sum.Faults, PageLinks: beside,
	}
	if c.end != nil {
		p.Shortest, p.Kept = c.end.Shortest, c.end.Kept
	}
	if c.readErr != nil && c.end == nil {
		p.Reasons = []string{c.readErr.Error()}
	}
	p.Facts = c.headerFacts()
	p.Held, p.Verdicts = c.verdictRows()
	for _, v := range p.Verdicts {
		if v.Broken > 0 {
			p.Broken = append(p.Broken, v)
		}
	}
	p.Timeline = c.drawTimeline(within)
	p.FaultsText, p.Faults = c.faultRows(within.faults)
	p.RefusedText, p.Refused = c.refusedRows(within.refused)
	p.Came, p.Sometimes = c.sometimesRows()
	p.Totals = c.totalFacts()
	p.Usage = c.usageRows()
	p.NotesText, p.Notes = c.noteRows(within.notes)
	return p
}

func headline(o history.Outcome) string {
	switch o {
	case history.Pass:
		return "Pass"
	case history.Violated:
		return "Violation"
	case history.Void:
		return "Void: it proves nothing"
	}
	return "Broken: it did not end"
}

// shareOfRun is a time's place as a part of one.
func (c *run) shareOfRun(at time.Duration) string {
	return fmt.Sprintf("%.5f", float64(at)/float64(max(c.lasted, 1)))
}

func (c *run) headerFacts() []fact {
	facts := []fact{
		{"seed", fmt.Sprint(c.header.Seed)},
		{"lasted", stamp(c.lasted)},
		{"took", stamp(c.sum.Wall)},
		{"started", c.header.Start.UTC().Format("2006-01-02 15:04:05 MST")},
	}
	if hours := c.lasted.Hours(); hours > 0 {
		var times uint64
		for _, f := range c.sum.Faults {
			times += f.Times
		}
		facts = append(facts, fact{"faults", fmt.Sprintf("%d, %.1f an hour", times, float64(times)/hours)})
	}
	for _, name := range slices.Sorted(maps.Keys(c.header.Versions)) {
		facts = append(facts, fact{name, c.header.Versions[name]})
	}
	return facts
}

// verdictRows sums the verdicts up. Violations of an invariant without a verdict, as in
// a history that was cut short, have a row all the same.
func (c *run) verdictRows() (string, []verdictRow) {
	byInvariant := map[check.Invariant][]violationRow{}
	for i, v := range c.violations {
		row := violationRow{ID: fmt.Sprintf("v%d", i+1), At: stamp(v.At), Share: c.shareOfRun(v.At), Where: v.Where, Message: v.Message, Evidence: v.Evidence}
		byInvariant[v.Invariant] = append(byInvariant[v.Invariant], row)
	}
	verdicts := slices.Clone(c.verdicts)
	for _, i := range slices.Sorted(maps.Keys(byInvariant)) {
		if !slices.ContainsFunc(verdicts, func(v check.Verdict) bool { return v.Invariant == i }) {
			verdicts = append(verdicts, check.Verdict{Invariant: i})
		}
	}
	count := map[string]int{}
	var rows []verdictRow
	for _, v := range verdicts {
		row := verdictRow{
			Slug: v.Invariant.Slug(), Statement: v.Invariant.Statement(),
			Judged: v.Judged, Undecided: v.Undecided, Violations: byInvariant[v.Invariant],
		}
		v.Broken = max(v.Broken, uint64(len(row.Violations)))
		row.Broken = v.Broken
		row.Violations = row.Violations[:min(maxEvidence, len(row.Violations))]
		row.More = row.Broken - uint64(len(row.Violations))
		row.Class, row.Mark, row.Text = verdictWord(v)
		count[row.Text]++
		rows = append(rows, row)
	}
	rank := map[string]int{"violation": 0, "void": 1, "pass": 2, "broken": 3}
	slices.SortStableFunc(rows, func(a, b verdictRow) int { return rank[a.Class] - rank[b.Class] })
	return verdictCounts(count), rows
}

// Words for verdicts.
const (
	wordBroken    = "broken"
	wordUndecided = "undecided"
	wordHeld      = "held"
	wordUnjudged  = "not judged"
)

// verdictWord is a verdict in a word, with the class that it is coloured by, and a mark.
func verdictWord(v check.Verdict) (class, mark, word string) {
	switch {
	case v.Broken > 0:
		return "violation", "✕", wordBroken
	case v.Undecided > 0:
		return "void", "?", wordUndecided
	case v.Judged == 0:
		return "broken", "–", wordUnjudged
	}
	return "pass", "✓", wordHeld
}

// verdictCounts says how many verdicts are which.
func verdictCounts(count map[string]int) string {
	parts := []string{fmt.Sprintf("%d held", count[wordHeld]), fmt.Sprintf("%d broken", count[wordBroken])}
	for _, word := range []string{wordUndecided, wordUnjudged} {
		if count[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[word], word))
		}
	}
	return strings.Join(parts, ", ")
}

func (c *run) faultRows(most int) (string, []faultRow) {
	var rows []faultRow
	for _, f := range c.faults[:min(len(c.faults), most)] {
		row := faultRow{Share: c.shareOfRun(f.from), From: stamp(f.from), To: "–", What: f.Kind, On: strings.Join(f.Targets, ", "), Hits: "–"}
		if f.Detail != "" {
			row.What += " " + f.Detail
		}
		if row.On == "" {
			row.On = "everyone"
		}
		if f.ended {
			row.To, row.Hits = stamp(f.to), fmt.Sprint(f.Hits)
		}
		rows = append(rows, row)
	}
	text := plural(len(c.faults), "fault") + " of " + plural(len(c.sum.Faults), "kind")
	if n := len(c.faults) - len(rows); n > 0 {
		text += fmt.Sprintf("; the last %d are not listed", n)
	}
	return text, rows
}

func (c *run) refusedRows(most int) (string, []refusedRow) {
	var rows []refusedRow
	all := c.refusals.sortedByCode()
	for _, r := range all[:min(len(all), most)] {
		rows = append(rows, refusedRow{
			Code: string(r.code), By: r.by, From: r.from, Reason: r.reason, Count: r.count,
			First: stamp(r.first), Last: stamp(r.last), Share: c.shareOfRun(r.first),
		})
	}
	text := fmt.Sprintf("%d in all", c.sum.Refused)
	if n := len(all) - len(rows); n > 0 {
		text += fmt.Sprintf("; %d more different ones are not listed", n)
	}
	return text, rows
}

func (c *run) sometimesRows() (string, []sometimesRow) {
	var rows []sometimesRow
	reached := 0
	for _, s := range c.sometimes {
		if s.Count > 0 {
			reached++
		}
		rows = append(rows, sometimesRow{s, s.Count < s.Least})
	}
	slices.SortStableFunc(rows, func(a, b sometimesRow) int {
		switch {
		case a.Count > b.Count:
			return -1
		case a.Count < b.Count:
			return 1
		}
		return 0
	})
	return fmt.Sprintf("%d of %d branches reached", reached, len(rows)), rows
}

func (c *run) noteRows(most int) (string, []noteRow) {
	var rows []noteRow
	for _, n := range c.notes[:min(len(c.notes), most)] {
		rows = append(rows, noteRow{stamp(n.at), c.shareOfRun(n.at), n.Where, n.Text})
	}
	if n := len(c.notes) - len(rows); n > 0 {
		return fmt.Sprintf("the last %d are not listed", n), rows
	}
	return "", rows
}

func (c *run) totalFacts() []fact {
	facts := []fact{
		{"records", fmt.Sprint(c.sum.Records)},
		{"allocations", fmt.Sprint(len(c.cluster.allocs))},
		{"operations by clients", fmt.Sprint(c.sum.Operations)},
	}
	for _, what := range slices.Sorted(maps.Keys(c.clients)) {
		facts = append(facts, fact{"– " + what, fmt.Sprint(c.clients[what])})
	}
	facts = append(facts, fact{"asked for on site or of a hub", fmt.Sprint(c.requests)}, fact{"refused", fmt.Sprint(c.sum.Refused)})
	worst, rows := "", uint64(0)
	for _, name := range c.names {
		if m := c.members[name]; uint64(m.most) > rows {
			worst, rows = name, uint64(m.most)
		}
	}
	if worst != "" {
		facts = append(facts, fact{"most rows not sent, of one edge", fmt.Sprintf("%d (%s)", rows, worst)})
	}
	return facts
}

func (c *run) usageRows() []usageRow {
	var rows []usageRow
	both := func(last, most int64, show func(int64) string) string {
		if most == 0 {
			return "–"
		}
		return show(last) + " / " + show(most)
	}
	number := func(n int64) string { return fmt.Sprint(n) }
	for _, who := range slices.Sorted(maps.Keys(c.usage)) {
		u := c.usage[who]
		rows = append(rows, usageRow{
			who, both(int64(u.last.Goroutines), int64(u.most.Goroutines), number), both(u.last.HeapBytes, u.most.HeapBytes, formatBytes),
			both(int64(u.last.Files), int64(u.most.Files), number), both(u.last.DiskBytes, u.most.DiskBytes, formatBytes),
		})
	}
	return rows
}

// formatBytes prints bytes.
func formatBytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
