package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"skerry/chaos/history"
)

// Bounds of what a terminal is shown of a rehearsal.
const (
	maxPlaces     = 60
	maxFaultLines = 40
	drawWidth     = 62 // of the timeline
)

// Print prints the rehearsal, at most 100 characters wide.
func (r *Rehearsal) Print(w io.Writer) error {
	var b strings.Builder
	paragraph(&b, fmt.Sprintf("Rehearsal of %s: %s, %s", r.Name, stamp(r.Lasted), plural(len(r.Edges), "edge")))
	faults := r.faultLines()
	for _, f := range faults[:min(len(faults), maxFaultLines)] {
		fmt.Fprintf(&b, "  %s\n", truncateText(printable(f), pageWidth-indent))
	}
	if n := len(faults) - maxFaultLines; n > 0 {
		fmt.Fprintf(&b, "  and %d more\n", n)
	}
	places := r.sortedPlaces()
	b.WriteString("\n")
	t := table{heads: []string{"INSTANCE", "EDGE", "WHAT BECOMES OF IT", "WHERE, WHEN", "DOWN", "TWICE"}, right: []int{4, 5}, wrap: 3}
	for _, p := range places[:min(len(places), maxPlaces)] {
		t.rows = append(t.rows, []string{
			printable(p.Name), printable(p.firstEdge()), string(p.Fate(r.Lasted)), printable(p.Story()), stampOrDash(p.Down(r.Lasted)), stampOrDash(p.Twice()),
		})
	}
	t.writeTable(&b)
	if n := len(places) - maxPlaces; n > 0 {
		fmt.Fprintf(&b, "  and %d more\n", n)
	}
	for _, u := range r.Unplaced {
		paragraph(&b, u)
	}
	b.WriteString("\n")
	r.drawText(&b, places[:min(len(places), maxPlaces)])
	b.WriteString("\n")
	allocs := r.allocTable(places[:min(len(places), maxPlaces)])
	allocs.writeTable(&b)
	b.WriteString("\n")
	for _, l := range r.Lows() {
		paragraph(&b, l.String())
	}
	for _, s := range append(r.Summary(), r.Notes...) {
		paragraph(&b, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// stampOrDash prints a duration, and nothing for none.
func stampOrDash(d time.Duration) string {
	if d < time.Millisecond {
		return "–"
	}
	return stamp(d)
}

// firstEdge is where the place was filled first.
func (p RehearsedPlace) firstEdge() string {
	if len(p.Allocs) == 0 {
		return "nowhere"
	}
	return p.Allocs[0].Edge
}

// sortedPlaces has the places by name, [2] before [10].
func (r *Rehearsal) sortedPlaces() []RehearsedPlace {
	split := func(name string) (string, int) {
		var n int
		head, tail, ok := strings.Cut(name, "[")
		if _, err := fmt.Sscanf(tail, "%d]", &n); !ok || err != nil {
			return name, 0
		}
		return head, n
	}
	places := slices.Clone(r.Places)
	slices.SortStableFunc(places, func(a, b RehearsedPlace) int {
		x, i := split(a.Name)
		y, j := split(b.Name)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(i, j))
	})
	return places
}

func (r *Rehearsal) faultLines() []string {
	var lines []string
	for _, f := range r.Faults {
		when := "at " + stamp(f.From)
		if f.To-f.From >= time.Millisecond {
			when = stamp(f.From) + " to " + stamp(f.To)
		}
		lines = append(lines, fmt.Sprintf("%s on %s, %s", f.What, r.faultTargets(f), when))
	}
	return lines
}

// faultTargets says who a fault is on.
func (r *Rehearsal) faultTargets(f RehearsedFault) string {
	switch {
	case len(f.On) == 0:
		return "everyone"
	case len(f.On) > 3 && len(f.On) == len(r.Edges):
		return "all edges"
	case len(f.On) > 3:
		return fmt.Sprintf("%s and %d more", strings.Join(f.On[:2], ", "), len(f.On)-2)
	}
	return strings.Join(f.On, ", ")
}

// Summary says in few sentences what would happen.
func (r *Rehearsal) Summary() []string {
	byFate := map[Fate]int{}
	var longest, twice time.Duration
	var longestName string
	for _, p := range r.Places {
		byFate[p.Fate(r.Lasted)]++
		if d := p.Down(r.Lasted); d > longest {
			longest, longestName = d, p.Name
		}
		twice += p.Twice()
	}
	var parts []string
	for _, f := range []Fate{KeptRunning, Interrupted, CameBack, WasReplaced, Completed, Stopped, StillOut, DownAtEnd, Failed, Lost, NeverStarted} {
		if n := byFate[f]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, f))
		}
	}
	lines := []string{fmt.Sprintf("Of %s: %s.", plural(len(r.Places), "instance"), strings.Join(parts, ", "))}
	if longest >= time.Millisecond {
		lines = append(lines, fmt.Sprintf("The longest that an instance was down: %s (%s).", stamp(longest), longestName))
	} else if !slices.ContainsFunc(r.Lows(), func(l JobLow) bool { return len(l.Below) > 0 }) {
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

// drawText draws the rehearsal in characters.
func (r *Rehearsal) drawText(b *strings.Builder, places []RehearsedPlace) {
	name := 16
	for _, p := range places {
		name = max(name, utf8.RuneCountInString(p.Name))
	}
	name = min(name, pageWidth-drawWidth-indent-11)
	line := func(what, where string, cells []rune) {
		fmt.Fprintf(b, "  %-*s %-9s %s\n", name, truncateText(printable(what), name), truncateText(printable(where), 9), strings.TrimRight(string(cells), " "))
	}
	line("", "", r.timeAxis())
	for _, f := range r.Faults[:min(len(r.Faults), maxFaultLines)] {
		on := strings.Join(f.On, ",")
		if len(f.On) > 1 {
			on = fmt.Sprintf("%d of them", len(f.On))
		}
		line(f.What, on, r.paintWindows(signWindows{'▓', []Window{{f.From, f.To}}}))
	}
	for _, p := range places {
		for i, a := range p.Allocs {
			what := p.Name
			if i > 0 {
				what = "  and then"
			}
			there := Window{a.Placed, r.Lasted}
			if a.End != "" {
				there.To = a.Ended
			}
			line(what, a.Edge, r.paintWindows(signWindows{'·', []Window{there}}, signWindows{'━', a.Ran}, signWindows{'┄', intersectWindows(a.Ran, a.Unseen)}))
		}
	}
	line("", "", []rune("━ runs  ┄ runs, and no hub sees it  · does not run  ▓ broken"))
}

func (r *Rehearsal) timeAxis() []rune {
	cells := []rune(strings.Repeat(" ", drawWidth))
	free := 0
	step := max(tickStep(2*r.Lasted), 1) // half as many as a page has room for
	for at := time.Duration(0); at <= r.Lasted; at += step {
		text, x := []rune(stamp(at)), r.cellIndex(at)
		if x < free || x+len(text) > drawWidth {
			continue
		}
		copy(cells[x:], text)
		free = x + len(text) + 2
	}
	return cells
}

// signWindows are windows and what stands for them.
type signWindows struct {
	sign    rune
	windows []Window
}

// paintWindows paints layers over one another. What lasts for less than a cell has one
// all the same.
func (r *Rehearsal) paintWindows(layers ...signWindows) []rune {
	cells := []rune(strings.Repeat(" ", drawWidth))
	for _, l := range layers {
		for _, w := range l.windows {
			for x := r.cellIndex(w.From); x <= max(r.cellIndex(w.From), r.cellIndex(w.To-1)) && x < drawWidth; x++ {
				cells[x] = l.sign
			}
		}
	}
	return cells
}

func (r *Rehearsal) cellIndex(at time.Duration) int {
	return max(0, min(drawWidth-1, int(float64(at)/float64(max(r.Lasted, 1))*drawWidth)))
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
