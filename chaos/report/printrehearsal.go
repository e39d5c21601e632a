package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"skerry/chaos/history"
	"skerry/fleet"
)

// Bounds of the tables and the timeline of a rehearsal.
const (
	maxPlaces     = 500 // rows on a page
	maxPlacesText = 60  // rows on a terminal, and instances in the timeline
	maxFaultLines = 40  // faults in the timeline
)

// Print writes the rehearsal as text of at most 100 characters a line to w.
func (r *Rehearsal) Print(w io.Writer) error {
	lines := r.Summary()
	for i, l := range r.Lows() {
		lines = slices.Insert(lines, i, l.String())
	}
	title := fmt.Sprintf("Rehearsal of %s: %s, %s", r.Name, stamp(r.Lasted), history.Plural(len(r.Edges), "edge"))
	return r.buildPage().printText(w, title, append(lines, r.Notes...)...)
}

// WriteHTML writes the rehearsal's HTML page to w.
func (r *Rehearsal) WriteHTML(w io.Writer) error { return r.buildPage().writeHTML(w) }

// buildPage returns the content of the rehearsal's page.
func (r *Rehearsal) buildPage() page {
	p := page{
		Name: r.Name, Outcome: r.Outcome, Reasons: r.Summary(), Repeat: r.Repeat,
		About: fmt.Sprintf("A rehearsal of %s on %s, in virtual time.", stamp(r.Lasted), history.Plural(len(r.Edges), "edge")),
	}
	for _, l := range r.Lows() {
		p.Reasons = append(p.Reasons, l.String())
	}
	p.addSection(section{Title: "Faults", Lines: r.faultLines()})
	p.addSection(section{Title: "Instances", Table: r.placeTable()})
	p.addSection(section{Title: "Without a place", Lines: r.Unplaced})
	p.addSection(section{Title: "Timeline", Timeline: r.drawTimeline()})
	p.addSection(section{Title: "Allocations", Table: r.allocTable()})
	p.addSection(section{Title: "Notes", Lines: r.Notes, pageOnly: true})
	return p
}

// fates has each Fate with its class, in the order in which summaries list them.
var fates = []cell{
	{Text: string(KeptRunning), Class: "pass"}, {Text: string(Interrupted), Class: "void"}, {Text: string(CameBack), Class: "void"},
	{Text: string(WasReplaced), Class: "void"}, {Text: string(Completed), Class: "pass"}, {Text: string(Stopped)},
	{Text: string(StillOut), Class: "void"}, {Text: string(DownAtEnd), Class: "violation"}, {Text: string(Failed), Class: "violation"},
	{Text: string(Lost), Class: "violation"}, {Text: string(NeverStarted), Class: "violation"},
}

// placeTable returns a table with the fate of each instance: replacements, time without a running task, and
// time in which it ran twice.
func (r *Rehearsal) placeTable() *table {
	t := &table{
		Heads: []string{"instance", "edge", "what becomes of it", "where, when", "down", "twice"},
		right: []int{4, 5}, most: maxPlaces, mostText: maxPlacesText,
	}
	for _, p := range r.Places {
		fate := fates[slices.IndexFunc(fates, func(c cell) bool { return c.Text == string(p.Fate(r.Lasted)) })]
		edge := "nowhere"
		if len(p.Allocs) > 0 {
			edge = p.Allocs[0].Edge
		}
		t.addRow(p.Name, edge, fate, p.Story(), stampOrDash(p.Down(r.Lasted)), stampOrDash(p.Twice()))
	}
	return t
}

// drawTimeline returns a timeline with a row for each fault and each allocation, up to their bounds.
func (r *Rehearsal) drawTimeline() *timeline {
	var rows []timelineRow
	for _, f := range r.Faults[:min(len(r.Faults), maxFaultLines)] {
		on := strings.Join(f.On, ",")
		if len(f.On) > 1 {
			on = fmt.Sprintf("%d of them", len(f.On))
		}
		rows = append(rows, timelineRow{Name: f.What, On: on, spans: []span{{from: f.From, to: f.To, state: barFault}}})
	}
	for _, p := range r.Places[:min(len(r.Places), maxPlacesText)] {
		for i, a := range p.Allocs {
			name := p.Name
			if i > 0 {
				name = "  and then"
			}
			there := Window{a.Placed, r.Lasted}
			if a.End != "" {
				there.To = a.Ended
			}
			spans := slices.Concat(spansOf(barPlaced, there), spansOf(barRuns, a.Ran...), spansOf(barUnseen, intersectWindows(a.Ran, a.Unseen)...))
			rows = append(rows, timelineRow{Name: name, On: a.Edge, spans: spans})
		}
	}
	return newTimeline(r.Lasted, rows)
}

// spansOf returns a span with a state for each window.
func spansOf(state string, windows ...Window) []span {
	var spans []span
	for _, w := range windows {
		spans = append(spans, span{from: w.From, to: w.To, state: state})
	}
	return spans
}

// intersectWindows returns the times that lie in a window of as and in one of bs.
func intersectWindows(as, bs []Window) []Window {
	var out []Window
	for _, a := range as {
		for _, b := range bs {
			if from, to := max(a.From, b.From), min(a.To, b.To); from < to {
				out = append(out, Window{from, to})
			}
		}
	}
	return out
}

// faultLines describes each fault, its targets and its time on one line.
func (r *Rehearsal) faultLines() []string {
	var lines []string
	for _, f := range r.Faults {
		when := "at " + stamp(f.From)
		if f.To-f.From >= time.Millisecond {
			when = stamp(f.From) + " to " + stamp(f.To)
		}
		lines = append(lines, fmt.Sprintf("%s on %s, %s", f.What, formatTargets(f.On), when))
	}
	return lines
}

// Summary returns the result in a few sentences: the fates of the instances, the longest down time, the time of
// doubled instances, and the outcome.
func (r *Rehearsal) Summary() []string {
	byFate := map[string]int{}
	var longest, twice time.Duration
	var longestName string
	for _, p := range r.Places {
		byFate[string(p.Fate(r.Lasted))]++
		if d := p.Down(r.Lasted); d > longest {
			longest, longestName = d, p.Name
		}
		twice += p.Twice()
	}
	var parts []string
	for _, f := range fates {
		if n := byFate[f.Text]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, f.Text))
		}
	}
	lines := []string{fmt.Sprintf("Of %s: %s.", history.Plural(len(r.Places), "instance"), strings.Join(parts, ", "))}
	switch {
	case longest >= time.Millisecond:
		lines = append(lines, fmt.Sprintf("The longest that an instance was down: %s (%s).", stamp(longest), longestName))
	case byFate[string(NeverStarted)] > 0: // DOWN counts from the first start
		lines = append(lines, "No instance that started was ever down.")
	default:
		lines = append(lines, "No instance was ever down.")
	}
	if twice >= time.Millisecond {
		lines = append(lines, fmt.Sprintf("Instances ran twice for %s in all: an original that nobody saw, and its replacement.", stamp(twice)))
	}
	switch r.Outcome {
	case history.Pass:
		lines = append(lines, "Every promise held.")
	case history.Violated:
		lines = append(lines, "A promise was broken"+r.reasonsSuffix()+".")
	default:
		lines = append(lines, "This rehearsal proves nothing"+r.reasonsSuffix()+".")
	}
	return lines
}

// reasonsSuffix returns the outcome's reasons, or the broken invariants where it has none, after a colon; "":
// there are neither.
func (r *Rehearsal) reasonsSuffix() string {
	reasons := slices.Clone(r.Reasons)
	for _, v := range r.Broken {
		if s := v.Invariant.Slug(); len(r.Reasons) == 0 && !slices.Contains(reasons, s) {
			reasons = append(reasons, s)
		}
	}
	if len(reasons) == 0 {
		return ""
	}
	return ": " + strings.Join(reasons, "; ")
}

// formatWindows shows formatWindows as "FROM to TO", or as "from FROM" where they last until the end; "never" for none.
func formatWindows(ws []Window, lasted time.Duration) string {
	var parts []string
	for _, w := range ws {
		if w.To >= lasted {
			parts = append(parts, "from "+stamp(w.From))
		} else {
			parts = append(parts, stamp(w.From)+" to "+stamp(w.To))
		}
	}
	if len(parts) == 0 {
		return "never"
	}
	return strings.Join(parts, ", ")
}

// formatHubView shows the times in which the hubs called an allocation unknown or lost, and its end; "running"
// where there are none.
func (a RehearsedAlloc) formatHubView(lasted time.Duration) string {
	var parts []string
	for _, s := range a.Showed {
		parts = append(parts, s.Status+" "+formatWindows([]Window{s.Window}, lasted))
	}
	if a.End != "" {
		parts = append(parts, a.End+" at "+stamp(a.Ended))
	}
	if len(parts) == 0 {
		return "running"
	}
	return strings.Join(parts, "; ")
}

// allocTable returns a table with a row for each allocation: when its tasks ran, and what the hubs showed.
func (r *Rehearsal) allocTable() *table {
	t := &table{
		Heads: []string{"allocation", "instance", "edge", "its tasks ran", "the hubs showed"},
		most:  maxPlaces, mostText: maxPlacesText,
	}
	for _, p := range r.Places {
		for _, a := range p.Allocs {
			t.addRow(fleet.Short(a.ID), p.Name, a.Edge, truncateText(formatWindows(a.Ran, r.Lasted), 30), a.formatHubView(r.Lasted))
		}
	}
	return t
}
