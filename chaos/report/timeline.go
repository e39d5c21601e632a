package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// States of bars, besides the statuses of nodes. style.css has a class for each.
const (
	barFault     = "fault"
	barMissed    = "missed" // a fault that never hit
	barViolation = "violation"
	barPlaced    = "placed" // an allocation that is placed and does not run
	barRuns      = "runs"
	barUnseen    = "unseen" // an allocation that runs, and that the hubs call unknown or lost
)

// textSigns are the characters of bars on a terminal.
var textSigns = map[string]rune{barFault: '▓', barPlaced: '·', barRuns: '━', barUnseen: '┄'}

// textLegend explains textSigns below a timeline.
const textLegend = "━ runs  ┄ runs, and no hub sees it  · does not run  ▓ broken"

// Bounds of a timeline.
const (
	maxTimelineRows = 120 // on a page
	maxTextRows     = 100 // on a terminal
	maxBars         = 2000
	maxLegend       = 16
	textCells       = 62 // columns of time on a terminal
)

// timeline shows states over time, with a row for each fault, member or allocation.
type timeline struct {
	Ticks  []tick
	Rows   []timelineRow
	Legend []string
	Left   []string      // descriptions of what was left out or merged
	lasted time.Duration // length of the whole axis
	bars   int           // number of bars in all rows
}

// timelineRow is the row of a fault, a member or an allocation. Later spans are drawn over earlier ones.
type timelineRow struct {
	Name, On string
	Bars     []bar
	spans    []span
}

// bar is a span on a page. X and Width are percentages of the whole time.
type bar struct {
	X, Width     float64
	Class, Title string
}

// tick is a marked time of the axis. X is its percentage of the whole time.
type tick struct {
	X    float64
	Text string
	at   time.Duration
}

// newTimeline returns a timeline of a run of length lasted. It merges short spans as far as needed to stay
// within maxBars.
func newTimeline(lasted time.Duration, rows []timelineRow) *timeline {
	lasted = max(lasted, time.Millisecond)
	for shortest := lasted / 1000; ; shortest = 2*shortest + 1 {
		t := &timeline{lasted: lasted, Rows: slices.Clone(rows)}
		t.addTicks()
		t.drawBars(shortest)
		if t.bars <= maxBars || shortest > lasted/2 {
			return t
		}
	}
}

// drawBars makes the bars of all rows, and the legend. Neighbouring spans shorter than shortest are merged, and
// rows beyond maxTimelineRows left out; Left says so.
func (t *timeline) drawBars(shortest time.Duration) {
	if left := len(t.Rows) - maxTimelineRows; left > 0 {
		t.Rows = t.Rows[:maxTimelineRows]
		t.Left = append(t.Left, fmt.Sprintf("%d rows", left))
	}
	merged := 0
	for i := range t.Rows {
		row := &t.Rows[i]
		for _, s := range mergeShortSpans(row.spans, shortest) {
			merged += s.merged
			if !slices.Contains(t.Legend, s.state) && len(t.Legend) < maxLegend {
				t.Legend = append(t.Legend, s.state)
			}
			row.Bars = append(row.Bars, bar{t.percentAt(s.from), t.percentAt(s.to - s.from), s.state, s.describeSpan()})
		}
		t.bars += len(row.Bars)
	}
	if merged > 0 {
		t.Left = append(t.Left, fmt.Sprintf("%d changes that lasted for less than %s each, which are merged", merged, stamp(shortest)))
	}
}

// percentAt returns a time as a percentage of the whole, rounded down to a thousandth.
func (t *timeline) percentAt(d time.Duration) float64 {
	return float64(int64(100_000*float64(d)/float64(t.lasted))) / 1000
}

// addTicks adds ticks at round times, at most thirteen.
func (t *timeline) addTicks() {
	step := tickStep(t.lasted)
	for i := range t.lasted/step + 1 {
		at := i * step
		t.Ticks = append(t.Ticks, tick{t.percentAt(at), stamp(at), at})
	}
}

// tickStep returns the smallest round duration that divides a run into at most twelve parts.
func tickStep(lasted time.Duration) time.Duration {
	const day = 24 * time.Hour
	for _, step := range []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 5 * day, 10 * day, 20 * day, 50 * day, 100 * day, 500 * day,
	} {
		if lasted <= 12*step {
			return step
		}
	}
	return lasted / 10
}

// writeTimeline appends the timeline as text to b: the axis, at most maxTextRows rows, and the legend.
func (t *timeline) writeTimeline(b *strings.Builder) {
	rows := t.Rows[:min(len(t.Rows), maxTextRows)]
	width := 16
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row.Name))
	}
	width = min(width, pageWidth-textCells-indent-11)
	line := func(name, on string, cells []rune) {
		fmt.Fprintf(b, "%*s%-*s %-9s %s\n", indent, "", width, truncateText(printable(name), width), truncateText(printable(on), 9), strings.TrimRight(string(cells), " "))
	}
	line("", "", t.axisCells())
	for _, row := range rows {
		line(row.Name, row.On, t.paintSpans(row.spans))
	}
	line("", "", []rune(textLegend))
}

// axisCells returns the characters of the axis: every other tick's time, where there is room.
func (t *timeline) axisCells() []rune {
	cells := []rune(strings.Repeat(" ", textCells))
	free := 0
	for i := 0; i < len(t.Ticks); i += 2 {
		text, x := []rune(t.Ticks[i].Text), t.cellIndex(t.Ticks[i].at)
		if x >= free && x+len(text) <= textCells {
			copy(cells[x:], text)
			free = x + len(text) + 2
		}
	}
	return cells
}

// paintSpans returns the characters of a row. Later spans cover earlier ones, and each has at least one
// character.
func (t *timeline) paintSpans(spans []span) []rune {
	cells := []rune(strings.Repeat(" ", textCells))
	for _, s := range spans {
		first := t.cellIndex(s.from)
		for x := first; x <= max(first, t.cellIndex(s.to-1)); x++ {
			cells[x] = textSigns[s.state]
		}
	}
	return cells
}

// cellIndex returns the column of a time on a terminal.
func (t *timeline) cellIndex(at time.Duration) int {
	return max(0, min(textCells-1, int(float64(at)/float64(t.lasted)*textCells)))
}
