package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
)

// Bounds of a run's page.
const (
	maxEvidence  = 12  // violations of one invariant
	maxFaultRows = 300 // faults, and notes
	maxOtherRows = 150 // refusals
)

// WriteRun writes the HTML page of one run to w, from its history. A history that was cut short is shown as far
// as it can be read. beside has the page's links.
func WriteRun(w io.Writer, r *history.Reader, beside PageLinks) error {
	c, err := collectRun(r)
	if err != nil {
		return err
	}
	return c.buildRunPage(beside).writeHTML(w)
}

// DrawRun writes the HTML page of the run with the history file from into the file to, with a link to the
// history where both are in one folder. index is a link to the campaign's page; "": none.
func DrawRun(from, to, index string) (err error) {
	r, err := history.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	beside := PageLinks{Index: index}
	if filepath.Dir(from) == filepath.Dir(to) {
		beside.History = filepath.Base(from)
	}
	return WriteRun(f, r, beside)
}

// buildRunPage returns the content of a run's page.
func (c *run) buildRunPage(beside PageLinks) page {
	verdicts := c.allVerdicts()
	p := page{
		Name: c.header.Name, Outcome: c.sum.Outcome, Reasons: c.sum.Reasons, Repeat: c.header.Repeat, Facts: c.headerFacts(),
		About: fmt.Sprintf("%s, %s, %s time. Invariants: %s", history.Plural(len(c.header.Hubs), "hub"), history.Plural(len(c.header.Edges), "edge"),
			c.header.Clock, verdictCounts(verdicts)),
	}
	if c.readErr != nil && c.end.Outcome == "" {
		p.Reasons = []string{c.readErr.Error()}
	}
	p.addSection(section{Title: "Violations", Text: c.violationText()})
	p.addSection(section{Title: "The shortest schedule that still fails", Text: c.end.Shortest})
	p.addSection(section{Title: "Timeline", Timeline: c.drawTimeline()})
	p.addSection(section{Title: "Verdicts", Table: verdictTable(verdicts)})
	p.addSection(section{Title: "Faults", Note: history.Plural(len(c.faults), "fault"), Table: c.faultKindTable()})
	p.addSection(section{Title: "Each fault", Table: c.faultTable(), Folded: true})
	p.addSection(section{Title: "Refused sessions and messages", Note: fmt.Sprintf("%d in all", c.sum.Refused), Table: c.refusalTable()})
	p.addSection(section{Title: "Branches", Table: c.branchTable()})
	p.addSection(section{Title: "Totals", Table: c.totalTable()})
	p.addSection(section{Title: "Notes", Table: c.noteTable()})
	p.addSection(section{Title: "The schedule", Text: c.header.Schedule, Folded: true})
	if beside.History != "" {
		p.Links = append(p.Links, cell{Text: "Every operation", Link: beside.History})
	}
	if beside.Index != "" {
		p.Links = append(p.Links, cell{Text: "All runs", Link: beside.Index})
	}
	p.addSection(section{Title: "Kept files", Lines: c.end.Kept})
	return p
}

// headerFacts returns seed, times, number of faults and versions as a table of names and values.
func (c *run) headerFacts() *table {
	t := &table{}
	t.addRow("seed", c.header.Seed)
	t.addRow("lasted", stamp(c.lasted))
	t.addRow("took", stamp(c.sum.Wall))
	t.addRow("started", c.header.Start.UTC().Format(startFormat))
	if hours := c.lasted.Hours(); hours > 0 {
		t.addRow("faults", fmt.Sprintf("%d, %.1f an hour", len(c.faults), float64(len(c.faults))/hours))
	}
	for _, name := range slices.Sorted(maps.Keys(c.header.Versions)) {
		t.addRow(name, c.header.Versions[name])
	}
	return t
}

// startFormat is the form in which reports show the time of a start.
const startFormat = "2006-01-02 15:04:05 MST"

// allVerdicts returns the verdicts, broken ones first. Violations without a verdict, as in a history that was
// cut short, get one.
func (c *run) allVerdicts() []check.Verdict {
	count := map[check.Invariant]uint64{}
	for _, v := range c.violations {
		count[v.Invariant]++
	}
	verdicts := slices.Clone(c.verdicts)
	for i := range verdicts {
		v := &verdicts[i]
		v.Broken = max(v.Broken, count[v.Invariant])
		delete(count, v.Invariant)
	}
	for _, i := range slices.Sorted(maps.Keys(count)) {
		verdicts = append(verdicts, check.Verdict{Invariant: i, Broken: count[i]})
	}
	slices.SortStableFunc(verdicts, func(a, b check.Verdict) int { return cmp.Compare(verdictRank(a), verdictRank(b)) })
	return verdicts
}

// verdictWords has the words for verdicts with their classes, worst first, by verdictRank.
var verdictWords = []cell{{Text: "broken", Class: "violation"}, {Text: "undecided", Class: "void"}, {Text: "held", Class: "pass"}, {Text: "not judged"}}

// verdictRank returns the index of a verdict in verdictWords.
func verdictRank(v check.Verdict) int {
	switch {
	case v.Broken > 0:
		return 0
	case v.Undecided > 0:
		return 1
	case v.Judged == 0:
		return 3
	}
	return 2
}

// verdictCounts returns how many verdicts have each word, on one line.
func verdictCounts(verdicts []check.Verdict) string {
	var count [4]int
	for _, v := range verdicts {
		count[verdictRank(v)]++
	}
	text := fmt.Sprintf("%d held, %d broken", count[2], count[0])
	for _, rank := range []int{1, 3} {
		if count[rank] > 0 {
			text += fmt.Sprintf(", %d %s", count[rank], verdictWords[rank].Text)
		}
	}
	return text
}

// verdictTable returns a table with a row for each verdict.
func verdictTable(verdicts []check.Verdict) *table {
	t := &table{Heads: []string{"verdict", "invariant", "promise", "judged", "broken", "undecided"}, right: []int{3, 4, 5}}
	for _, v := range verdicts {
		t.addRow(verdictWords[verdictRank(v)], v.Invariant.Slug(), v.Invariant.Statement(), v.Judged, v.Broken, v.Undecided)
	}
	return t
}

// violationText lists the violations by invariant with their evidence, at most maxEvidence of each invariant.
func (c *run) violationText() string {
	var b strings.Builder
	byInvariant := map[check.Invariant][]check.Violation{}
	for _, v := range c.violations {
		byInvariant[v.Invariant] = append(byInvariant[v.Invariant], v)
	}
	for _, i := range slices.Sorted(maps.Keys(byInvariant)) {
		all := byInvariant[i]
		fmt.Fprintf(&b, "%s: %s\n", i.Slug(), i.Statement())
		for _, v := range all[:min(len(all), maxEvidence)] {
			fmt.Fprintf(&b, "  at %s %s: %s\n", stamp(v.At), v.Where, v.Message)
			for _, line := range v.Evidence {
				fmt.Fprintf(&b, "      %s\n", line)
			}
		}
		if left := len(all) - maxEvidence; left > 0 {
			fmt.Fprintf(&b, "  and %d more\n", left)
		}
	}
	return b.String()
}

// drawTimeline returns a timeline with a row for the violations, for each kind of fault, for each hub and for
// each edge. Edges with a violation come first.
func (c *run) drawTimeline() *timeline {
	var rows []timelineRow
	if len(c.violations) > 0 {
		row := timelineRow{Name: barViolation}
		for _, v := range c.violations {
			row.spans = append(row.spans, span{from: v.At, to: v.At, state: barViolation, of: v.Invariant.Slug() + ": " + v.Message})
		}
		rows = append(rows, row)
	}
	for _, kind := range c.sum.Faults {
		row := timelineRow{Name: kind.Fault}
		for _, f := range c.faults {
			if f.Kind == kind.Fault {
				row.spans = append(row.spans, f.timelineSpan())
			}
		}
		rows = append(rows, row)
	}
	troubled := map[string]bool{}
	for _, v := range c.violations {
		troubled[v.Where] = true
	}
	isLater := func(name string) int { // hubs come first, then edges with a violation
		switch {
		case !c.members[name].edge:
			return 0
		case troubled[name]:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(c.names, func(a, b string) int { return isLater(a) - isLater(b) })
	for _, name := range c.names {
		row := timelineRow{Name: name, spans: c.members[name].process.spans}
		if c.members[name].edge {
			row.spans = c.cluster.statuses[name]
		}
		rows = append(rows, row)
	}
	return newTimeline(c.lasted, rows)
}

// formatKind returns the fault's kind and detail.
func (f *fault) formatKind() string { return strings.TrimSpace(f.Kind + " " + f.Detail) }

// formatTargets lists the targets of a fault, shortened where there are more than three; "everyone" for none.
func formatTargets(targets []string) string {
	if more := len(targets) - 3; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(targets[:2], ", "), more+1)
	}
	return cmp.Or(strings.Join(targets, ", "), "everyone")
}

// timelineSpan returns the fault's span in the timeline, with another state for a fault that ended without a
// hit.
func (f *fault) timelineSpan() span {
	s := span{from: f.from, to: f.to, state: barFault, of: f.formatKind() + " on " + formatTargets(f.Targets)}
	if f.ended && f.Hits == 0 {
		s.state = barMissed
	}
	return s
}

// faultKindTable returns a table with the numbers of each kind of fault.
func (c *run) faultKindTable() *table {
	t := &table{Heads: []string{"fault", "times", "hits", "never hit"}, right: []int{1, 2, 3}}
	for _, f := range c.sum.Faults {
		t.addRow(f.Fault, f.Times, f.Hits, cell{Text: fmt.Sprint(f.Missed), Class: classIf(f.Missed > 0, "void")})
	}
	return t
}

// classIf returns class where yes is true, else "".
func classIf(yes bool, class string) string {
	if yes {
		return class
	}
	return ""
}

// faultTable returns a table with a row for each fault.
func (c *run) faultTable() *table {
	t := &table{Heads: []string{"from", "to", "fault", "on", "hits"}, right: []int{0, 1, 4}, most: maxFaultRows}
	for _, f := range c.faults {
		to, hits := "–", "–"
		if f.ended {
			to, hits = stamp(f.to), fmt.Sprint(f.Hits)
		}
		t.addRow(stamp(f.from), to, f.formatKind(), formatTargets(f.Targets), hits)
	}
	return t
}

// refusalTable returns a table with a row for each different refusal, sorted by code and number.
func (c *run) refusalTable() *table {
	t := &table{Heads: []string{"code", "by", "whom", "reason", "times", "first", "last"}, right: []int{4, 5, 6}, most: maxOtherRows}
	for _, r := range slices.SortedFunc(maps.Keys(c.refusals), func(a, b refusal) int {
		return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(c.refusals[b].count, c.refusals[a].count), cmp.Compare(a.by, b.by),
			cmp.Compare(a.from, b.from), cmp.Compare(a.reason, b.reason))
	}) {
		n := c.refusals[r]
		t.addRow(r.code, r.by, r.from, r.reason, n.count, stamp(n.first), stamp(n.last))
	}
	return t
}

// branchTable returns a table with the count of each branch, the largest first. It sorts c.sometimes.
func (c *run) branchTable() *table {
	t := &table{Heads: []string{"branch", "times", "at least"}, right: []int{1, 2}}
	slices.SortStableFunc(c.sometimes, func(a, b history.Sometimes) int { return cmp.Compare(b.Count, a.Count) })
	for _, s := range c.sometimes {
		t.addRow(s.Name, cell{Text: fmt.Sprint(s.Count), Class: classIf(s.Count < s.Least, "void")}, s.Least)
	}
	return t
}

// totalTable returns a table with the numbers of records, allocations, operations and requests.
func (c *run) totalTable() *table {
	t := &table{right: []int{1}}
	t.addRow("records", c.sum.Records)
	t.addRow("allocations", len(c.cluster.allocs))
	t.addRow("operations by clients", c.sum.Operations)
	for _, what := range slices.Sorted(maps.Keys(c.clients)) {
		t.addRow("– "+what, c.clients[what])
	}
	t.addRow("requests on site or to a hub", c.requests)
	return t
}

// noteTable returns a table with a row for each note.
func (c *run) noteTable() *table {
	t := &table{Heads: []string{"at", "where", "note"}, right: []int{0}, most: maxFaultRows}
	for _, n := range c.notes {
		t.addRow(stamp(n.at), n.Where, n.Text)
	}
	return t
}

// PrintJudgement writes to w the result of judging a recorded run again, as text of at most 100 characters a
// line but for evidence.
func PrintJudgement(w io.Writer, j history.Judgement) error {
	var b strings.Builder
	writeParagraph(&b, fmt.Sprintf("%s, seed %d, %s in %s time: %s then", j.Header.Name, j.Header.Seed, stamp(j.Recorded.Lasted), j.Header.Clock, j.Recorded.Outcome))
	if j.CutShort {
		writeParagraph(&b, "The history was cut short: what only the end of a run shows is not judged.")
	}
	b.WriteString("\n")
	verdictTable(j.Verdicts).writeTable(&b)
	for _, v := range j.Found[:min(len(j.Found), maxPrintedViolations)] {
		b.WriteString("\n")
		writeParagraph(&b, v.String())
		for _, line := range v.Evidence {
			fmt.Fprintf(&b, "    %s\n", printable(line))
		}
	}
	if n := len(j.Found) - maxPrintedViolations; n > 0 {
		fmt.Fprintf(&b, "\nand %d more\n", n)
	}
	fmt.Fprintf(&b, "\n%s\n", verdictCounts(j.Verdicts))
	for _, d := range j.Differs() {
		writeParagraph(&b, "judged otherwise than then: "+d)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxPrintedViolations bounds the violations that a terminal shows.
const maxPrintedViolations = 20

// stampOrDash shows a duration as stamp does, and a dash for less than a millisecond.
func stampOrDash(d time.Duration) string {
	if d < time.Millisecond {
		return "–"
	}
	return stamp(d)
}
