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
	faultHeight    = 11 // of a line of faults
	hubHeight      = 18
	edgeHeight     = 22
	allocRowHeight = 11
	gapHeight      = 7
	maxFaultStack  = 4 // lines of faults above one another
)

// Bounds of a drawing, in number of elements.
const (
	maxLinks        = 200
	maxAllocRows    = 240
	maxDrawnMembers = 40 // members
	coarsest        = 1 << 13
)

// How fine a drawing is that need not be coarser: parts of the whole that are the
// shortest state that is drawn by itself, and the least between two signs.
const (
	finest  = 20_000
	nearest = 700
)

// allocRow is a lane of the drawing: allocations of one job on one edge that follow
// one another.
type allocRow struct {
	job    fleet.JobID
	allocs []*allocFact
	until  time.Duration
}

// drawing lays a run out.
type drawing struct {
	*run
	timeline
	limits         bounds
	y              int
	allocMiddles   map[fleet.AllocID]int // the middle of an allocation's lane
	group          map[string][2]int     // top and bottom of a member
	minSpan        time.Duration         // what lasts for less is drawn together
	minSignGap     time.Duration         // signs that are closer are drawn together
	maxRowsPerEdge int                   // lanes of allocations, of one edge
	merged         int
	hidden         int // lanes of allocations
	size           int // bars and signs
}

// drawTimeline lays a run out, as finely as its bounds allow.
func (c *run) drawTimeline(within bounds) *timeline {
	for coarse := 1; ; coarse += max(1, coarse/3) {
		if d := c.layOutDrawing(coarse, within); d.size <= within.elements || coarse >= coarsest {
			return &d.timeline
		}
	}
}

// layOutDrawing lays a run out. What is coarser takes less place.
func (c *run) layOutDrawing(coarse int, within bounds) *drawing {
	d := &drawing{run: c, limits: within, allocMiddles: map[fleet.AllocID]int{}, group: map[string][2]int{}}
	d.Lasted = max(c.lasted, time.Millisecond)
	// Short states go first, then lanes of allocations in which little happened, and
	// whole members last.
	fine := time.Duration(min(coarse, 512))
	d.minSpan, d.minSignGap = d.Lasted/finest*fine, d.Lasted/(4*nearest)*max(4, fine)
	shown := d.selectMembers(max(len(c.header.Hubs)+3, maxDrawnMembers/max(1, coarse/1024)))
	d.maxRowsPerEdge = max(1, maxAllocRows/max(1, coarse/64)/max(1, len(shown)))
	lines := d.countFaultLines(shown)
	d.reserveEveryoneLines(lines[""])
	for _, name := range shown {
		m := c.members[name]
		top := d.y
		d.y += faultHeight * lines[name]
		if m.edge {
			d.drawEdgeRows(m)
		} else {
			d.drawHubRow(m)
		}
		d.group[name] = [2]int{top, d.y}
		d.y += gapHeight
	}
	d.Height = d.y
	d.drawFaultBands()
	d.drawReplacementLinks()
	for i, v := range c.violations {
		d.Lines = append(d.Lines, vline{X: d.percentAt(v.At), ID: fmt.Sprintf("v%d", i+1), Title: fmt.Sprintf("violation of %s at %s: %s", v.Invariant.Slug(), stamp(v.At), v.Message)})
	}
	d.addTicks()
	d.describeDrawing(shown)
	return d
}

// addTimelineRow adds a row.
func (d *drawing) addTimelineRow(r row) {
	d.Rows = append(d.Rows, r)
	d.size += len(r.Bars) + len(r.Signs)
}

// selectMembers are the members that are drawn: all, or those that most happened to.
func (d *drawing) selectMembers(most int) []string {
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
	d.noteOmission("%d edges to which less happened", len(d.names)-most)
	var shown []string
	for _, name := range d.names {
		if slices.Contains(heaviest, name) {
			shown = append(shown, name)
		}
	}
	return shown
}

func (d *drawing) noteOmission(format string, args ...any) {
	d.Left = append(d.Left, fmt.Sprintf(format, args...))
}

// mergeForDrawing are spans as they are drawn.
func (d *drawing) mergeForDrawing(spans []span) []span {
	spans = mergeShortSpans(spans, d.minSpan)
	for _, s := range spans {
		d.merged += s.merged
	}
	return spans
}

func (d *drawing) drawHubRow(m *member) {
	top := d.y
	d.Labels = append(d.Labels, label{top, hubHeight, "hub", m.name, m.name})
	r := row{Name: m.name}
	r.Bars = d.drawBars(d.mergeForDrawing(m.process.spans), func(state string) (int, int, string) {
		switch state {
		case stateLeads:
			return top + 3, 12, "leads"
		case stateUp:
			return top + 7, 4, "up"
		}
		return top + 5, 8, state
	})
	r.Signs = d.drawSigns(m.marks, top+hubHeight/2)
	d.addTimelineRow(r)
	d.y += hubHeight
}

// drawEdgeRows draws an edge: its node's status, its link, what is not sent yet, and
// below them its allocations.
func (d *drawing) drawEdgeRows(m *member) {
	top := d.y
	d.Labels = append(d.Labels, label{top, edgeHeight, "edge", m.name, m.name + ": as the hubs have its node (thick), as it sees its link (below), rows it has not sent (bottom)"})
	r := row{Name: m.name}
	r.Bars = append(d.drawBars(d.mergeForDrawing(d.cluster.edgeStatus(m.name).spans), nodeShape(top)), d.drawBars(d.mergeForDrawing(m.link.spans), linkShape(top))...)
	r.Bars = append(r.Bars, d.drawBars(d.mergeForDrawing(m.unsent.spans), unsentShape(top))...)
	r.Signs = d.drawSigns(m.marks, top+8)
	d.addTimelineRow(r)
	d.y += edgeHeight
	slots := d.packAllocRows(m)
	if len(slots) > d.maxRowsPerEdge {
		slices.SortStableFunc(slots, func(a, b *allocRow) int { return cmp.Compare(b.activityWeight(), a.activityWeight()) })
		d.hidden += len(slots) - d.maxRowsPerEdge
		slots = slots[:d.maxRowsPerEdge]
		slices.SortStableFunc(slots, func(a, b *allocRow) int { return cmp.Compare(a.job, b.job) })
	}
	var last fleet.JobID
	for i, s := range slots {
		text := string(s.job)
		if i > 0 && s.job == last {
			text = ""
		}
		last = s.job
		d.drawAllocRow(m, s, text)
	}
}

// activityWeight is how much happened in a lane.
func (s *allocRow) activityWeight() int {
	n := 0
	for _, f := range s.allocs {
		n += len(f.status.spans)
		if n += 3 * len(f.ends); f.previous != "" {
			n += 5
		}
	}
	return n
}

// packAllocRows puts an edge's allocations into lanes: those of a job that follow one
// another share one.
func (d *drawing) packAllocRows(m *member) []*allocRow {
	facts := slices.Clone(d.cluster.allocsOfEdge(m.name))
	for _, id := range slices.Sorted(maps.Keys(m.tasks)) { // those that no hub knows
		if l := m.tasks[id]; d.cluster.allocs[id] == nil && len(l.spans) > 0 {
			facts = append(facts, &allocFact{id: id, name: "no hub knows it", job: "?", from: l.spans[0].from, to: l.spans[0].from})
		}
	}
	gap := d.Lasted / 250
	var slots []*allocRow
	for _, f := range facts {
		until := f.to
		if l := m.tasks[f.id]; l != nil && len(l.spans) > 0 {
			until = max(until, l.spans[len(l.spans)-1].to)
		}
		i := slices.IndexFunc(slots, func(s *allocRow) bool { return s.job == f.job && s.until+gap <= f.from })
		if i < 0 {
			slots, i = append(slots, &allocRow{job: f.job}), len(slots)
		}
		slots[i].allocs, slots[i].until = append(slots[i].allocs, f), until
	}
	return slots
}

func (d *drawing) drawAllocRow(m *member, s *allocRow, text string) {
	top := d.y
	d.Labels = append(d.Labels, label{top, allocRowHeight, "job", text, string(s.job)})
	var said, truth []span
	var ends []mark
	for _, f := range s.allocs {
		d.allocMiddles[f.id] = top + allocRowHeight/2
		said = append(said, f.labelSpans(f.status.spans)...)
		if l := m.tasks[f.id]; l != nil {
			truth = append(truth, f.labelSpans(l.spans)...)
		}
		ends = append(ends, f.ends...)
	}
	r := row{Name: m.name, Bars: d.drawBars(d.mergeForDrawing(said), allocShape(top))}
	r.Bars = append(r.Bars, d.drawBars(d.mergeForDrawing(truth), func(string) (int, int, string) { return top + 8, 2, "truth" })...)
	r.Signs = d.drawSigns(ends, top+allocRowHeight/2-1)
	d.addTimelineRow(r)
	d.y += allocRowHeight
}

// labelSpans are an allocation's spans, by its name.
func (f *allocFact) labelSpans(spans []span) []span {
	out := slices.Clone(spans)
	for i := range out {
		out[i].of = f.displayName()
	}
	return out
}

func (d *drawing) drawSigns(marks []mark, y int) []sign {
	var signs []sign
	marks = mergeCloseMarks(marks, d.minSignGap)
	slices.SortStableFunc(marks, func(a, b mark) int { // starts lie below what made them necessary
		return cmp.Compare(signDrawOrder(a.sort), signDrawOrder(b.sort))
	})
	for _, m := range marks {
		signs = append(signs, sign{d.percentAt(m.at), y, m.sort, m.describeMark()})
	}
	return signs
}

func signDrawOrder(sort string) int {
	if sort == check.ProcessStart {
		return 0
	}
	return 1
}

// describeDrawing says what the drawing shows, for who cannot see it.
func (d *drawing) describeDrawing(shown []string) {
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
		d.noteOmission("%d lanes of allocations in which less happened than in their edges' others", d.hidden)
	}
	if d.merged > 0 {
		d.noteOmission("%d changes that lasted for less than %s each are drawn together (chequered)", d.merged, stamp(d.minSpan))
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
