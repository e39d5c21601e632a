package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// Measures of a drawing, in pixels.
const (
	faultHeight = 11 // of a line of faults
	hubHeight   = 18
	edgeHeight  = 22
	laneHeight  = 11
	gapHeight   = 7
	maxStack    = 4 // lines of faults above one another
)

// Bounds of a drawing, in number of elements.
const (
	maxLinks = 200
	maxLanes = 240
	maxDrawn = 40 // members
	coarsest = 1 << 13
)

// How fine a drawing is that need not be coarser: parts of the whole that are the
// shortest state that is drawn by itself, and the least between two signs.
const (
	finest  = 20_000
	nearest = 700
)

// slot is a lane of the drawing: allocations of one job on one edge that follow
// one another.
type slot struct {
	job    fleet.JobID
	allocs []*allocFact
	until  time.Duration
}

// drawing lays a run out.
type drawing struct {
	*run
	timeline
	within  bounds
	y       int
	slots   map[fleet.AllocID]int // the middle of an allocation's lane
	group   map[string][2]int     // top and bottom of a member
	shorter time.Duration         // what lasts for less is drawn together
	apart   time.Duration         // signs that are closer are drawn together
	quota   int                   // lanes of allocations, of one edge
	merged  int
	hidden  int // lanes of allocations
	size    int // bars and signs
}

// draw lays a run out, as finely as its bounds allow.
func (c *run) draw(within bounds) *timeline {
	for coarse := 1; ; coarse += max(1, coarse/3) {
		if d := c.lay(coarse, within); d.size <= within.elements || coarse >= coarsest {
			return &d.timeline
		}
	}
}

// lay lays a run out. What is coarser takes less place.
func (c *run) lay(coarse int, within bounds) *drawing {
	d := &drawing{run: c, within: within, slots: map[fleet.AllocID]int{}, group: map[string][2]int{}}
	d.Lasted = max(c.lasted, time.Millisecond)
	// Short states go first, then lanes of allocations in which little happened, and
	// whole members last.
	fine := time.Duration(min(coarse, 512))
	d.shorter, d.apart = d.Lasted/finest*fine, d.Lasted/(4*nearest)*max(4, fine)
	shown := d.shown(max(len(c.header.Hubs)+3, maxDrawn/max(1, coarse/1024)))
	d.quota = max(1, maxLanes/max(1, coarse/64)/max(1, len(shown)))
	lines := d.stack(shown)
	d.everyone(lines[""])
	for _, name := range shown {
		m := c.members[name]
		top := d.y
		d.y += faultHeight * lines[name]
		if m.edge {
			d.edgeRows(m)
		} else {
			d.hubRow(m)
		}
		d.group[name] = [2]int{top, d.y}
		d.y += gapHeight
	}
	d.Height = d.y
	d.bands()
	d.links()
	for i, v := range c.violations {
		d.Lines = append(d.Lines, vline{X: d.at(v.At), ID: fmt.Sprintf("v%d", i+1), Title: fmt.Sprintf("violation of %s at %s: %s", v.Invariant.Slug(), stamp(v.At), v.Message)})
	}
	d.ticks()
	d.describe(shown)
	return d
}

// add adds a row.
func (d *drawing) add(r row) {
	d.Rows = append(d.Rows, r)
	d.size += len(r.Bars) + len(r.Signs)
}

// shown are the members that are drawn: all, or those that most happened to.
func (d *drawing) shown(most int) []string {
	if len(d.names) <= most {
		return d.names
	}
	faults := map[string]int{}
	for _, f := range d.faults {
		for _, t := range f.Targets {
			faults[t]++
		}
	}
	for _, v := range d.violations {
		faults[v.Where] += 1000
	}
	weight := func(name string) int {
		m := d.members[name]
		if !m.edge {
			return 1 << 30
		}
		return faults[name]*10 + len(m.marks) + len(m.link.spans)
	}
	heaviest := slices.SortedStableFunc(slices.Values(d.names), func(a, b string) int { return cmp.Compare(weight(b), weight(a)) })[:most]
	d.leave("%d edges to which less happened", len(d.names)-most)
	var shown []string
	for _, name := range d.names {
		if slices.Contains(heaviest, name) {
			shown = append(shown, name)
		}
	}
	return shown
}

func (d *drawing) leave(format string, args ...any) {
	d.Left = append(d.Left, fmt.Sprintf(format, args...))
}

// thinned are spans as they are drawn.
func (d *drawing) thinned(spans []span) []span {
	spans = thin(spans, d.shorter)
	for _, s := range spans {
		d.merged += s.merged
	}
	return spans
}

func (d *drawing) hubRow(m *member) {
	top := d.y
	d.Labels = append(d.Labels, label{top, hubHeight, "hub", m.name, m.name})
	r := row{Name: m.name}
	r.Bars = d.bars(d.thinned(m.process.spans), func(state string) (int, int, string) {
		switch state {
		case stateLeads:
			return top + 3, 12, "leads"
		case stateUp:
			return top + 7, 4, "up"
		}
		return top + 5, 8, state
	})
	r.Signs = d.signs(m.marks, top+hubHeight/2)
	d.add(r)
	d.y += hubHeight
}

// edgeRows draws an edge: its node's status, its link, what is not sent yet, and
// below them its allocations.
func (d *drawing) edgeRows(m *member) {
	top := d.y
	d.Labels = append(d.Labels, label{top, edgeHeight, "edge", m.name, m.name + ": as the hubs have its node (thick), as it sees its link (below), rows it has not sent (bottom)"})
	r := row{Name: m.name}
	r.Bars = append(d.bars(d.thinned(d.cluster.status(m.name).spans), nodeShape(top)), d.bars(d.thinned(m.link.spans), linkShape(top))...)
	r.Bars = append(r.Bars, d.bars(d.thinned(m.unsent.spans), unsentShape(top))...)
	r.Signs = d.signs(m.marks, top+8)
	d.add(r)
	d.y += edgeHeight
	slots := d.pack(m)
	if len(slots) > d.quota {
		slices.SortStableFunc(slots, func(a, b *slot) int { return cmp.Compare(b.weight(), a.weight()) })
		d.hidden += len(slots) - d.quota
		slots = slots[:d.quota]
		slices.SortStableFunc(slots, func(a, b *slot) int { return cmp.Compare(a.job, b.job) })
	}
	var last fleet.JobID
	for i, s := range slots {
		text := string(s.job)
		if i > 0 && s.job == last {
			text = ""
		}
		last = s.job
		d.slotRow(m, s, text)
	}
}

// weight is how much happened in a lane.
func (s *slot) weight() int {
	n := 0
	for _, f := range s.allocs {
		n += len(f.status.spans)
		if n += 3 * len(f.ends); f.previous != "" {
			n += 5
		}
	}
	return n
}

// pack puts an edge's allocations into lanes: those of a job that follow one
// another share one.
func (d *drawing) pack(m *member) []*slot {
	facts := slices.Clone(d.cluster.of(m.name))
	for _, id := range slices.Sorted(maps.Keys(m.tasks)) { // those that no hub knows
		if l := m.tasks[id]; d.cluster.allocs[id] == nil && len(l.spans) > 0 {
			facts = append(facts, &allocFact{id: id, name: "no hub knows it", job: "?", from: l.spans[0].from, to: l.spans[0].from})
		}
	}
	gap := d.Lasted / 250
	var slots []*slot
	for _, f := range facts {
		until := f.to
		if l := m.tasks[f.id]; l != nil && len(l.spans) > 0 {
			until = max(until, l.spans[len(l.spans)-1].to)
		}
		i := slices.IndexFunc(slots, func(s *slot) bool { return s.job == f.job && s.until+gap <= f.from })
		if i < 0 {
			slots, i = append(slots, &slot{job: f.job}), len(slots)
		}
		slots[i].allocs, slots[i].until = append(slots[i].allocs, f), until
	}
	return slots
}

func (d *drawing) slotRow(m *member, s *slot, text string) {
	top := d.y
	d.Labels = append(d.Labels, label{top, laneHeight, "job", text, string(s.job)})
	var said, truth []span
	var ends []mark
	for _, f := range s.allocs {
		d.slots[f.id] = top + laneHeight/2
		said = append(said, f.labelled(f.status.spans)...)
		if l := m.tasks[f.id]; l != nil {
			truth = append(truth, f.labelled(l.spans)...)
		}
		ends = append(ends, f.ends...)
	}
	r := row{Name: m.name, Bars: d.bars(d.thinned(said), allocShape(top))}
	r.Bars = append(r.Bars, d.bars(d.thinned(truth), func(string) (int, int, string) { return top + 8, 2, "truth" })...)
	r.Signs = d.signs(ends, top+laneHeight/2-1)
	d.add(r)
	d.y += laneHeight
}

// labelled are an allocation's spans, by its name.
func (f *allocFact) labelled(spans []span) []span {
	out := slices.Clone(spans)
	for i := range out {
		out[i].of = f.label()
	}
	return out
}

func (d *drawing) signs(marks []mark, y int) []sign {
	var signs []sign
	marks = gather(marks, d.apart)
	slices.SortStableFunc(marks, func(a, b mark) int { // starts lie below what made them necessary
		return cmp.Compare(above(a.sort), above(b.sort))
	})
	for _, m := range marks {
		signs = append(signs, sign{d.at(m.at), y, m.sort, m.text()})
	}
	return signs
}

func above(sort string) int {
	if sort == check.ProcessStart {
		return 0
	}
	return 1
}

// describe says what the drawing shows, for who cannot see it.
func (d *drawing) describe(shown []string) {
	edges := 0
	for _, name := range shown {
		if d.members[name].edge {
			edges++
		}
	}
	allocs := len(d.cluster.allocs)
	d.Desc = fmt.Sprintf("%s of %s and %s with %s, %s and %s. The tables below say the same in words.",
		stamp(d.Lasted), plural(len(shown)-edges, "hub"), plural(edges, "edge"), plural(allocs, "allocation"),
		plural(len(d.faults), "fault"), plural(len(d.violations), "violation"))
	if d.hidden > 0 {
		d.leave("%d lanes of allocations in which less happened than in their edges' others", d.hidden)
	}
	if d.merged > 0 {
		d.leave("%d changes that lasted for less than %s each are drawn together (chequered)", d.merged, stamp(d.shorter))
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
