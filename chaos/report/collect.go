package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/fleet"
)

// run is what a report shows of a run.
type run struct {
	header  history.Header
	sum     history.Run
	lasted  time.Duration
	members map[string]*member
	names   []string // of the members: hubs, then edges
	cluster cluster

	faults     []*fault
	open       map[int]*fault // that have not ended, by id
	refusals   map[refusal]*refusedCount
	violations []check.Violation
	verdicts   []check.Verdict
	sometimes  []history.Sometimes
	notes      []note
	clients    map[string]uint64 // operations, by what they do and how they ended
	requests   int
	end        history.End // without an outcome where there is none
	readErr    error       // why the history ends early, if it does
}

// member is a hub or an edge.
type member struct {
	edge    bool
	process stateSpans                   // whether it is up, and whether a hub leads
	tasks   map[fleet.AllocID]*taskSpans // what really runs
}

// taskSpans is when any task of an allocation ran, and how many run now.
type taskSpans struct {
	stateSpans
	running int
}

// fault is one that began.
type fault struct {
	check.Fault
	from, to time.Duration
	ended    bool
}

type note struct {
	at time.Duration
	history.Note
}

// refusal is who refused whom, and why.
type refusal struct {
	by, from string
	code     fleet.Code
	reason   string
}

type refusedCount struct {
	count       uint64
	first, last time.Duration
}

// Bounds of a run's notes, and of the different refusals that are told apart.
const (
	maxNotes    = 1000
	maxRefusals = 300
)

// collect reads a history to its end. One that was cut short, or is damaged from
// somewhere on, is collected as far as it goes.
func collect(r *history.Reader) (*run, error) {
	c := &run{
		header: r.Header(), members: map[string]*member{}, cluster: newCluster(), open: map[int]*fault{},
		clients: map[string]uint64{}, refusals: map[refusal]*refusedCount{},
	}
	for _, name := range c.header.Hubs {
		c.ensureMember(name, false)
	}
	for _, name := range c.header.Edges {
		c.ensureMember(name, true)
	}
	tally := history.NewTally(c.header)
	c.readErr = r.ForEach(func(rec *history.Record) error {
		tally.Add(*rec)
		c.lasted = max(c.lasted, rec.At)
		c.addRecord(rec)
		return nil
	})
	if c.sum = tally.Run(); c.sum.Records == 0 && c.readErr != nil && !errors.Is(c.readErr, history.ErrCutShort) {
		return nil, fmt.Errorf("report on %s: %w", c.header.Name, c.readErr)
	}
	c.closeOpenStates()
	return c, nil
}

func (c *run) ensureMember(name string, edge bool) *member {
	m := c.members[name]
	if m == nil {
		m = &member{edge: edge, tasks: map[fleet.AllocID]*taskSpans{}}
		c.members[name] = m
		c.names = append(c.names, name)
	}
	return m
}

func (c *run) addRecord(rec *history.Record) {
	at := rec.At
	switch {
	case rec.Applied != nil:
		c.cluster.applyEffects(at, rec.Applied)
	case rec.Hub != nil:
		c.recordHub(at, rec.Hub)
	case rec.Edge != nil:
		c.recordEdge(rec.Edge)
	case rec.Process != nil:
		c.recordProcess(at, rec.Process)
	case rec.Task != nil:
		c.recordTask(at, rec.Task)
	case rec.Refused != nil:
		c.recordRefusal(at, rec.Refused)
	case rec.Fault != nil:
		c.recordFault(at, rec.Fault)
	case rec.Operation != nil:
		c.clients[rec.Operation.Does+" "+rec.Operation.Outcome]++
	case rec.Request != nil:
		c.requests++
	default:
		c.recordConclusion(rec)
	}
}

// recordConclusion takes what is no observation.
func (c *run) recordConclusion(rec *history.Record) {
	switch {
	case rec.Violation != nil:
		v := *rec.Violation
		if v.At == 0 {
			v.At = rec.At
		}
		c.violations = append(c.violations, v)
	case rec.Verdict != nil:
		c.verdicts = append(c.verdicts, *rec.Verdict)
	case rec.Sometimes != nil:
		c.sometimes = append(c.sometimes, *rec.Sometimes)
	case rec.Note != nil && len(c.notes) < maxNotes:
		c.notes = append(c.notes, note{rec.At, *rec.Note})
	case rec.End != nil:
		c.end = *rec.End
	}
}

func (c *run) recordHub(at time.Duration, h *check.Hub) {
	m := c.ensureMember(h.Name, false)
	switch {
	case h.Leads:
		m.process.setState(at, stateLeads)
	case m.process.currentState() == stateLeads:
		m.process.setState(at, stateUp)
	}
	c.cluster.recordHubState(at, h)
}

func (c *run) recordEdge(e *check.Edge) {
	c.ensureMember(e.Name, true)
	if e.NodeID != "" {
		c.cluster.names[e.NodeID] = e.Name
	}
}

func (c *run) recordProcess(at time.Duration, p *check.Process) {
	m := c.ensureMember(p.Name, p.Edge)
	if p.What == check.ProcessStart {
		m.process.setState(at, stateUp)
	} else {
		m.process.setState(at, "")
	}
}

// recordTask follows what really runs: an allocation runs while any of its
// tasks does.
func (c *run) recordTask(at time.Duration, t *check.Task) {
	m := c.ensureMember(t.Edge, true)
	l := m.tasks[t.Alloc]
	if l == nil {
		l = &taskSpans{}
		m.tasks[t.Alloc] = l
	}
	if t.What == check.TaskStarted {
		l.running++
	} else {
		l.running = max(0, l.running-1)
	}
	l.setState(at, classIf(l.running > 0, barRuns))
}

// recordRefusal counts a refusal. Where there are too many different ones, those that are
// new are told apart by their code alone.
func (c *run) recordRefusal(at time.Duration, r *check.Refused) {
	key := refusal{r.By, r.From, r.Code, r.Reason}
	if name := c.cluster.names[r.Node]; name != "" && c.members[r.From] == nil {
		key.from = name
	}
	if c.refusals[key] == nil && len(c.refusals) >= maxRefusals {
		key = refusal{"several", "several", r.Code, "several reasons"}
	}
	n := c.refusals[key]
	if n == nil {
		n = &refusedCount{first: at}
		c.refusals[key] = n
	}
	n.count, n.last = n.count+1, at
}

func (c *run) recordFault(at time.Duration, f *check.Fault) {
	if !f.End {
		began := &fault{Fault: *f, from: at}
		c.faults, c.open[f.ID] = append(c.faults, began), began
		if slices.Contains(f.Effects, check.Rewinds) {
			c.cluster.resetIndexes()
		}
		return
	}
	if began := c.open[f.ID]; began != nil {
		began.to, began.ended, began.Hits = at, true, f.Hits
		delete(c.open, f.ID)
	}
}

// closeOpenStates closes what is open.
func (c *run) closeOpenStates() {
	for _, f := range c.open {
		f.to = c.lasted
	}
	for _, m := range c.members {
		m.process.close(c.lasted)
		for _, l := range m.tasks {
			l.close(c.lasted)
		}
	}
	c.cluster.closeSpans(c.lasted)
	slices.SortFunc(c.verdicts, func(a, b check.Verdict) int { return int(a.Invariant) - int(b.Invariant) })
	slices.SortStableFunc(c.sometimes, func(a, b history.Sometimes) int { return strings.Compare(a.Name, b.Name) })
}
