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

// Bounds of a rehearsal's tables.
const (
	maxPlaces     = 500
	maxPlacesText = 60
	maxFaultLines = 40 // of its timeline
)

// Print prints the rehearsal, at most 100 characters wide.
func (r *Rehearsal) Print(w io.Writer) error {
	lines := r.Summary()
	for i, l := range r.Lows() {
		lines = slices.Insert(lines, i, l.String())
	}
	title := fmt.Sprintf("Rehearsal of %s: %s, %s", r.Name, stamp(r.Lasted), history.Plural(len(r.Edges), "edge"))
	return r.buildPage().printText(w, title, append(lines, r.Notes...)...)
}

// WriteHTML writes the rehearsal's page.
func (r *Rehearsal) WriteHTML(w io.Writer) error { return r.buildPage().writeHTML(w) }

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

// fates are what can become of an instance, in the order in which they are told.
var fates = []cell{
	{Text: string(KeptRunning), Class: "pass"}, {Text: string(Interrupted), Class: "void"}, {Text: string(CameBack), Class: "void"},
	{Text: string(WasReplaced), Class: "void"}, {Text: string(Completed), Class: "pass"}, {Text: string(Stopped)},
	{Text: string(StillOut), Class: "void"}, {Text: string(DownAtEnd), Class: "violation"}, {Text: string(Failed), Class: "violation"},
	{Text: string(Lost), Class: "violation"}, {Text: string(NeverStarted), Class: "violation"},
}

// placeTable says what becomes of each instance.
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

// drawTimeline has a row for each fault and each allocation.
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

func spansOf(state string, windows ...Window) []span {
	var spans []span
	for _, w := range windows {
		spans = append(spans, span{from: w.From, to: w.To, state: state})
	}
	return spans
}

// intersectWindows is when a window of each is there.
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

// Summary says in few sentences what would happen.
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
	if longest >= time.Millisecond {
		lines = append(lines, fmt.Sprintf("The longest that an instance was down: %s (%s).", stamp(longest), longestName))
	} else {
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

// reasonsSuffix are the outcome's reasons, behind a colon.
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

// windows prints when something was.
func windows(ws []Window, lasted time.Duration) string {
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

// formatHubView prints what the hubs showed of an allocation.
func (a RehearsedAlloc) formatHubView(lasted time.Duration) string {
	var parts []string
	for _, s := range a.Showed {
		parts = append(parts, s.Status+" "+windows([]Window{s.Window}, lasted))
	}
	if a.End != "" {
		parts = append(parts, a.End+" at "+stamp(a.Ended))
	}
	if len(parts) == 0 {
		return "running"
	}
	return strings.Join(parts, "; ")
}

// allocTable has a row for each allocation.
func (r *Rehearsal) allocTable() *table {
	t := &table{
		Heads: []string{"allocation", "instance", "edge", "its tasks ran", "the hubs showed"},
		most:  maxPlaces, mostText: maxPlacesText,
	}
	for _, p := range r.Places {
		for _, a := range p.Allocs {
			t.addRow(fleet.Short(a.ID), p.Name, a.Edge, truncateText(windows(a.Ran, r.Lasted), 30), a.formatHubView(r.Lasted))
		}
	}
	return t
}
