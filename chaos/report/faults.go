package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// lineFault is a fault in a member's lines of faults.
type lineFault struct {
	*fault
	line int
	next time.Duration // when the next one of its line begins
}

// countFaultLines says how many lines of faults stand above each member, and above all ("")
// for those that are aimed at nobody that is drawn.
func (d *drawing) countFaultLines(shown []string) map[string]int {
	lines := map[string]int{}
	for _, name := range append([]string{""}, shown...) {
		for _, p := range d.arrangeFaults(name, shown) {
			lines[name] = max(lines[name], p.line+1)
		}
	}
	return lines
}

// arrangeFaults are a member's faults in lines, so that none covers another, as far as
// there is room.
func (d *drawing) arrangeFaults(name string, shown []string) []lineFault {
	var until [maxFaultStack]time.Duration
	last := [maxFaultStack]int{-1, -1, -1, -1}
	var out []lineFault
	for _, f := range d.faults {
		if !f.isDrawnAt(name, shown) {
			continue
		}
		line := slices.IndexFunc(until[:], func(t time.Duration) bool { return t <= f.from })
		if line < 0 {
			line = maxFaultStack - 1
		}
		if last[line] >= 0 {
			out[last[line]].next = f.from
		}
		until[line], last[line] = max(f.to, f.from+d.Lasted/40), len(out) // room for its name
		out = append(out, lineFault{f, line, d.Lasted})
	}
	return out
}

// isDrawnAt reports whether a fault is drawn at a member; "": at everyone.
func (f *fault) isDrawnAt(name string, shown []string) bool {
	if name != "" {
		return slices.Contains(f.Targets, name)
	}
	return !slices.ContainsFunc(f.Targets, func(t string) bool { return slices.Contains(shown, t) })
}

// reserveEveryoneLines makes room for the faults that are aimed at everyone.
func (d *drawing) reserveEveryoneLines(lines int) {
	if lines > 0 {
		d.Labels = append(d.Labels, label{0, faultHeight * lines, "all", "everyone", "faults that are aimed at all, or at nobody that is drawn"})
		d.y = faultHeight*lines + gapHeight
	}
}

// drawFaultBands draws the faults' windows over the members that they are aimed at.
func (d *drawing) drawFaultBands() {
	shown := make([]string, 0, len(d.group))
	for _, name := range d.names {
		if _, ok := d.group[name]; ok {
			shown = append(shown, name)
		}
	}
	left := 0
	for _, name := range append([]string{""}, shown...) {
		place := d.group[name]
		if name == "" {
			place = [2]int{0, d.Height}
		}
		for _, p := range d.arrangeFaults(name, shown) {
			if len(d.Bands) == d.limits.bands {
				left++
				continue
			}
			d.Bands = append(d.Bands, d.faultBand(p, place))
		}
	}
	if left > 0 {
		d.noteOmission("the windows of %d faults", left)
	}
}

func (d *drawing) faultBand(p lineFault, place [2]int) band {
	b := band{
		X: d.percentAt(p.from), W: percent(p.to-p.from, d.Lasted), Y: place[0] + faultHeight*p.line,
		Text: p.Kind, Title: p.describeFault(), Room: percent(p.next-p.from, d.Lasted),
	}
	b.H, b.TextY = place[1]-b.Y, b.Y+faultHeight-3
	if p.Detail != "" {
		b.Text += " " + p.Detail
	}
	if p.ended && p.Hits == 0 {
		b.Class = "miss"
	}
	if float64(p.next-p.from)/float64(d.Lasted)*minDrawingWidth > float64(len(b.Text))*letterWidth {
		b.Class = strings.TrimSpace(b.Class + " wide")
	}
	return b
}

// A drawing without a script is taken to be at least so wide, and a letter of a
// fault's name to be so wide, in pixels.
const (
	minDrawingWidth = 700
	letterWidth     = 5.2
)

// describeFault says what a fault is.
func (f *fault) describeFault() string {
	s := f.Kind
	if f.Detail != "" {
		s += " (" + f.Detail + ")"
	}
	if len(f.Targets) > 0 {
		s += " on " + strings.Join(f.Targets, ", ")
	}
	switch {
	case !f.ended:
		return fmt.Sprintf("%s, from %s on", s, stamp(f.from))
	case f.Hits == 0:
		return fmt.Sprintf("%s, %s to %s, never hit", s, stamp(f.from), stamp(f.to))
	}
	return fmt.Sprintf("%s, %s to %s (%s), %d hits", s, stamp(f.from), stamp(f.to), stamp(f.to-f.from), f.Hits)
}

// drawReplacementLinks draws which allocation took the place of which.
func (d *drawing) drawReplacementLinks() {
	left := 0
	for _, name := range d.names {
		for _, f := range d.cluster.allocsOfEdge(name) {
			from, there := d.allocMiddles[f.previous]
			to, here := d.allocMiddles[f.id]
			if !there || !here || f.previous == "" || from == to {
				continue
			}
			if len(d.Links) == maxLinks {
				left++
				continue
			}
			before := d.cluster.allocs[f.previous]
			d.Links = append(d.Links, link{
				X: d.percentAt(f.from), Y1: from, Y2: to,
				Title: fmt.Sprintf("%s on %s is replaced by %s on %s at %s", before.displayName(), d.cluster.names[before.node], f.displayName(), name, stamp(f.from)),
			})
		}
	}
	if left > 0 {
		d.noteOmission("%d lines from an allocation to its replacement", left)
	}
}
