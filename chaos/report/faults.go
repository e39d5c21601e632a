package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// placed is a fault in a member's lines of faults.
type placed struct {
	*fault
	line int
	next time.Duration // when the next one of its line begins
}

// stack says how many lines of faults stand above each member, and above all ("")
// for those that are aimed at nobody that is drawn.
func (d *drawing) stack(shown []string) map[string]int {
	lines := map[string]int{}
	for _, name := range append([]string{""}, shown...) {
		for _, p := range d.lined(name, shown) {
			lines[name] = max(lines[name], p.line+1)
		}
	}
	return lines
}

// lined are a member's faults in lines, so that none covers another, as far as
// there is room.
func (d *drawing) lined(name string, shown []string) []placed {
	var until [maxStack]time.Duration
	last := [maxStack]int{-1, -1, -1, -1}
	var out []placed
	for _, f := range d.faults {
		if !f.on(name, shown) {
			continue
		}
		line := slices.IndexFunc(until[:], func(t time.Duration) bool { return t <= f.from })
		if line < 0 {
			line = maxStack - 1
		}
		if last[line] >= 0 {
			out[last[line]].next = f.from
		}
		until[line], last[line] = max(f.to, f.from+d.Lasted/40), len(out) // room for its name
		out = append(out, placed{f, line, d.Lasted})
	}
	return out
}

// on reports whether a fault is drawn at a member; "": at everyone.
func (f *fault) on(name string, shown []string) bool {
	if name != "" {
		return slices.Contains(f.Targets, name)
	}
	return !slices.ContainsFunc(f.Targets, func(t string) bool { return slices.Contains(shown, t) })
}

// everyone makes room for the faults that are aimed at everyone.
func (d *drawing) everyone(lines int) {
	if lines > 0 {
		d.Labels = append(d.Labels, label{0, faultHeight * lines, "all", "everyone", "faults that are aimed at all, or at nobody that is drawn"})
		d.y = faultHeight*lines + gapHeight
	}
}

// bands draws the faults' windows over the members that they are aimed at.
func (d *drawing) bands() {
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
		for _, p := range d.lined(name, shown) {
			if len(d.Bands) == d.within.bands {
				left++
				continue
			}
			d.Bands = append(d.Bands, d.band(p, place))
		}
	}
	if left > 0 {
		d.leave("the windows of %d faults", left)
	}
}

func (d *drawing) band(p placed, place [2]int) band {
	b := band{
		X: d.at(p.from), W: percent(p.to-p.from, d.Lasted), Y: place[0] + faultHeight*p.line,
		Text: p.Kind, Title: p.title(), Room: percent(p.next-p.from, d.Lasted),
	}
	b.H, b.TextY = place[1]-b.Y, b.Y+faultHeight-3
	if p.Detail != "" {
		b.Text += " " + p.Detail
	}
	if p.ended && p.Hits == 0 {
		b.Class = "miss"
	}
	if float64(p.next-p.from)/float64(d.Lasted)*narrow > float64(len(b.Text))*letter {
		b.Class = strings.TrimSpace(b.Class + " wide")
	}
	return b
}

// A drawing without a script is taken to be at least so wide, and a letter of a
// fault's name to be so wide, in pixels.
const (
	narrow = 700
	letter = 5.2
)

// title says what a fault is.
func (f *fault) title() string {
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

// links draws which allocation took the place of which.
func (d *drawing) links() {
	left := 0
	for _, name := range d.names {
		for _, f := range d.cluster.of(name) {
			from, there := d.slots[f.previous]
			to, here := d.slots[f.id]
			if !there || !here || f.previous == "" || from == to {
				continue
			}
			if len(d.Links) == maxLinks {
				left++
				continue
			}
			before := d.cluster.allocs[f.previous]
			d.Links = append(d.Links, link{
				X: d.at(f.from), Y1: from, Y2: to,
				Title: fmt.Sprintf("%s on %s is replaced by %s on %s at %s", before.label(), d.cluster.names[before.node], f.label(), name, stamp(f.from)),
			})
		}
	}
	if left > 0 {
		d.leave("%d lines from an allocation to its replacement", left)
	}
}
