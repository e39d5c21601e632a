package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// timeline is a drawing, ready for its template. Places along the time are in
// percent of the whole, so that the drawing can be stretched without a script;
// down the page they are in pixels.
type timeline struct {
	Lasted time.Duration
	Height int
	Labels []label
	Rows   []row
	Bands  []band
	Links  []link
	Lines  []vline
	Ticks  []tick
	Desc   string   // for who cannot see it
	Left   []string // what was left out of it
}

// label is a text at the left.
type label struct {
	Top, Height int
	Sort        string // all, hub, edge, job
	Text, Title string
}

// row is what stands in one line: a hub, an edge, or a lane of allocations.
type row struct {
	Name  string
	Bars  []bar
	Signs []sign
}

// bar is a state that lasted.
type bar struct {
	X, W  string
	Y, H  int
	Class string
	Title string
}

// sign is something that happened at once.
type sign struct {
	X     string
	Y     int
	Sort  string
	Title string
}

// band is a fault's window.
type band struct {
	X, W  string
	Y, H  int
	Text  string
	TextY int
	Class string // "miss": it never hit; "wide": there is room for its name
	Title string
	Room  string // for its name
}

// link leads from an allocation to what replaced it.
type link struct {
	X      string
	Y1, Y2 int
	Title  string
}

// vline is a violation.
type vline struct {
	X     string
	ID    string
	Title string
}

// tick is a time on the axis.
type tick struct{ X, Text string }

// Signs, beside those that are named as what happens to processes.
const (
	signRefused  = "refused"
	signRequest  = "request"
	signComplete = "complete"
	signFailed   = "failed"
	signLost     = "lost"
	signStopped  = "stopped"
)

// percentAt is a time's place, in percent.
func (t *timeline) percentAt(d time.Duration) string { return percent(d, t.Lasted) }

func percent(d, of time.Duration) string {
	if of <= 0 {
		return "0"
	}
	p := strconv.FormatFloat(100*float64(d)/float64(of), 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(p, "0"), ".")
}

// drawBars draws spans at a height.
func (t *timeline) drawBars(spans []span, shape func(state string) (y, h int, class string)) []bar {
	var bars []bar
	for _, s := range spans {
		y, h, class := shape(s.state)
		bars = append(bars, bar{X: t.percentAt(s.from), W: percent(s.to-s.from, t.Lasted), Y: y, H: h, Class: class, Title: s.describeSpan()})
	}
	return bars
}

// addTicks marks round times, about ten of them.
func (t *timeline) addTicks() {
	step := tickStep(t.Lasted)
	for at := time.Duration(0); at <= t.Lasted && step > 0; at += step {
		t.Ticks = append(t.Ticks, tick{t.percentAt(at), stamp(at)})
	}
}

// tickStep is the round duration that divides a run into at most twelve.
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

// mergeCloseMarks draws marks together that are closer than apart.
func mergeCloseMarks(marks []mark, apart time.Duration) []mark {
	var out []mark
	last := map[string]int{} // by sort: where its last one is in out
	for _, m := range marks {
		i, known := last[m.sort]
		if known && m.at-out[i].at < apart {
			out[i].mergedCount = max(out[i].mergedCount, 1) + 1
			continue
		}
		last[m.sort] = len(out)
		out = append(out, m)
	}
	return out
}

// describeMark says what a mark is.
func (m mark) describeMark() string {
	if m.mergedCount > 1 {
		return fmt.Sprintf("%s at %s, and %d more soon after", m.title, stamp(m.at), m.mergedCount-1)
	}
	return m.title + " at " + stamp(m.at)
}
